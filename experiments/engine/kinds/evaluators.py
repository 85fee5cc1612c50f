"""The table about the judges of images."""

from __future__ import annotations

from experiments.engine import statistics
from experiments.engine.cells import SMALLEST, Column, Document, Kind, RowDocument, interval, percent
from jaxspec.metrics import statistics as library

CONDITIONS = {"white": "on white", "painted": "painted", "reconstructed": "reconstructed"}
HELD_OUT = ("val_concept", "val_style")


def evaluator_rows(document: Document) -> list[RowDocument]:
  """The held-out scores of the judges of images."""
  held_out = {part: entry["held_out"] for part, entry in document["parts"].items()}
  counts = document["images"]
  rows = []

  def add(part: str, score: str, condition: str, name: str, baseline: str) -> None:
    found = [statistics.wilson_of(held_out[part][condition][split][name], counts[split]) for split in HELD_OUT]
    # First-of-32 scores are means of probabilities, not shares of images.
    cells = [interval(f, 100, 1) if name != "first_of_32" else percent(f.value, 1) for f in found]
    rows.append({"cells": [f"`{part}`", score, CONDITIONS[condition], *cells, baseline]})

  for condition in CONDITIONS:
    if "concept" in held_out:
      scores = held_out["concept"][condition]["val_concept"]
      raw = held_out["concept"]["raw_pixels"][condition]["val_concept"]["top1"]
      score = f"the same concept in another style, first of {round(scores['candidates'])} unseen concepts"
      add("concept", score, condition, "top1", f"{percent(raw, 1)} (raw pixels)")
  for name, title in (("style_accuracy", "style of 3"), ("group_accuracy", "group of 8")):
    for condition in CONDITIONS:
      if "classifier" in held_out:
        largest = percent(held_out["classifier"][condition]["val_concept"]["largest_group"], 1)
        add("classifier", title, condition, name, f"{largest} (largest group)" if name == "group_accuracy" else "33")
  for condition in CONDITIONS:
    if "caption" in held_out:
      add("caption", "own label, first of 32", condition, "first_of_32", "3.1 (chance)")
  return rows


def evaluator_columns(document: Document) -> list[Column]:
  head = ("evaluator", "score", "images", "unseen concepts, %", "unseen styles, %", "baseline (unseen concepts), %")
  return [Column(words, lambda row, document, index=index: row["cells"][index]) for index, words in enumerate(head)]


def evaluator_intro(document: Document) -> str:
  counts = document["images"]
  return (
    f"{counts['val_concept']} images of unseen concepts, {counts['val_style']} of unseen styles. Brackets: Wilson's 95 % "
    "intervals; scores that are means of probabilities have none."
  )


def evaluator_below(document: Document) -> list[str]:
  smallest = library.detectable_share(0.5, document["images"]["val_concept"])
  return [f"{SMALLEST} {100 * smallest:.2g} points of a share of one half, between two sets of unseen concepts."]


KINDS: dict[str, Kind] = {
  "evaluators": Kind(evaluator_columns, evaluator_intro, evaluator_below, evaluator_rows),
}
