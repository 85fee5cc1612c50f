"""Converts Emu3's vision tokenizer (BAAI/Emu3-VisionTokenizer).

``python -m conversion.emu3_vq SRC DST`` reads the released folder (``config.json`` and weights) and writes a checkpoint
folder; ``--export`` goes back to a folder. Layers in time are kept whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxspec.models.tokenizers.emu3_vq import Emu3VQConfig

from . import command, hugging_face, mar_vae, released
from .rules import Rule, conv, frame_conv, norm

_BLOCK = "decoder.up.{level}.block.{block}"
# Modules with a norm that depends on the code.
_GUIDED = (
  f"{_BLOCK}.norm1",
  f"{_BLOCK}.norm2",
  "decoder.up.{level}.attn.{block}.norm",
  "decoder.mid.{block:block_1|block_2}.{part:norm1|norm2}",
  "decoder.mid.attn_1.norm",
  "decoder.norm_out",
)
_FRAMES = "{net:encoder|decoder}.time_"
_STACK = f"{_FRAMES}res_stack.{{i}}"
_OUR_FRAMES, _OUR_STACK = f"frame_{_FRAMES}", f"frame_{_FRAMES}res_stack_{{i}}"
_CONVS, _NORMS, _LEAVES = "{conv:conv1|conv2}", "{norm:norm1|norm2}", "{leaf:weight|bias|running_mean|running_var}"
_QUANT = "{part:quant_conv|post_quant_conv}"

RULES = (
  *mar_vae.CODER_RULES,
  *(rule for name in _GUIDED for rule in norm(f"{name}.norm_layer")),
  *(rule for name in _GUIDED for way in ("conv_y", "conv_b") for rule in conv(f"{name}.{way}")),
  *frame_conv(f"{_FRAMES}conv.{{i}}.conv.conv", f"{_OUR_FRAMES}conv_{{i}}"),
  *frame_conv(f"{_STACK}.{_CONVS}.conv", f"{_OUR_STACK}.{_CONVS}"),
  Rule(f"{_STACK}.{_NORMS}.{_LEAVES}", f"{_OUR_STACK}.{_NORMS}.{_LEAVES}"),
  *frame_conv(f"{_QUANT}.conv", _QUANT),
  Rule("quantize.embedding.weight"),
)
# Counters of training.
IGNORED = (r".*\.num_batches_tracked",)

# Fields of `Emu3VQConfig` by the keys of config.json.
_FIELDS = {
  "ch": "base_channels",
  "ch_mult": "multipliers",
  "num_res_blocks": "num_res_blocks",
  "attn_resolutions": "attention_levels",
  "z_channels": "z_channels",
  "temporal_downsample_factor": "temporal_factor",
  "codebook_size": "codebook_size",
  "embed_dim": "codebook_dim",
}
_FIXED = {"double_z": False, "in_channels": 3, "out_channels": 3}


def read_config(document: dict[str, Any]) -> dict[str, Any]:
  """Fields of an `Emu3VQConfig` from a ``config.json``; keys that it lacks have the published values."""
  for name, value in _FIXED.items():
    if document.get(name, value) != value:
      raise ValueError(f"Must have {name} {value!r}, we instead got {document[name]!r}")
  return {field: document[name] for name, field in _FIELDS.items() if name in document}


def write_config(config: Emu3VQConfig) -> dict[str, Any]:
  """``config.json`` of an `Emu3VQConfig`."""
  return (
    {"architectures": ["Emu3VisionVQModel"]} | _FIXED | {name: getattr(config, field) for name, field in _FIELDS.items()}
  )


FAMILY = hugging_face.family("emu3_vq", RULES, IGNORED)
ARCHITECTURE = hugging_face.Architecture("Emu3VisionVQ", "", FAMILY, read_config, write_config)


RELEASED = released.of_folder(ARCHITECTURE)


@command.converter()
def main(source: Path, **options: Any) -> str:
  """Converts the Emu3 vision tokenizer in the folder SRC to the checkpoint folder DST."""
  config = hugging_face.run(ARCHITECTURE, source=source, tokenizer=None, **options)
  return f"{config.factor} x {config.factor} pixels per token, {config.codebook_size} codes of width {config.codebook_dim}"


if __name__ == "__main__":
  main()
