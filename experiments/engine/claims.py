"""Comparisons of the rows of a table: lines below it, and a test for the sentences of the documentation.

Every row is compared with the subject of its table (by default plain decoding) by every metric of its kind (`METRICS`), and
by its correct images with the row that it names (`Row.against`): a lossy row with the exact method that has the same drafts
and keys, so that the pair differs only where the rule acts. The lines name the differences that are significant after Holm's
correction over all of these comparisons.
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
PAIRED = "right"  # the metric of pairs that rows name; distances are all from plain decoding


class Verdict(NamedTuple):
  """Comparison of a row with its reference, by one metric."""

  reference: str  # label
  order: int  # 1 or -1 if the reference is significantly better or worse, else 0
  value: float  # of the reference
  other: float
  p_value: float  # of Holm over the table
  detectable: float  # smallest detectable true difference
  difference: Difference  # reference minus row


def subject_of(document: dict[str, Any]) -> str | None:
  """The label that rows are compared with; None if the table has no such row."""
  subject = document.get("subject") or PLAIN
  return subject if subject in [row["label"] for row in document["rows"]] else None


def compared(labels: Sequence[str], subject: str) -> list[str]:
  """The labels that a subject is compared with, without its variants (labels that begin with its own)."""
  return [label for label in labels if label != subject and (subject == PLAIN or not label.startswith(subject))]


def reference_of(row: dict[str, Any], document: dict[str, Any], metric: str = PAIRED) -> str:
  """The label that a row is compared with by a metric: the row that it names, if the table has it, or the subject."""
  named = row.get("against", "")
  has_it = metric == PAIRED and named in [entry["label"] for entry in document["rows"]]
  return named if has_it else subject_of(document)


def verdicts(document: dict[str, Any]) -> dict[tuple[str, str], Verdict]:
  """Every comparison of a table, by label and metric; rows without a metric are left out."""
  subject, metrics = subject_of(document), METRICS[document["kind"]]
  rows = {row["label"]: row for row in document["rows"]}
  has = lambda label, metric: statistics.metric_of(rows[label], metric) is not None
  pairs = {(label, m): reference_of(rows[label], document, m) for label in compared(list(rows), subject) for m in metrics}
  pairs = {(label, m): base for (label, m), base in pairs.items() if has(label, m) and has(base, m)}
  differences = {(label, m): statistics.difference(rows[base], rows[label], m) for (label, m), base in pairs.items()}
  found = {}
  for (label, metric), corrected in correct_table(differences).items():
    base = pairs[label, metric]
    values = (statistics.metric_of(rows[name], metric).value for name in (base, label))
    order = order_of(corrected, metrics[metric])
    found[label, metric] = Verdict(base, order, *values, corrected.adjusted, corrected.detectable, corrected.difference)
  return found


def paired_with_others(document: dict[str, Any]) -> bool:
  """Whether a row of a table is compared with another row than the subject."""
  return any(reference_of(row, document) != subject_of(document) for row in document["rows"])


def detectable(found: Sequence[Verdict], metric: Metric) -> str:
  """Smallest and largest detectable difference of some comparisons, with the unit."""
  ends = [metric.factor * pick(verdict.detectable for verdict in found) for pick in (min, max)]
  words = [f"{value:,.{0 if ends[1] >= 100 else 1}f}" for value in ends]
  return f"{' to '.join(dict.fromkeys(words))}{metric.unit}"


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
    if own := [verdict for (_, m), verdict in found.items() if m == name]:
      smallest.append(f"{metric.words} {detectable(own, metric)}")
  for (label, name), verdict in found.items():
    if verdict.order:
      metric = METRICS[document["kind"]][name]
      order = "better" if verdict.order < 0 else "worse"
      values = f"{metric.factor * verdict.other:.1f} against {metric.factor * verdict.value:.1f}"
      named = f" of {verdict.reference}" if verdict.reference != subject else ""
      shown.append(f"{label} is {order} by {metric.words}, {values}{named}")
  others = " or the row that is named" * paired_with_others(document)
  head = f"Against {subject}{others}, after Holm's correction over {len(found)} comparisons"
  none = "no difference is significant."
  told = f"{head}: {'; '.join(shown)}. {none.replace('no', 'No other', 1)}" if shown else f"{head}, {none}"
  return [
    f"Smallest true difference detectable with 80 % power, by comparison: {', '.join(smallest)}.",
    told,
  ]
