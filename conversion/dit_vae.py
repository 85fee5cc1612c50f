"""Converts Stable Diffusion's autoencoder, in whose latents DiT draws (stabilityai/sd-vae-ft-ema and -mse).

``python -m conversion.dit_vae SRC DST`` reads ``diffusion_pytorch_model.safetensors`` (or the tensors as ``.pt``), which has
the names of the diffusers library, and writes a checkpoint folder; ``--export`` goes back. Older files have other names for
the attention; they are read too, and today's are written. Files with the names of the first release are read by
`conversion.mar_vae` (``encoder.down.0.block.0``). The shapes determine the config except for the number of groups of the
norms: it is 32 as published, or the number of channels of the first level if that is smaller.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

from jaxspec.models import registry
from jaxspec.models.tokenizers.kl_vae import KLVAEConfig

from . import command, engine, mar_vae, released
from .rules import Rule, Shape, conv, linear_as_conv, norm

_NET = "{net:encoder|decoder}"
# Queries, keys, values and output of the attention, in files of today and in older ones.
_NEW, _OLD = ("to_q", "to_k", "to_v", "to_out.0"), ("query", "key", "value", "proj_attn")
_ATTENTION = f"{_NET}.mid_block.attentions.0"
_LEVEL = re.compile(r"(encoder\.down_blocks\.|decoder\.up_blocks\.|encoder\.down_|decoder\.up_)(\d{1,3})\.", re.ASCII)


def _blocks(source: str, target: str) -> tuple[Rule, ...]:
  """Rules of residual blocks."""
  return (
    *conv(f"{source}.{{part:conv1|conv2}}", f"{target}.{{part:conv1|conv2}}"),
    *conv(f"{source}.conv_shortcut", f"{target}.nin_shortcut"),
    *norm(f"{source}.{{part:norm1|norm2}}", f"{target}.{{part:norm1|norm2}}"),
  )


def _decoder_level(number: int, levels: int) -> tuple[Rule, ...]:
  """Rules of a decoder level; the library counts from the smallest image."""
  source, target = f"decoder.up_blocks.{levels - 1 - number}", f"decoder.up_{number}"
  return (
    *_blocks(f"{source}.resnets.{{block}}", f"{target}.block_{{block}}"),
    *conv(f"{source}.upsamplers.0.conv", f"{target}.upsample.conv"),
  )


@functools.cache
def rules(levels: int, attention: tuple[str, ...] = _NEW) -> tuple[Rule, ...]:
  """The table of an autoencoder.

  Args:
    levels: levels of encoder and decoder.
    attention: names of the four layers of the attention.
  """
  return (
    *conv(f"{_NET}.{{part:conv_in|conv_out}}"),
    *norm(f"{_NET}.conv_norm_out", f"{_NET}.norm_out"),
    *conv("{part:quant_conv|post_quant_conv}"),
    *_blocks("encoder.down_blocks.{level}.resnets.{block}", "encoder.down_{level}.block_{block}"),
    *conv("encoder.down_blocks.{level}.downsamplers.0.conv", "encoder.down_{level}.downsample.conv"),
    *(rule for number in range(levels) for rule in _decoder_level(number, levels)),
    *_blocks(f"{_NET}.mid_block.resnets.0", f"{_NET}.mid.block_1"),
    *_blocks(f"{_NET}.mid_block.resnets.1", f"{_NET}.mid.block_2"),
    *norm(f"{_ATTENTION}.group_norm", f"{_NET}.mid.attn_1.norm"),
    *(
      rule
      for theirs, ours in zip(attention, ("q", "k", "v", "proj_out"), strict=True)
      for rule in linear_as_conv(f"{_ATTENTION}.{theirs}", f"{_NET}.mid.attn_1.{ours}")
    ),
  )


def fit(names: Iterable[Any]) -> engine.Family:
  """The family for the names of a file's tensors, or for the paths of a parameter tree.

  Raises:
    ValueError: for the names of the first release.
  """
  names = [name for name in names if isinstance(name, str)]
  numbers: dict[str, set[str]] = {}
  for name in names:
    if match := _LEVEL.match(name):
      numbers.setdefault(match[1], set()).add(match[2])
  if any(name.startswith(("encoder.down.", "decoder.up.")) for name in names):
    raise ValueError("Must have the names of the diffusers library, this is the first release's form: use mar-vae")
  levels = max(map(len, numbers.values()), default=0)
  is_old = any(re.search(r"\.mid_block\.attentions\.0\.(query|key|value|proj_attn)\.", name) for name in names)
  return FAMILY._replace(rules=rules(levels, _OLD if is_old else _NEW), fit=None)


def infer_config(shapes: Mapping[str, Shape], fields: dict[str, Any]) -> KLVAEConfig:
  """Config from the shapes and the user's fields.

  Raises:
    ValueError: one line that says what must be given.
  """
  inferred = mar_vae.inferred_fields(shapes, "down_blocks", "resnets", "attentions")
  return registry.make_config("kl_vae", engine.require(fields, inferred))


FAMILY = engine.Family("kl_vae", (), (), infer_config, exported=("state_dict",), fit=fit)
_CLASS, _FILES = "AutoencoderKL", ("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model.bin")


def reads_folder(names: Set[str], config: Mapping[str, Any]) -> bool:
  """Whether a folder is one of the diffusers library with such an autoencoder."""
  return config.get("_class_name") == _CLASS and not names.isdisjoint(_FILES)


def convert_published(
  source: Path, destination: Path, family: engine.Family, fields: dict[str, Any], *, on_write: engine.OnWrite
) -> KLVAEConfig:
  """`engine.convert_file` of a file, or of the one in a folder of the library."""
  if source.is_dir():
    source = next(source / name for name in _FILES if (source / name).is_file())
  return engine.convert_file(source, destination, family, fields, on_write=on_write)


RELEASED = released.of_file(FAMILY, convert=convert_published)._replace(reads_folder=reads_folder)


@command.converter()
def main(**options: Any) -> str:
  """Converts the autoencoder of the diffusers library in SRC to the checkpoint folder DST."""
  return mar_vae.in_words(command.run(FAMILY, **options))


if __name__ == "__main__":
  main()
