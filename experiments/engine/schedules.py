"""Rules of waiting for a batch of CIAR, replayed over decoded images with the times of passes alone.

Rows of a batch share every pass. While some rows wait for the cloud, the edge goes on for the others, until a share of the
unfinished rows waits. A small share needs many passes of the cloud, a large one lets most rows wait. The tokens of a row do
not depend on the rule, but for rounding, so that a decode under one rule gives the passes of every other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.engine.pass_times import CloudPass, ExchangePasses
from jaxspec.core.state import Origin


class Round(NamedTuple):
  """A round of one row: passes of the edge, then a call unless all tokens are local.

  Attributes:
    edge: passes of the edge.
    first: position of the first token of the window; None for a round without a call.
    end: position of the first token after the round.
  """

  edge: int
  first: int | None
  end: int


def rounds_of(origin: np.ndarray, *, window: int, max_run: int) -> list[Round]:
  """The rounds of a row with ``origin [N]``, after token 0."""
  length, position, rounds = len(origin), 1, []
  while position < length:
    is_local = origin[position : min(position + max_run, length)] == Origin.LOCAL
    run = len(is_local) if is_local.all() else int(np.argmin(is_local))
    first = position + run
    if run == max_run or first == length:
      rounds.append(Round(run, None, first))
    else:
      accepted = int(np.argmax(origin[first:] != Origin.DRAFT))
      # The last position is for the cloud's own token; the edge finds it uncertain in one pass.
      rounds.append(Round(run + max(min(window, length - 1 - first), 1), first, first + accepted + 1))
    position = rounds[-1].end
  return rounds


def replay(rows: Sequence[Sequence[Round]], share: float, passes: ExchangePasses, *, window: int) -> float:
  """Seconds of the passes of a batch whose edge stops when ``share`` of the unfinished rows wait."""
  left, at = [list(rounds) for rounds in rows], range(len(rows))
  done, read, seconds = [0] * len(rows), [0] * len(rows), 0.0  # edge passes of this round, tokens in the cloud's cache

  def waits(row: int) -> bool:
    return done[row] >= left[row][0].edge and left[row][0].first is not None

  while unfinished := [row for row in at if left[row]]:
    waiting = [row for row in unfinished if waits(row)]
    drawing = [row for row in unfinished if not waits(row)]
    if drawing and len(waiting) < share * len(unfinished):
      seconds += passes.edge_s
      for row in drawing:
        done[row] += 1
        if done[row] >= left[row][0].edge and left[row][0].first is None:
          left[row].pop(0)
          done[row] = 0
      continue
    seconds += cloud_seconds([left[row][0].first + window - read[row] for row in waiting], passes)
    for row in waiting:
      read[row], done[row] = left[row].pop(0).end - 1, 0
  return seconds


def cloud_seconds(inputs: Sequence[int], passes: ExchangePasses) -> float:
  """Seconds of the passes for rows that need these inputs, as `CiarVerifier.verify` chooses them."""
  needed, seconds = [number for number in inputs if number], 0.0
  while needed:
    chosen = next((size for size in passes.cloud if _fits(needed, size)), passes.cloud[-1])
    seconds, room = seconds + chosen.seconds, chosen.inputs
    for index, number in enumerate(needed[: chosen.rows]):
      needed[index] -= (taken := min(number, chosen.reach, room))
      room -= taken
    needed = [number for number in needed if number]
  return seconds


def _fits(needed: Sequence[int], size: CloudPass) -> bool:
  return sum(min(number, size.reach) for number in needed) <= size.inputs and len(needed) <= size.rows


def fastest(turns: Sequence[Sequence[Sequence[Round]]], passes: ExchangePasses, *, window: int) -> tuple[float, float]:
  """The share of rows with the least seconds of passes, mean over turns, and these seconds."""
  rows = len(turns[0])
  found = {
    number / rows: float(np.mean([replay(batch, number / rows, passes, window=window) for batch in turns]))
    for number in range(1, rows + 1)
  }
  best = min(found, key=lambda share: found[share])
  return best, found[best]
