"""What a table says about the order of its rows: lines below it, and a test for the sentences of the documentation.

Every row is compared with the subject of its table, plain decoding where the table names none, by every metric of `METRICS`.
Differences that stay after Holm's correction over all of these comparisons are named; the others are not told apart.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments.engine import statistics
from jaxspec.metrics.statistics import correct_table

# Metric: words, unit, factor, whether less is better.
METRICS = {
  statistics.KID: ("KID to real", "", 100, True),
  "kid_plain": ("KID to plain", "", 100, True),
  "prompt_retrieval": ("prompt retrieval", " points", 100, False),
  "attribute_accuracy": ("attributes", " points", 100, False),
}
PLAIN = "plain decoding"


class Verdict(NamedTuple):
  """The subject of a table against one row, by one metric."""

  order: int  # 1 and -1 where the subject is better or worse, 0 where the table does not tell them apart
  value: float  # of the subject
  other: float
  p_value: float  # of Holm over the table
  detectable: float  # smallest true difference that would have shown


def subject_of(document: dict[str, Any]) -> str | None:
  """The label that rows are compared with, None where the table has no such row."""
  subject = document.get("subject") or PLAIN
  return subject if subject in [row["label"] for row in document["rows"]] else None


def verdicts(document: dict[str, Any]) -> dict[tuple[str, str], Verdict]:
  """Every comparison of a table, by label and metric; variants of the subject (labels that begin with its own) are none."""
  subject = subject_of(document)
  rows = {row["label"]: row for row in document["rows"]}
  others = [label for label in rows if label != subject and (subject == PLAIN or not label.startswith(subject))]
  own = rows[subject]
  differences = {(label, m): statistics.difference(own, rows[label], m) for label in others for m in METRICS}
  found = {}
  for (label, metric), corrected in correct_table(differences).items():
    sign = -1 if METRICS[metric][3] else 1
    order = 0 if corrected.adjusted >= 1 - statistics.LEVEL else 1 if sign * corrected.difference.value > 0 else -1
    values = (statistics.metric_of(rows[name], metric).value for name in (subject, label))
    found[label, metric] = Verdict(order, *values, corrected.adjusted, corrected.detectable)
  return found


def sentences(document: dict[str, Any]) -> list[str]:
  """The smallest differences that the comparisons could have shown, and those that did show."""
  if (subject := subject_of(document)) is None:
    return []
  found = verdicts(document)
  smallest, shown = [], []
  for metric, (words, unit, scale, _) in METRICS.items():
    detectable = statistics.median(verdict.detectable for (_, m), verdict in found.items() if m == metric)
    smallest.append(f"{words} {scale * detectable:,.{0 if scale * detectable >= 100 else 1}f}{unit}")
  for (label, metric), verdict in found.items():
    if verdict.order:
      words, _, scale, _ = METRICS[metric]
      order = "better" if verdict.order < 0 else "worse"
      shown.append(f"{label} is {order} by {words}, {scale * verdict.other:.1f} against {scale * verdict.value:.1f}")
  head = f"Against {subject}, after Holm's correction over {len(found)} comparisons"
  told = f"{head}: {'; '.join(shown)}. No other difference shows." if shown else f"{head}, no difference shows."
  return [
    f"Smallest true difference from {subject} that the table would have shown (80 % power): {', '.join(smallest)}.",
    told,
  ]
