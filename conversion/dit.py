"""Converts DiT networks (facebookresearch/DiT, arXiv 2212.09748).

``python -m conversion.dit SRC DST`` reads an official file (``.pt``, or the tensors as ``.safetensors``) and writes a
checkpoint folder; ``--export`` goes back. Averaged weights (``ema``) are read if a training file has them, as the official
sampler does. A file does not state the number of heads. Published widths and depths are recognised; others need a JSON file
with ``num_heads``, given by ``--config``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from jaxspec.models import registry
from jaxspec.models.dit.dit import PUBLISHED_SIZES, DiTConfig

from . import command, engine, released
from .rules import Rule, Shape, conv, norm

RULES = (
  *conv("x_embedder.proj", "x_embedder"),
  Rule("pos_embed"),
  *norm("t_embedder.mlp.{j:0|2}", "t_embedder.mlp_{j:0|2}"),
  Rule("y_embedder.embedding_table.weight", "y_embedder.weight"),
  *norm("blocks.{i}.attn.{layer:qkv|proj}"),
  *norm("blocks.{i}.mlp.{layer:fc1|fc2}"),
  *norm("blocks.{i}.adaLN_modulation.1", "blocks_{i}.adaLN_modulation"),
  *norm("final_layer.linear"),
  *norm("final_layer.adaLN_modulation.1", "final_layer.adaLN_modulation"),
)


def infer_config(shapes: Mapping[str, Shape], fields: dict[str, Any]) -> DiTConfig:
  """Config from the shapes and the user's fields.

  Raises:
    ValueError: one line that says what must be given.
  """
  sizes = lambda pattern, axis, ndim: engine.axis_sizes(shapes, pattern, axis, ndim)  # noqa: E731
  first = lambda pattern, axis, ndim: next(iter(sizes(pattern, axis, ndim)), None)  # noqa: E731
  patch, patches = first(r"x_embedder\.proj\.weight", 2, 4), first(r"pos_embed", 1, 3)
  rows = first(r"y_embedder\.embedding_table\.weight", 0, 2)
  biases = r"(x_embedder\.proj|t_embedder\.mlp\.[02]|blocks\.\d+\.(attn\.proj|mlp\.fc2))\.bias"
  dim = engine.most_common([*sizes(biases, 0, 1), *sizes(r"pos_embed", 2, 3)])
  depth = engine.count_distinct(shapes, r"blocks\.(\d+)\.") or None
  published = {size[:2]: size[2] for size in PUBLISHED_SIZES.values()}
  hidden = engine.most_common(sizes(r"blocks\.\d+\.mlp\.fc1\.(weight|bias)", 0, 2))
  inferred = {
    "latent_size": round(patches**0.5) * patch if patches and patch else None,
    "latent_channels": first(r"x_embedder\.proj\.weight", 1, 4),
    "patch_size": patch,
    "num_classes": rows - 1 if rows else None,
    "dim": dim,
    "num_layers": depth,
    "num_heads": published.get((fields.get("dim", dim), fields.get("num_layers", depth))),
    "mlp_ratio": engine.mlp_ratio(hidden, dim),
  }
  return registry.make_config("dit", engine.require(fields, inferred))


FAMILY = engine.Family("dit", RULES, (), infer_config, prefer_averaged=True, exported=("model", "ema"))
RELEASED = released.of_file(FAMILY)


@command.converter()
@command.averaged_option
def main(ema: bool | None, **options: Any) -> str:
  """Converts the DiT network in SRC to the checkpoint folder DST."""
  config = command.run(FAMILY, convert=functools.partial(engine.convert_file, ema=ema), **options)
  return (
    f"{config.num_layers} layers, width {config.dim}, {config.num_heads} heads, latents of "
    f"{config.latent_size} x {config.latent_size} x {config.latent_channels}, patch size {config.patch_size}"
  )


if __name__ == "__main__":
  main()
