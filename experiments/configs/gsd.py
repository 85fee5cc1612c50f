"""GSD (arXiv 2508.07747) on Jacobi drafts, against exact Jacobi decoding (SJD, arXiv 2410.01699) and naive relaxation.

Distances are not limited where a table does not walk them (``max_distance`` 4 is the largest squared distance of unit
vectors).
"""

from __future__ import annotations

from experiments.engine.quality import Quality
from experiments.engine.rows import row

SJD_FRESH, SJD = row("sjd", recycle="fresh"), row("sjd")
WIDE = row("gsd", group_size=50, max_distance=4.0)

TABLES = {
  "groups": Quality(
    title="GSD over the group size",
    rows=(SJD_FRESH, SJD, *(row("gsd", group_size=size, max_distance=4.0) for size in (3, 10, 25, 50))),
    notes=(
      "Published, on a 7B host with 2,392 tokens an image (here 256): 2.31 times fewer calls for SJD, 3.76 for GSD with "
      "groups of 50.",
    ),
  ),
  "thresholds": Quality(
    title="GSD over its thresholds",
    rows=(
      SJD,
      row("gsd"),
      *(row("gsd", group_size=50, max_distance=distance) for distance in (0.5, 1.0, 4.0)),
      *(WIDE.but(max_gap=gap) for gap in (0.02, 0.5, 1.0)),
    ),
    notes=("The released code fixes a gap of 0.15 and a distance of 0.5, in squared distances of another space.",),
  ),
  "windows": Quality(
    title="Jacobi decoding over the window",
    rows=(
      *(row("sjd", window=window) for window in (3, 7, 15, 31, 63)),
      *(WIDE.but(window=window) for window in (3, 7, 15, 31, 63)),
    ),
    notes=("Published windows have 16 tokens, that is 15 drafts.",),
  ),
  "scaled": Quality(
    title="GSD against a scaled ratio",
    rows=(
      SJD,
      *(row("scaled", factor=factor) for factor in (1.5, 2.0, 5.0)),
      *(WIDE.but(max_gap=gap) for gap in (0.5, 1.0)),
    ),
    notes=("Published: at equal calls, grouping loses less quality than a scaled ratio.",),
  ),
}
