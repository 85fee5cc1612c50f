"""Every method at its recommended setting over plain decoding.

Published, on GPUs and hosts of billions of weights: SJD 2.2x fewer calls and GSD 3.8x (arXiv 2508.07747); LANTERN 1.7x and
LANTERN++ 2.6x in latency (arXiv 2410.03355, 2502.06352). A CPU pays for every token that it verifies.
"""

from __future__ import annotations

from experiments.engine.race import Heat, Race
from experiments.engine.rows import PLAIN, row

RECOMMENDED = (
  PLAIN.but(label="plain decoding"),
  row("speculative", "speculative", draft="draft-1"),
  row("sjd", "sjd-fresh", recycle="fresh"),
  row("sjd", "sjd"),
  row("gsd", "gsd"),
  row("lantern", "lantern", draft="draft-1", factor=2.0),
  row("eagle-chain", "eagle-chain"),
  row("eagle", "eagle"),
  row("eagle-lantern", "eagle-lantern", factor=2.0),
)

TABLES = {
  "methods": Race(
    title="Speed over plain decoding",
    heats=(Heat(batch=1, turns=8, rows=RECOMMENDED), Heat(batch=8, turns=8, rows=RECOMMENDED)),
  ),
}
