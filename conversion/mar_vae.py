"""Converts MAR's KL-16 autoencoder (LTH14/mar, arXiv 2406.11838).

``python -m conversion.mar_vae SRC DST`` reads the official ``.ckpt`` file (or the same tensors as ``.pt``, ``.pth`` or
``.safetensors``) and writes a checkpoint folder; ``--export`` goes back. The shapes determine the config except for the
number of groups of the norms: it is 32 as published, or the number of channels of the first level if that is smaller.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jaxspec.models import registry
from jaxspec.models.nn.conv import DEFAULT_GROUPS
from jaxspec.models.tokenizers.kl_vae import KLVAEConfig

from . import command, engine, released
from .rules import Shape, conv, norm

_NET = "{net:encoder|decoder}"
_LEVEL = "{way:encoder.down|decoder.up}.{level}"

# Encoder and decoder, which other autoencoders have too.
CODER_RULES = (
  *conv(f"{_NET}.{{part:conv_in|conv_out}}"),
  *conv(f"{_LEVEL}.block.{{block}}.{{part:conv1|conv2|nin_shortcut}}"),
  *norm(f"{_LEVEL}.block.{{block}}.{{part:norm1|norm2}}"),
  *conv(f"{_LEVEL}.attn.{{block}}.{{part:q|k|v|proj_out}}"),
  *norm(f"{_LEVEL}.attn.{{block}}.norm"),
  *conv("encoder.down.{level}.downsample.conv"),
  *conv("decoder.up.{level}.upsample.conv"),
  *conv(f"{_NET}.mid.{{block:block_1|block_2}}.{{part:conv1|conv2}}"),
  *norm(f"{_NET}.mid.{{block:block_1|block_2}}.{{part:norm1|norm2}}"),
  *conv(f"{_NET}.mid.attn_1.{{part:q|k|v|proj_out}}"),
  *norm(f"{_NET}.mid.attn_1.norm"),
  *norm(f"{_NET}.norm_out"),
)
RULES = (*CODER_RULES, *conv("{part:quant_conv|post_quant_conv}"))


def inferred_fields(
  shapes: Mapping[str, Shape], down: str = "down", block: str = "block", attention: str = "attn"
) -> dict[str, Any]:
  """Fields of encoder and decoder from the shapes; None for unknown ones.

  Args:
    down: name of an encoder level; ``block`` and ``attention`` are its parts.
  """
  level = rf"encoder\.{down}\.(\d{{1,7}})\."
  first = lambda pattern, axis, ndim: next(iter(engine.axis_sizes(shapes, pattern, axis, ndim)), None)  # noqa: E731
  base = first(r"encoder\.conv_in\.weight", 0, 4)
  levels = engine.count_distinct(shapes, level)
  channels = [first(rf"encoder\.{down}\.{i}\.{block}\.0\.conv1\.weight", 0, 4) for i in range(levels)]
  attended = {int(match[1]) for name in shapes if (match := re.match(rf"{level}{attention}\.", name))}
  return {
    "base_channels": base,
    "multipliers": engine.multiples(channels, base),
    "num_res_blocks": engine.count_distinct(shapes, rf"encoder\.{down}\.0\.{block}\.(\d+)\.") or None,
    "attention_levels": tuple(sorted(attended)),
    "z_channels": engine.most_common([first(r"decoder\.conv_in\.weight", 1, 4), first(r"post_quant_conv\.weight", 0, 4)]),
    "latent_channels": first(r"post_quant_conv\.weight", 1, 4),
    "num_groups": min(DEFAULT_GROUPS, base) if base else None,
  }


def infer_config(shapes: Mapping[str, Shape], fields: dict[str, Any]) -> KLVAEConfig:
  """Config from the shapes and the user's fields.

  Raises:
    ValueError: one line that says what must be given.
  """
  return registry.make_config("kl_vae", engine.require(fields, inferred_fields(shapes)))


def in_words(config: KLVAEConfig) -> str:
  """The end of the line about what was written."""
  return (
    f"{config.factor} x {config.factor} pixels per latent, {config.latent_channels} channels, "
    f"norms of {config.num_groups} groups"
  )


FAMILY = engine.Family("kl_vae", RULES, (), infer_config)
RELEASED = released.of_file(FAMILY)


@command.converter()
def main(**options: Any) -> str:
  """Converts the KL autoencoder in SRC to the checkpoint folder DST."""
  return in_words(command.run(FAMILY, **options))


if __name__ == "__main__":
  main()
