"""Group size of GSD (GSD, arXiv 2508.07747, main table and ablation over G) against plain decoding and SJD.

Command::

    python -m experiments.gsd_groups

Expected shape, as published: calls fall from plain decoding to SJD to GSD, and further with G, while the quality of GSD
stays near that of plain decoding for small groups. The paper reports 2.31x fewer calls for SJD and 3.76x for GSD (G = 50)
on a 7B host with 2,392 tokens; a picture here has 256. Distances are not limited here (``max_distance`` 4 is the largest
squared distance of unit vectors), so that G is what decides; ``experiments.gsd_thresholds`` walks the limits.
"""

from __future__ import annotations

from experiments.method_quality import SJD, SJD_FRESH, QualityRun, Setting
from experiments.quality_table import main

SIZES = (3, 10, 25, 50)


def get_config(arg: str = "") -> QualityRun:
  """``arg`` is not read."""
  del arg
  sizes = tuple(Setting.of("gsd", group_size=size, max_distance=4.0) for size in SIZES)
  return QualityRun("gsd_groups", "GSD over the group size", (SJD_FRESH, SJD, *sizes))


if __name__ == "__main__":
  main(get_config)
