"""Published orders of methods, tested with the tables of scenes and of digits.

Each is a comparison of two rows, or of two settings of a training over its seeds, with its difference and interval; p values
are corrected over all orders (Holm).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments.engine import seeds, statistics
from experiments.engine.cells import interval, markdown
from jaxspec.statistics import Corrected, Difference, correct_table, paired_difference

Document = dict[str, Any]
CIAR, GSD, LANTERN = "arXiv 2603.25463", "arXiv 2508.07747", "arXiv 2502.06352"


class Order(NamedTuple):
  """A published order.

  Attributes:
    text: in words.
    table: document that has both rows.
    better, worse: labels of rows, or settings of a training (`Row.setting`).
    metric: a share of images (``right``, ``class_accuracy``), or ``calls`` of the target, of which fewer are better.
  """

  text: str
  source: str
  table: str
  better: str
  worse: str
  metric: str = "right"


def _rival(name: str) -> Order:
  return Order(f"CIAR's score is better than {name} at equal calls", CIAR, "scenes_ciar_comparison_30", "CIAR", name)


ORDERS = (
  *(_rival(name) for name in ("Entropy", "max-prob", "Random", "CoDe(0.3)")),
  *(
    Order(f"CIAR at 30 % calls is better than {name}", CIAR, "scenes_ciar_comparison_30", "CIAR", label)
    for name, label in (("LANTERN", "LANTERN, delta 0.2, k 1,000"), ("EAGLE-2", "EAGLE-2"))
  ),
  Order("CIAR's score is better than Entropy where codes have near-synonyms", CIAR, "lifted_ciar_30", "CIAR, radius 0.5",
        "Entropy"),
  Order("continuous intervals are better than discrete sets", CIAR, "scenes_ciar_discrete", "CIAR", "k 50, upper"),
  Order("a threshold with more calls is better", CIAR, "scenes_ciar_tau", "CIAR at 40 %", "CIAR at 20 %"),
  Order("CoDe is better with a larger share", CIAR, "scenes_ciar_code", "CoDe(0.3)", "CoDe(0.1)"),
  Order("a prefix of 6 % is better than none", CIAR, "scenes_ciar_prefix", "prefix 0.06", "prefix 0"),
  Order("three layers are better than one", CIAR, "scenes_ciar_depth", "3 layers", "1 layer"),
  Order("two heads are better than one", CIAR, "scenes_ciar_heads", "2 heads, ensemble", "1 head"),
  Order("the upper bound's loss is needed", CIAR, "scenes_ciar_loss", "the whole loss", "without upper"),
  Order("anchors are needed", CIAR, "scenes_ciar_loss", "the whole loss", "without anchor"),
  Order("Inter-Enhance helps", CIAR, "scenes_ciar_inject", "on", "off"),
  Order("on scales of VAR, CoDe is better than CIAR", CIAR, "hosts_table10_var", "CoDe, 2 of 6 scales",
        "CIAR at 30 % calls", "class_accuracy"),
  Order("on denoising steps, CIAR is better than 25 steps", CIAR, "hosts_table10_dit", "CIAR at 40 % calls",
        "target, 25 steps", "class_accuracy"),
  Order("on denoising steps, CIAR with this project's weighted score is better than 25 of DDIM", CIAR, "hosts_further_dit",
        "CIAR, weighted score, at 40 % calls", "target, 25 steps of DDIM", "class_accuracy"),
  Order("larger groups take fewer calls", GSD, "scenes_gsd_groups", "GSD, G 50", "GSD, G 3", "calls"),
  Order("groups that follow the distribution take fewer calls than fixed ones", GSD, "scenes_gsd_rivals",
        "GSD, as published, G 50, any distance", "static groups of 50", "calls"),
  Order("at equal calls, GSD loses less than a scaled ratio", GSD, "scenes_gsd_rivals", "GSD, G 50", "scaled by 2"),
  Order("GSD takes fewer calls than SJD", GSD, "scenes_gsd_rivals",
        "GSD, as published, G 50, any distance", "SJD, fresh", "calls"),
  Order("a larger lambda takes fewer calls", LANTERN, "scenes_lantern_factors", "LANTERN++, lambda 10",
        "LANTERN++, lambda 1.5", "calls"),
  Order("a larger lambda loses quality", LANTERN, "scenes_lantern_factors", "LANTERN++, lambda 1.5",
        "LANTERN++, lambda 20"),
)  # fmt: skip


def difference(order: Order, document: Document) -> Difference:
  """Advantage of the better one; for calls, the number saved per image.

  Raises:
    ValueError: for a row that the table lacks.
  """
  pair = order.better, order.worse
  if set(pair) <= seeds.settings_of(document).keys():
    return seeds.difference_of(document, *pair)
  rows = {row["label"]: row for row in document["rows"]}
  if missing := [label for label in pair if label not in rows]:
    raise ValueError(f"Must have rows of {order.table}, we instead got {missing[0]!r}")
  better, worse = (rows[label] for label in pair)
  if order.metric in statistics.SHARES:
    return statistics.difference(better, worse, order.metric)
  calls = [np.array(row["per_image"]["target_calls"], float) for row in (worse, better)]
  return paired_difference(*calls)


def verdicts(documents: Mapping[str, Document]) -> dict[Order, Corrected]:
  """The orders with existing tables, corrected together."""
  there = [order for order in ORDERS if order.table in documents]
  return correct_table({order: difference(order, documents[order.table]) for order in there})


def table(documents: Mapping[str, Document]) -> str:
  """All orders with their tests; those without a table are listed as not measured."""
  found = verdicts(documents)
  head = ("published claim", "source", "result here", "difference", "p", "detectable with 80 % power")
  rows = [[order.text, order.source, *_cells(order, found.get(order))] for order in ORDERS]
  return markdown(head, rows) + "\n"


def _cells(order: Order, found: Corrected | None) -> list[str]:
  if found is None:
    return ["not measured", "", "", ""]
  factor, unit = scale_of(order)
  one = found.difference
  shown = f"{interval((one.value, one.low, one.high), factor, 1, sign='+')} {unit}"
  return [outcome(found), shown, f"{found.adjusted:.2g}", f"{factor * found.detectable:.1f} {unit}"]


def scale_of(order: Order) -> tuple[float, str]:
  """Factor and unit of a difference."""
  return (100, "points") if order.metric in statistics.SHARES else (1, "calls an image")


def outcome(found: Corrected) -> str:
  """In words, after the correction over all orders."""
  if found.adjusted >= 1 - statistics.LEVEL:
    return "not significant"
  return "holds" if found.difference.value > 0 else "**reversed**"
