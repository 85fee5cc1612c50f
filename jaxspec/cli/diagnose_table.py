"""The report of ``jaxspec diagnose``."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxspec.cli.outputs import print_written
from jaxspec.cli.summary import sampling_parts
from jaxspec.evaluation.diagnosis import CERTAIN, COVERAGE, FLAT, NEIGHBOURS, Diagnosis
from jaxspec.run.job import Job
from jaxspec.statistics import Interval


def print_diagnosis(console: Console, job: Job, found: Diagnosis, num: int, files: list[Path]) -> None:
  """A heading, the tokens, exact methods, intervals, and what can gain."""
  console.print()
  what = f"{len(found.tokens.largest):,} tokens of {num} {job.noun}{'s' * (num != 1)}"
  console.print(Text.assemble((job.pipeline.name, "bold"), f"  {what}"), soft_wrap=True)
  console.print(Text(", ".join([*sampling_parts(job.sampling), f"seed {job.seed}"]), style="dim"), soft_wrap=True)
  console.print()
  console.print(_tokens(found))
  if found.exact:
    console.print()
    console.print(_exact(found))
  if found.intervals:
    console.print()
    console.print(_intervals(found))
  console.print()
  for sentence in found.advice():
    console.print(Text(sentence), soft_wrap=True)
  print_written(console, *files)


def _tokens(found: Diagnosis) -> Table:
  tokens, table = found.tokens, _table("token", "")
  table.add_row("largest probability, mean", f"{tokens.largest.mean():.2f}")
  table.add_row(f"  above {CERTAIN:g}", f"{found.certain:.0%}")
  table.add_row(f"  below {FLAT:g}", f"{found.flat:.0%}")
  table.add_row("entropy, mean", f"{tokens.entropy.mean():.2f} of {math.log(found.vocab_size):.1f} nats")
  table.add_row("probability of the drawn token", f"{tokens.own.mean():.2f}")
  if not np.isnan(tokens.near).any():
    table.add_row(f"  of its {NEIGHBOURS} nearest codes", f"{tokens.near.mean():.2f}")
  return table


def _exact(found: Diagnosis) -> Table:
  table = _table("exact method", "draft", "tokens/call", "accepted")
  for draft in found.exact:
    table.add_row(
      draft.method, draft.draft or "-", _spread(draft.tokens_per_call, 1, 2), _spread(draft.accepted, 100, 0, " %")
    )
  return table


def _intervals(found: Diagnosis) -> Table:
  table = _table("edge", "learnt radius, nats", "covers", f"radius for {COVERAGE:.0%}, nats")
  for edge in found.intervals:
    table.add_row(edge.draft, f"{edge.learnt_radius:.2f}", f"{edge.covered:.0%}", f"{edge.conformal_radius:.2f}")
  return table


def _table(first: str, *columns: str) -> Table:
  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
  table.add_column(first, no_wrap=True)
  for column in columns:
    table.add_column(column, justify="right", no_wrap=True)
  return table


def _spread(one: Interval, factor: float, digits: int, unit: str = "") -> str:
  value = f"{factor * one.value:.{digits}f}"
  if math.isnan(one.low):
    return value + unit
  return f"{value} ({factor * one.low:.{digits}f} to {factor * one.high:.{digits}f}){unit}"
