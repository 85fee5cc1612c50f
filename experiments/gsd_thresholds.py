"""Thresholds of GSD: delta (``max_gap``, of probability) and d (``max_distance``, between codes) of its Algorithm 2.

Command::

    python -m experiments.gsd_thresholds

The paper fixes them (released code: 0.15 and 0.5 with G 14, in squared distances of another space). Expected: without either
limit a group of 50 takes whatever stands next in rank, and acceptance rises at the price of the law; with tight ones GSD is
SJD.
"""

from __future__ import annotations

from experiments.method_quality import SJD, QualityRun, Setting
from experiments.quality_table import main

GAPS = (0.02, 0.5, 1.0)
DISTANCES = (0.5, 1.0, 4.0)  # squared, of unit vectors: 4 is no limit


def get_config(arg: str = "") -> QualityRun:
  """``arg`` is not read."""
  del arg
  distances = tuple(Setting.of("gsd", group_size=50, max_distance=distance) for distance in DISTANCES)
  gaps = tuple(Setting.of("gsd", group_size=50, max_distance=4.0, max_gap=gap) for gap in GAPS)
  return QualityRun("gsd_thresholds", "GSD over its thresholds", (SJD, Setting.of("gsd"), *distances, *gaps))


if __name__ == "__main__":
  main(get_config)
