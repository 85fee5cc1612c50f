"""Tables of official code beside ours."""

from __future__ import annotations

from experiments.engine.cells import Column, Document, Kind, RowDocument, number


def faster(row: RowDocument, document: Document) -> str:
  if row["label"] == "ours":
    return ""
  return "{median:.2f} [{low:.2f}, {high:.2f}]".format(**row["ours_faster"])


def greedy(row: RowDocument, document: Document) -> str:
  if row["label"] == "ours":
    return ""
  differs = "" if row["first_difference"] is None else f", first other one at {row['first_difference']}"
  return f"{row['equal']} of {document['tokens']}{differs}"


def columns(document: Document) -> list[Column]:
  return [
    Column("program", lambda row, document: row["label"]), number("tokens/s", "tokens_per_s", digits=1),
    Column("ours over it", faster), Column("greedy tokens as ours", greedy),
    number("first call s", "first_call_s", digits=1),
  ]  # fmt: skip


def intro(document: Document) -> str:
  return (
    f"with `--official` a checkout of FoundationVision/LlamaGen. {document['size']}, the same random weights on both sides "
    f"through the converter, float32, batch 1, guidance 4, top-k 2000, {document['tokens']} tokens; all take turns in one "
    f"process, medians [lowest, highest] of {document['repeats']}, {document['threads']} threads of PyTorch."
  )


def below(document: Document) -> list[str]:
  return [
    f"Others used {100 * document['others']:.0f} % of the machine meanwhile. Two ratios whose brackets overlap are not told "
    "apart. Greedy tokens may part where two logits are equal up to rounding."
  ]


KINDS: dict[str, Kind] = {"official": Kind(columns, intro, below)}
