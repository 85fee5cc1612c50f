"""LANTERN++ on a chain over its bound lambda (arXiv 2502.06352, table of k and lambda) against plain decoding.

Command::

    python -m experiments.lantern_factors

Expected shape, as published: calls fall as the bound is relaxed, and quality with them. The paper's settings are (k 10,
lambda 5), (5, 10) and (5, 20), on trees; here the draft is the bundle's chain.
"""

from __future__ import annotations

from experiments.method_quality import QualityRun, Setting
from experiments.quality_table import main

FACTORS = (1.5, 2.0, 3.0, 5.0, 10.0)


def get_config(arg: str = "") -> QualityRun:
  """``arg`` is not read."""
  del arg
  factors = tuple(Setting.of("lantern", factor=factor) for factor in FACTORS)
  return QualityRun("lantern_factors", "LANTERN++ over lambda", (Setting.of("speculative"), *factors))


if __name__ == "__main__":
  main(get_config)
