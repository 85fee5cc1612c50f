"""Window length of Jacobi decoding, exact and grouped (SJD, arXiv 2410.01699, and GSD, arXiv 2508.07747: windows of 16).

Command::

    python -m experiments.gsd_windows

Expected: calls fall with the window and soon stop falling, since a draft far ahead was made behind a prefix that did not
stay; a longer window costs arithmetic that a CPU pays for.
"""

from __future__ import annotations

from experiments.method_quality import QualityRun, Setting
from experiments.quality_table import main

WINDOWS = (3, 7, 15, 31, 63)


def get_config(arg: str = "") -> QualityRun:
  """``arg`` is not read."""
  del arg
  exact = tuple(Setting.of("sjd", window=window) for window in WINDOWS)
  grouped = tuple(Setting.of("gsd", group_size=50, max_distance=4.0, window=window) for window in WINDOWS)
  return QualityRun("gsd_windows", "Jacobi decoding over the window", exact + grouped)


if __name__ == "__main__":
  main(get_config)
