"""Converts VAR's image tokenizer (FoundationVision/VAR, arXiv 2404.02905).

``python -m conversion.var_vae SRC DST`` reads the official ``.pth`` file (or the same tensors as ``.safetensors``) and
writes a checkpoint folder; ``--export`` goes back. Nothing in the file states the sides of the maps: the released one serves
several lists. ``--image-size`` names a published list, 256 by default; others are ``sides`` in a JSON file, given by
``--config``. Norms have 32 groups as published, or as many as channels of the first level if that is fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
import numpy as np

from jaxspec.models import registry
from jaxspec.models.nn import scales
from jaxspec.models.tokenizers.var_vae import VARVAEConfig

from . import command, engine, mar_vae, released
from .rules import Rule, Shape, conv

RULES = (
  *mar_vae.RULES,
  *conv("{way:encoder.down|decoder.up}.{level}.attn.{block}.qkv"),
  *conv("{net:encoder|decoder}.mid.attn_1.qkv"),
  Rule("quantize.embedding.weight"),
  *conv("quantize.quant_resi.qresi_ls.{i}"),
)

# How often codes were used of late, a statistic of training.
_USAGE = "quantize.ema_vocab_hit_SV"
IGNORED = (r"quantize\.ema_vocab_hit_SV",)


def infer_config(shapes: Mapping[str, Shape], fields: dict[str, Any]) -> VARVAEConfig:
  """Config from the shapes and the user's fields.

  Raises:
    ValueError: one line that says what must be given.
  """
  inferred = mar_vae.inferred_fields(shapes)
  first = lambda pattern, axis, ndim: next(iter(engine.axis_sizes(shapes, pattern, axis, ndim)), None)  # noqa: E731
  widths = [inferred.pop("latent_channels"), inferred.pop("z_channels"), first(r"quantize\.embedding\.weight", 1, 2)]
  del inferred["attention_levels"]  # always the smallest one
  inferred |= {
    "codebook_size": first(r"quantize\.embedding\.weight", 0, 2),
    "codebook_dim": engine.most_common(widths),
    "num_phis": engine.count_distinct(shapes, r"quantize\.quant_resi\.qresi_ls\.(\d+)\.") or None,
  }
  return registry.make_config("var_vae", engine.require(fields, inferred))


def buffers(config: VARVAEConfig) -> dict[str, np.ndarray]:
  """What the official loader demands besides: how often codes were used at every scale."""
  return {_USAGE: np.zeros((len(config.sides), config.codebook_size), np.float32)}


FAMILY = engine.Family("var_vae", RULES, IGNORED, infer_config, buffers, exported=(), wrappers=("vae_local",))
RELEASED = released.of_file(FAMILY)


@command.converter()
@click.option(
  "--image-size",
  type=click.Choice(tuple(map(str, scales.PUBLISHED_SIDES))),
  help="Side of the images in pixels, for a published list of scales.  [default: 256]",
)
def main(image_size: str | None, **options: Any) -> str:
  """Converts the VAR image tokenizer in SRC to the checkpoint folder DST."""

  def own(fields: dict[str, Any]) -> dict[str, Any]:
    sides = {} if image_size is None else {"sides": scales.PUBLISHED_SIDES[int(image_size)]}
    if sides and "sides" in fields:
      raise ValueError("Must have either --image-size or sides in --config, we instead got both")
    return fields | sides

  config = command.run(FAMILY, own=own, **options)
  return (
    f"{len(config.sides)} scales up to {config.sides[-1]} x {config.sides[-1]} tokens, "
    f"{config.codebook_size} codes of width {config.codebook_dim}, images of {config.image_size} pixels"
  )


if __name__ == "__main__":
  main()
