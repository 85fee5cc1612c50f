"""Converts VAR transformers (FoundationVision/VAR, arXiv 2404.02905) and those of CoDe, which are VAR networks too.

``python -m conversion.var SRC DST`` reads an official ``.pth`` file (or the same tensors as ``.safetensors``) and writes a
checkpoint folder; ``--export`` goes back. A file states neither the sides of the maps nor, without normalised queries and
keys, the number of heads. The published lists of sides are recognised by the number of positions. Other networks need a JSON
file with ``sides`` and ``num_heads``, given by ``--config``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxspec.models import registry
from jaxspec.models.var.var import VARConfig, scales

from . import command, engine, released
from .rules import Rule, Shape, norm

_BLOCK = "blocks.{i}"

RULES = (
  Rule("{table:pos_start|pos_1LC}"),
  Rule("{table:class_emb|lvl_embed}.weight"),
  *norm("{layer:word_embed|head}"),
  *norm("shared_ada_lin.1", "shared_ada_lin"),
  *norm("head_nm.ada_lin.1", "head_nm.ada_lin"),
  *norm(f"{_BLOCK}.ada_lin.1", "blocks_{i}.ada_lin"),
  Rule(f"{_BLOCK}.ada_gss"),
  Rule(f"{_BLOCK}.attn.mat_qkv.weight", "blocks_{i}.attn.mat_qkv"),
  Rule(f"{_BLOCK}.attn.{{leaf:q_bias|v_bias|scale_mul_1H11}}"),
  *norm(f"{_BLOCK}.attn.proj"),
  *norm(f"{_BLOCK}.ffn.{{layer:fc1|fc2}}"),
)

# Tables that follow from the sides, and the bias that keys do not have.
IGNORED = (r"lvl_1L", r"attn_bias_for_masking", r"blocks\.\d+\.attn\.zero_k_bias")


def infer_config(shapes: Mapping[str, Shape], fields: dict[str, Any]) -> VARConfig:
  """Config from the shapes and the user's fields.

  Raises:
    ValueError: one line that says what must be given.
  """
  sizes = lambda pattern, axis, ndim: engine.axis_sizes(shapes, pattern, axis, ndim)  # noqa: E731
  first = lambda pattern, axis, ndim: next(iter(sizes(pattern, axis, ndim)), None)  # noqa: E731
  depth = engine.count_distinct(shapes, r"blocks\.(\d+)\.") or None
  dim = engine.most_common(
    [
      *sizes(r"(class_emb|lvl_embed|head)\.weight", 1, 2),
      *sizes(r"blocks\.\d+\.attn\.(mat_qkv|proj)\.weight", 1, 2),
      *sizes(r"(pos_1LC|pos_start)", 2, 3),
    ]
  )
  rows = first(r"class_emb\.weight", 0, 2)
  hidden = engine.most_common(sizes(r"blocks\.\d+\.ffn\.fc1\.(weight|bias)", 0, 2))
  heads = engine.most_common(sizes(r"blocks\.\d+\.attn\.scale_mul_1H11", 1, 4))
  published = {scales.starts(sides)[-1]: sides for sides in scales.PUBLISHED_SIDES.values()}
  inferred = {
    "depth": depth,
    "dim": dim,
    # Published heads have 64 channels, as many heads as blocks.
    "num_heads": heads or (depth if depth and dim == 64 * depth else None),
    "mlp_ratio": engine.mlp_ratio(hidden, dim),
    "vocab_size": engine.most_common([first(r"head\.weight", 0, 2), first(r"head\.bias", 0, 1)]),
    "code_dim": first(r"word_embed\.weight", 1, 2),
    "num_classes": None if rows is None else rows - 1,
    "sides": published.get(first(r"pos_1LC", 1, 3) or 0),
    "qk_norm": any(name.endswith(".scale_mul_1H11") for name in shapes),
    "shared_adaln": any(name.startswith("shared_ada_lin.") for name in shapes),
  }
  return registry.make_config("var", engine.require(fields, inferred))


def buffers(config: VARConfig) -> dict[str, np.ndarray]:
  """What the official loader demands besides: scale of every position, the mask of training, a bias of zeros."""
  scale = scales.scale_of_position(config.sides)
  mask = np.where(scale[:, None] >= scale[None], np.float32(0), np.float32(-np.inf))
  zeros = {f"blocks.{i}.attn.zero_k_bias": np.zeros(config.dim, np.float32) for i in range(config.depth)}
  return {"lvl_1L": scale[None].astype(np.int64), "attn_bias_for_masking": mask[None, None]} | zeros


FAMILY = engine.Family("var", RULES, IGNORED, infer_config, buffers, exported=(), wrappers=("var_wo_ddp",))
RELEASED = released.of_file(FAMILY)


@command.converter()
def main(**options: Any) -> str:
  """Converts the VAR transformer in SRC to the checkpoint folder DST."""
  config = command.run(FAMILY, **options)
  return (
    f"{config.depth} layers, width {config.dim}, {config.num_heads} heads, "
    f"{config.num_tokens} tokens in {len(config.sides)} scales up to {config.sides[-1]} x {config.sides[-1]}"
  )


if __name__ == "__main__":
  main()
