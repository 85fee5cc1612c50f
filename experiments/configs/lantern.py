"""LANTERN (arXiv 2410.03355) and LANTERN++ (arXiv 2502.06352) on chains and on the trees of EAGLE-2 (arXiv 2406.16858).

The codebook has 512 codes, that of the papers' hosts 16,384: ten neighbours here are a wider circle.
"""

from __future__ import annotations

from experiments.engine.quality import Quality
from experiments.engine.rows import Row, row

CHAIN = row("speculative")


def trees(method: str) -> list[Row]:
  """Three sizes of trees."""
  shapes = ((4, 2, 2), (8, 4, 3), (16, 4, 3))
  return [row(method, tree_size=size, tree_top_k=top_k, tree_depth=depth) for size, top_k, depth in shapes]


TABLES = {
  "factors": Quality(
    title="LANTERN++ over lambda",
    rows=(CHAIN, *(row("lantern", factor=factor) for factor in (1.5, 2.0, 3.0, 5.0, 10.0))),
    notes=("Published settings are (k 10, lambda 5), (5, 10) and (5, 20), on trees.",),
  ),
  "neighbours": Quality(
    title="LANTERN++ over k (lambda 5)",
    rows=(CHAIN, *(row("lantern", num_neighbours=k, factor=5.0) for k in (3, 10, 50))),
  ),
  "trees": Quality(
    title="EAGLE-2 and LANTERN over the tree",
    rows=(*trees("eagle"), *trees("eagle-lantern")),
    notes=("Published trees of 60 nodes are for hosts whose pass costs the same for 60 tokens as for one.",),
  ),
}
