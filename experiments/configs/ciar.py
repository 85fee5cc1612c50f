"""CIAR (arXiv 2603.25463): an image over networks, and the cost of its score. Its tables of images are those of
`experiments.configs.scenes_ciar`."""

from __future__ import annotations

from experiments.bench.scores import Scores
from experiments.engine.networks import Networks
from experiments.engine.rows import CLOSED, OPEN, matched, row
from experiments.engine.scene_images import Scenes

RATE = 0.3

TABLES = {
  "networks": Networks(
    title="An image over a network",
    draft="inter-2",
    scorer=Scenes(64),
    rows=(
      row("ciar", "cloud alone, called for every token", tau=OPEN, target_prefix=1.0),
      row("ciar", "every token verified", tau=CLOSED),
      row("ciar", "every token verified, LANTERN++", tau=CLOSED, verify="lantern"),
      matched("CIAR", RATE, score="interval", gamma=1),
      matched("CIAR, ids alone", RATE, score="interval", verify="greedy", gamma=1),
    ),
    notes=(
      "Published (ms, LANTERN and CIAR): 5G 16023 and 6794, 4G 33881 and 13035, WiFi 20216 and 8411. These sums have no "
      "payload in them, and their call ratio of 0.38 is not that of the paper's main table.",
    ),
  ),
  "solvers": Scores(
    title="Time of a score",
    notes=(
      "The paper measures a discrete baseline by enumeration of solutions, whose cost grows exponentially; that cost "
      "belongs to the search (`generic`), not to the quantity: water-filling finds the same largest entropy in time linear "
      "in k.",
    ),
  ),
}
