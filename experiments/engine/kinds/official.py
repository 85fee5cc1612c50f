"""Tables of comparisons with official code."""

from __future__ import annotations

from collections.abc import Callable

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


def alike(row: RowDocument, document: Document) -> str:
  if row["label"] == "ours":
    return ""
  return f"{row['equal']} of {document['tokens']}, largest difference {row['difference']:.1e}"


def columns(equal: Column) -> Callable[[Document], list[Column]]:
  """The columns, including the agreement of tokens."""
  found = [
    Column("program", lambda row, document: row["label"]), number("tokens/s", "tokens_per_s", digits=1),
    Column("ours over it", faster), equal, number("first call s", "first_call_s", digits=1),
  ]  # fmt: skip
  return lambda document: found


def intro(document: Document) -> str:
  return (
    f"with `--official` a checkout of FoundationVision/LlamaGen. {document['size']}, the same random weights on both sides "
    f"through the converter, float32, batch 1, guidance 4, top-k 2000, {document['tokens']} tokens; all take turns in one "
    f"process, medians [lowest, highest] of {document['repeats']}, {document['threads']} threads of PyTorch."
  )


def intro_mar(document: Document) -> str:
  return (
    f"with `--official` a checkout of LTH14/mar. {document['size']}, the same random weights on both sides through the "
    f"converter, float32, batch 1, {document['iterations']} iterations for {document['tokens']} tokens, {document['steps']} "
    f"steps of diffusion, linear guidance to {document['scale']:g}; all take turns in one process, medians [lowest, "
    f"highest] of {document['repeats']}, {document['threads']} threads of PyTorch."
  )


def others(document: Document) -> str:
  share = f"{100 * document['others']:.0f} %"
  return f"Others used {share} of the machine meanwhile. Two ratios whose brackets overlap do not differ significantly."


def below_mar(document: Document) -> list[str]:
  return [
    f"{others(document)} Tokens are continuous: those of the compared image have the same order and noise on both sides, "
    f"and count as equal within {document['tolerance']:g} of the deviation of all their numbers."
  ]


def below(document: Document) -> list[str]:
  return [f"{others(document)} Greedy tokens may part where two logits are equal up to rounding."]


KINDS: dict[str, Kind] = {
  "official": Kind(columns(Column("greedy tokens as ours", greedy)), intro, below),
  "official MAR": Kind(columns(Column("tokens as ours, same noise", alike)), intro_mar, below_mar),
}
