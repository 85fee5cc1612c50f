"""LANTERN++ on a chain over its number of neighbours k (arXiv 2410.03355 and 2502.06352).

Command::

    python -m experiments.lantern_neighbours

Expected: k matters only while the bound lambda leaves room for more neighbours; the codebook has 512 codes, that of the
papers' hosts 16,384, so that 10 codes here are a wider circle.
"""

from __future__ import annotations

from experiments.method_quality import QualityRun, Setting
from experiments.quality_table import main

NEIGHBOURS = (3, 10, 50)


def get_config(arg: str = "") -> QualityRun:
  """``arg`` is the bound lambda, 5 by default."""
  factor = float(arg or 5.0)
  walk = tuple(Setting.of("lantern", num_neighbours=k, factor=factor) for k in NEIGHBOURS)
  return QualityRun("lantern_neighbours", f"LANTERN++ over k (lambda {factor:g})", (Setting.of("speculative"), *walk))


if __name__ == "__main__":
  main(get_config)
