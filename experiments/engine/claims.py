"""Comparisons of the rows of a table: lines below it, and a test for the sentences of the documentation.

Every row is compared with the subject of its table (by default plain decoding) by every metric of its kind (`METRICS`). The
lines name the differences that are significant after Holm's correction over all of these comparisons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.engine import statistics
from jaxspec.statistics import Corrected, Difference, correct_table


class Metric(NamedTuple):
  """Wording of a metric."""

  words: str
  unit: str
  factor: float
  is_loss: bool  # lower is better


# Kind of the documents: metrics by name.
METRICS: dict[str, dict[str, Metric]] = {
  "scenes": {
    "right": Metric("correct images", " points", 100, False),
    "unfaithful": Metric("distance of unconstrained attributes", " points", 100, True),
  },
}
PLAIN = "plain decoding"


class Verdict(NamedTuple):
  """Comparison of the subject of a table with one row, by one metric."""

  order: int  # 1 or -1 if the subject is significantly better or worse, else 0
  value: float  # of the subject
  other: float
  p_value: float  # of Holm over the table
  detectable: float  # smallest detectable true difference
  difference: Difference  # subject minus row


def subject_of(document: dict[str, Any]) -> str | None:
  """The label that rows are compared with; None if the table has no such row."""
  subject = document.get("subject") or PLAIN
  return subject if subject in [row["label"] for row in document["rows"]] else None


def compared(labels: Sequence[str], subject: str) -> list[str]:
  """The labels that a subject is compared with, without its variants (labels that begin with its own)."""
  return [label for label in labels if label != subject and (subject == PLAIN or not label.startswith(subject))]


def verdicts(document: dict[str, Any]) -> dict[tuple[str, str], Verdict]:
  """Every comparison of a table, by label and metric; rows without a metric are left out."""
  subject, metrics = subject_of(document), METRICS[document["kind"]]
  rows = {row["label"]: row for row in document["rows"]}
  others, own = compared(list(rows), subject), rows[subject]
  has = lambda label, metric: statistics.metric_of(rows[label], metric) is not None
  pairs = [(label, m) for label in others for m in metrics if has(label, m) and has(subject, m)]
  differences = {(label, m): statistics.difference(own, rows[label], m) for label, m in pairs}
  found = {}
  for (label, metric), corrected in correct_table(differences).items():
    values = (statistics.metric_of(rows[name], metric).value for name in (subject, label))
    order = order_of(corrected, metrics[metric])
    found[label, metric] = Verdict(order, *values, corrected.adjusted, corrected.detectable, corrected.difference)
  return found


def order_of(corrected: Corrected, metric: Metric) -> int:
  """1 or -1 if the first of two is better or worse after the correction, 0 without a significant difference."""
  if corrected.adjusted >= 1 - statistics.LEVEL:
    return 0
  return 1 if (-1 if metric.is_loss else 1) * corrected.difference.value > 0 else -1


def sentences(document: dict[str, Any]) -> list[str]:
  """The smallest detectable differences, and the significant ones."""
  if (subject := subject_of(document)) is None:
    return []
  found = verdicts(document)
  smallest, shown = [], []
  for name, metric in METRICS[document["kind"]].items():
    if detected := [verdict.detectable for (_, m), verdict in found.items() if m == name]:
      detectable = metric.factor * statistics.median(detected)
      smallest.append(f"{metric.words} {detectable:,.{0 if detectable >= 100 else 1}f}{metric.unit}")
  for (label, name), verdict in found.items():
    if verdict.order:
      metric = METRICS[document["kind"]][name]
      order = "better" if verdict.order < 0 else "worse"
      values = f"{metric.factor * verdict.other:.1f} against {metric.factor * verdict.value:.1f}"
      shown.append(f"{label} is {order} by {metric.words}, {values}")
  head = f"Against {subject}, after Holm's correction over {len(found)} comparisons"
  none = "no difference is significant."
  told = f"{head}: {'; '.join(shown)}. {none.replace('no', 'No other', 1)}" if shown else f"{head}, {none}"
  return [
    f"Smallest true difference from {subject} detectable with 80 % power: {', '.join(smallest)}.",
    told,
  ]
