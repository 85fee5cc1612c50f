"""How the tokens of a call are cut into passes: a function of the call alone, so that load never decides a shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Cut(NamedTuple):
  """One pass over tokens of one row."""

  start: int  # position of its first token
  size: int  # tokens
  width: int  # inputs of the program that reads them


def narrowest(size: int, widths: Sequence[int]) -> int:
  """The narrowest of the ascending ``widths`` that holds ``size`` tokens."""
  return next(width for width in widths if size <= width)


def cuts_of_call(start: int, fed: int, window: int, widths: Sequence[int]) -> list[Cut]:
  """The passes of a call that brings ``fed`` tokens from position ``start`` on, at most ``window`` of them drafts.

  Only the last one is judged. It holds all drafts, and the committed token before them.
  """
  cuts = []
  while fed > widths[-1]:
    size = min(widths[-1], fed - window - 1)
    cuts.append(Cut(start, size, narrowest(size, widths)))
    start, fed = start + size, fed - size
  return [*cuts, Cut(start, fed, narrowest(fed, widths))]


def cuts_of_history(calls: Iterable[tuple[int, int]], window: int, widths: Sequence[int]) -> list[Cut]:
  """The passes that bring a cache where answered calls brought it, cut as these cut: ``(gained, fed)`` of each.

  What was rejected is left out: its entries were written over, or are never read.
  """
  cuts, length = [], 1  # token 0 is known
  for gained, fed in calls:
    start, length = length - 1, length + gained
    # The newest token was drawn by the call, not read.
    cuts += [cut._replace(size=min(cut.size, length - 1 - cut.start)) for cut in cuts_of_call(start, fed, window, widths)]
  return cuts


def cuts_in_chunks(length: int, widths: Sequence[int]) -> list[Cut]:
  """The fewest passes over the first ``length`` positions."""
  starts = range(0, length, widths[-1])
  sizes = [min(widths[-1], length - start) for start in starts]
  return [Cut(start, size, narrowest(size, widths)) for start, size in zip(starts, sizes)]
