"""GSD against naive relaxation: the acceptance ratio times a factor, on the same Jacobi drafts (GSD, arXiv 2508.07747).

Command::

    python -m experiments.gsd_scaled

Expected, as published: at equal calls, grouping loses less quality than a scaled ratio, which keeps any token a little more
often, near the target's choice or not.
"""

from __future__ import annotations

from experiments.method_quality import SJD, QualityRun, Setting
from experiments.quality_table import main

FACTORS = (1.5, 2.0, 5.0)


def get_config(arg: str = "") -> QualityRun:
  """``arg`` is not read."""
  del arg
  scaled = tuple(Setting.of("scaled", factor=factor) for factor in FACTORS)
  grouped = tuple(Setting.of("gsd", group_size=50, max_distance=4.0, max_gap=gap) for gap in (0.5, 1.0))
  return QualityRun("gsd_scaled", "GSD against a scaled ratio", (SJD, *scaled, *grouped))


if __name__ == "__main__":
  main(get_config)
