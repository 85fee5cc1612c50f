"""Tables about parts of the library: scores, eager steps, parity with the official code."""

from __future__ import annotations

from experiments.engine.cells import Column, Document, Kind, RowDocument


def score_rows(document: Document) -> list[RowDocument]:
  names = dict.fromkeys(row["score"] for row in document["rows"])
  return [{"label": name, "at": {row["vocab"]: row for row in document["rows"] if row["score"] == name}} for name in names]


def score_columns(document: Document) -> list[Column]:
  def cell(row: RowDocument, document: Document, vocab: int) -> str:
    at = row["at"][vocab]
    return f"{1e6 * at['median']:.0f} [{1e6 * at['low']:.0f}, {1e6 * at['high']:.0f}]"

  vocabularies = dict.fromkeys(row["vocab"] for row in document["rows"])
  score = Column("score", lambda row, document: row["label"])
  return [score] + [Column(f"{v} codes", lambda row, document, v=v: cell(row, document, v)) for v in vocabularies]


def score_intro(document: Document) -> str:
  return (
    f"microseconds per position at batch 1, median [lowest, highest] of {document['repeats']} sweeps over "
    f"{document['positions']} positions."
  )


def overlap(document: Document) -> list[str]:
  return ["Two rows whose brackets overlap do not differ significantly."]


def grid_columns(document: Document) -> list[Column]:
  """Tables with preformatted cells."""
  return [
    Column(head, lambda row, document, index=index: row["cells"][index]) for index, head in enumerate(document["head"])
  ]


def eager_intro(document: Document) -> str:
  return "class-conditional GPT-B, random weights, guidance, float32, batch 1; the two take turns in one process, medians."


def eager_rows(document: Document) -> list[RowDocument]:
  rows = [
    {"cells": [name, f"{document['tokens_per_s'][name]:.1f}", f"{document['tokens_per_cpu_s'][name]:.1f}"]}
    for name in ("jax", "torch")
  ]
  ratio = lambda name: "{median:.2f} [{low:.2f}, {high:.2f}]".format(**document[name])
  return [
    *rows,
    {"cells": ["jax over torch, median [lowest, highest] of the pairs", ratio("ratio_wall"), ratio("ratio_cpu")]},
  ]


def eager_columns(document: Document) -> list[Column]:
  head = ("library", "tokens/s", "tokens per CPU-second")
  return [Column(words, lambda row, document, index=index: row["cells"][index]) for index, words in enumerate(head)]


def eager_below(document: Document) -> list[str]:
  return [
    f"Memory floor ({document['streamed_mb_per_step']:.0f} MB a step at {document['memory_read_gb_per_s']:.1f} GB/s): "
    f"{100 * document['share_of_memory_floor']:.0f} % reached. First call {document['first_call_s']:.1f} s. "
    f"{document['repeats']} pairs: the lowest and the highest ratio are what the table can tell apart."
  ]


def parity_columns(document: Document) -> list[Column]:
  error = lambda row, document: (
    ("0" if row["max_error"] == 0 else f"{row['max_error']:.1e}")
    + "" * row["passed"]
    + " **exceeded**" * (not row["passed"])
  )
  return [
    Column("golden", lambda row, document: row["golden"]), Column("array", lambda row, document: row["array"]),
    Column("max abs error", error),
    Column("tolerance", lambda row, document: "exact" if row["tolerance"] == 0 else f"{row['tolerance']:.2g}"),
  ]  # fmt: skip


def parity_intro(document: Document) -> str:
  return "float32, matmul precision `highest`, against files that the official code wrote."


def parity_below(document: Document) -> list[str]:
  return ["An error above its tolerance is marked; no smaller difference is claimed to be seen."]


# Parts of a round in the order of the table.
ROUND_PARTS = {
  "draft": "draft side", "draft network": "- its network alone", "target": "target side",
  "target network": "- its network alone", "rest": "commit and loop", "round": "a round of the whole decode",
}  # fmt: skip


def round_rows(document: Document) -> list[RowDocument]:
  return [
    {"method": entry["label"], "part": name, "whole": entry["parts"]["round"]["median"], "counts": entry["counts"], **found}
    for entry in document["rows"]
    for name in ROUND_PARTS
    if (found := entry["parts"].get(name)) is not None
  ]


def round_columns(document: Document) -> list[Column]:
  def passes(row: RowDocument, document: Document) -> str:
    side, _, kind = row["part"].partition(" ")
    return f"{row['counts'][f'{side} passes']:.2f}" if kind else ""

  span = lambda row, document: f"{row['median']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
  return [
    Column("method", lambda row, document: row["method"]), Column("part", lambda row, document: ROUND_PARTS[row["part"]]),
    Column("passes", passes), Column("ms a round", span),
    Column("share of a round", lambda row, document: f"{100 * row['median'] / row['whole']:.0f} %"),
  ]  # fmt: skip


def round_intro(document: Document) -> str:
  return (
    f"one image at a time, median [lowest, highest] of {document['turns']} images. The sides run in loops of their own in "
    "the middle of an image, a network alone in another: the target over the last token and a window, the draft network "
    "over one token, times the passes of a round."
  )


def round_below(document: Document) -> list[str]:
  return ["What a side takes besides its network is sampling, acceptance, scores and bookkeeping. " + overlap(document)[0]]


KINDS: dict[str, Kind] = {
  "round parts": Kind(round_columns, round_intro, round_below, round_rows),
  "scores": Kind(score_columns, score_intro, overlap, score_rows),
  "eager": Kind(eager_columns, eager_intro, eager_below, eager_rows),
  "grid": Kind(grid_columns, lambda document: document["intro"], lambda document: [document["below"]]),
  "parity": Kind(parity_columns, parity_intro, parity_below),
}
