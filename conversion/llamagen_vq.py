"""Converts LlamaGen's VQ tokenizers (FoundationVision/LlamaGen, arXiv 2406.06525).

``python -m conversion.llamagen_vq SRC DST`` reads an official ``.pt`` file (or the same tensors as ``.safetensors``)
and writes a checkpoint folder; ``--export`` goes back. The shapes determine the config.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import click
import numpy as np

from jaxspec.models import registry
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig

from . import command, engine, released
from .rules import Rule, Shape, conv, norm

_NET = "{net:encoder|decoder}"
_RES = f"{_NET}.conv_blocks.{{level}}.res.{{block}}"
_ATTN = f"{_NET}.conv_blocks.{{level}}.attn.{{block}}"
_MID = f"{_NET}.mid.{{block}}"

RULES = (
  *conv(f"{_NET}.{{part:conv_in|conv_out}}"),
  *conv(f"{_RES}.{{part:conv1|conv2|nin_shortcut}}"),
  *norm(f"{_RES}.{{part:norm1|norm2}}"),
  *conv(f"{_ATTN}.{{part:q|k|v|proj_out}}"),
  *norm(f"{_ATTN}.norm"),
  *conv("encoder.conv_blocks.{level}.downsample.conv"),
  *conv("decoder.conv_blocks.{level}.upsample.conv"),
  *conv(f"{_MID}.{{part:conv1|conv2|q|k|v|proj_out}}"),
  *norm(f"{_MID}.{{part:norm1|norm2|norm}}"),
  *norm(f"{_NET}.norm_out"),
  Rule("quantize.embedding.weight"),
  *conv("{part:quant_conv|post_quant_conv}"),
)

# The rolling window of recent codes is a statistic of training.
_USAGE, _USAGE_SIZE = "quantize.codebook_used", 65536
IGNORED = (r"quantize\.codebook_used",)


def infer_config(shapes: Mapping[str, Shape], fields: dict[str, Any]) -> LlamaGenVQConfig:
  """Config from the shapes and the user's fields.

  Raises:
    ValueError: one line that says what must be given.
  """
  first = lambda pattern, axis, ndim: next(iter(engine.axis_sizes(shapes, pattern, axis, ndim)), None)  # noqa: E731
  base = first(r"encoder\.conv_in\.weight", 0, 4)
  levels = engine.count_distinct(shapes, r"encoder\.conv_blocks\.(\d+)\.")
  channels = [first(rf"encoder\.conv_blocks\.{i}\.res\.0\.conv1\.weight", 0, 4) for i in range(levels)]
  inferred = {
    "base_channels": base,
    "multipliers": engine.multiples(channels, base),
    "num_res_blocks": engine.count_distinct(shapes, r"encoder\.conv_blocks\.0\.res\.(\d+)\.") or None,
    "z_channels": engine.most_common([first(r"encoder\.conv_out\.weight", 0, 4), first(r"post_quant_conv\.weight", 0, 4)]),
    "codebook_size": first(r"quantize\.embedding\.weight", 0, 2),
    "codebook_dim": engine.most_common([first(r"quantize\.embedding\.weight", 1, 2), first(r"quant_conv\.weight", 0, 4)]),
  }
  return registry.make_config("llamagen_vq", engine.require(fields, inferred))


def _buffers(config: LlamaGenVQConfig) -> dict[str, np.ndarray]:
  return {_USAGE: np.zeros(_USAGE_SIZE, np.float32)}


FAMILY = engine.Family("llamagen_vq", RULES, IGNORED, infer_config, _buffers)
RELEASED = released.of_file(FAMILY)


@command.converter()
@click.option("--ema", is_flag=True, help="Read the averaged weights of a training file instead of 'model'.")
def main(ema: bool, **options: Any) -> str:
  """Converts the LlamaGen VQ tokenizer in SRC to the checkpoint folder DST."""
  config = command.run(FAMILY, convert=functools.partial(engine.convert_file, ema=ema), **options)
  return f"{config.factor} x {config.factor} pixels per token, {config.codebook_size} codes of width {config.codebook_dim}"


if __name__ == "__main__":
  main()
