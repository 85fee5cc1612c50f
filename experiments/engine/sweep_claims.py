"""Comparisons of latency in a sweep over temperature: paired by prompt, with Holm's correction.

At every temperature, every row is compared with the subject of the table, and every adaptive controller with the fixed
threshold at which it starts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from experiments.engine import statistics
from jaxspec.statistics import Corrected, correct_table, paired_difference

Document = dict[str, Any]
FLIPS = 99_999  # of signs; with fewer, corrected p values depend on the draw


class Pair(NamedTuple):
  """Two rows at one temperature."""

  label: str
  other: str
  temperature: str


def pairs(document: Document) -> list[Pair]:
  """All comparisons of a table."""
  rows = document["rows"]
  against = [(row["label"], document["subject"]) for row in rows if row["label"] != document["subject"]]
  fixed = {row["options"]["beta1"]: row["label"] for row in rows if _is_conformal(row) and not row["options"]["eta"]}
  moving = [row for row in rows if _is_conformal(row) and row["options"]["eta"]]
  against += [(row["label"], fixed[row["options"]["beta1"]]) for row in moving if row["options"]["beta1"] in fixed]
  return [Pair(*names, temperature) for names in against for temperature in rows[0]["at"]]


def _is_conformal(row: dict[str, Any]) -> bool:
  return row["options"]["sparsifier"] == "conformal"


def verdicts(document: Document) -> dict[Pair, Corrected]:
  """Every comparison: ms per token of the first row minus the second's, over prompts."""
  cells = {row["label"]: row["at"] for row in document["rows"]}
  of = lambda label, temperature: np.asarray(cells[label][temperature]["by_prompt"])
  differences = {
    pair: paired_difference(
      of(pair.label, pair.temperature), of(pair.other, pair.temperature), resamples=0, permutations=FLIPS
    )
    for pair in pairs(document)
  }
  return correct_table(differences)


def order_of(verdict: Corrected) -> int:
  """-1 or 1 if the first of two is faster or slower after the correction, 0 without a significant difference."""
  if verdict.adjusted >= 1 - statistics.LEVEL:
    return 0
  return 1 if verdict.difference.value > 0 else -1


def words_of(document: Document) -> dict[tuple[str, str], str]:
  """``faster`` or ``slower`` than the subject, by label and temperature, for cells that differ significantly from it."""
  words = {-1: "faster", 1: "slower", 0: ""}
  subject = document["subject"]
  return {
    (pair.label, pair.temperature): words[order_of(verdict)]
    for pair, verdict in verdicts(document).items()
    if pair.other == subject
  }


def sentences(document: Document) -> list[str]:
  """Sentences on the test, the smallest detectable difference, and the effect of adaptive controllers."""
  found = verdicts(document)
  smallest = statistics.median(verdict.detectable for verdict in found.values())
  lines = [
    f"Faster, slower: than {document['subject']}, paired by prompt, after Holm's correction over {len(found)} comparisons. "
    f"Smallest true difference detectable with 80 % power: {smallest:.2g} ms per token (median)."
  ]
  to_fixed = {pair: order_of(verdict) for pair, verdict in found.items() if pair.other != document["subject"]}
  for label in dict.fromkeys(pair.label for pair in to_fixed):
    at = {
      sign: [pair.temperature for pair, order in to_fixed.items() if pair.label == label and order == sign]
      for sign in (-1, 1)
    }
    said = [f"{word} at T = {', '.join(at[sign])}" for sign, word in ((-1, "faster"), (1, "slower")) if at[sign]]
    words = "; ".join(said) or "no difference is significant"
    lines.append(f"{label}, against the fixed threshold of the same beta_1: {words}.")
  return lines
