"""Tree size of EAGLE-2 and of LANTERN on its trees (EAGLE-2, arXiv 2406.16858; LANTERN, arXiv 2410.03355).

Command::

    python -m experiments.lantern_trees

Expected: larger trees save calls, less and less; every node is a position that the target reads. The published trees of 60
nodes are for hosts whose pass costs the same for 60 tokens as for one.
"""

from __future__ import annotations

from experiments.method_quality import QualityRun, Setting
from experiments.quality_table import main

SIZES = (4, 8, 16)


def get_config(arg: str = "") -> QualityRun:
  """``arg`` is not read."""
  del arg
  shape = lambda size: dict(tree_size=size, tree_top_k=2 if size == 4 else 4, tree_depth=2 if size == 4 else 3)
  exact = tuple(Setting.of("eagle", **shape(size)) for size in SIZES)
  relaxed = tuple(Setting.of("eagle-lantern", **shape(size)) for size in SIZES)
  return QualityRun("lantern_trees", "EAGLE-2 and LANTERN over the tree", exact + relaxed)


if __name__ == "__main__":
  main(get_config)
