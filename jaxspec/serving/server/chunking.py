"""Splits the tokens of a call into passes: a function of the call alone, so that load never decides a shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class ChunkSpan(NamedTuple):
  """The tokens of one pass over a row."""

  start: int  # position of its first token
  size: int  # tokens
  width: int  # inputs of the program that reads them


def narrowest(size: int, widths: Sequence[int]) -> int:
  """The smallest of the ascending ``widths`` with room for ``size`` tokens."""
  return next(width for width in widths if size <= width)


def spans_of_call(start: int, fed: int, window: int, widths: Sequence[int]) -> list[ChunkSpan]:
  """The passes of a call with ``fed`` tokens from position ``start`` on, at most ``window`` of them drafts.

  Only the last pass is verified. It has all drafts, and the committed token before them.
  """
  spans = []
  while fed > widths[-1]:
    size = min(widths[-1], fed - window - 1)
    spans.append(ChunkSpan(start, size, narrowest(size, widths)))
    start, fed = start + size, fed - size
  return [*spans, ChunkSpan(start, fed, narrowest(fed, widths))]


def spans_of_history(calls: Iterable[tuple[int, int]], window: int, widths: Sequence[int]) -> list[ChunkSpan]:
  """The passes that rebuild a cache after answered calls, with the spans of these calls: ``(gained, fed)`` of each.

  Rejected drafts are left out: their cache entries were overwritten, or are never read.
  """
  spans, length = [], 1  # token 0 is known
  for gained, fed in calls:
    start, length = length - 1, length + gained
    # The newest token was drawn by the call, not read.
    for span in spans_of_call(start, fed, window, widths):
      spans.append(span._replace(size=min(span.size, length - 1 - span.start)))
  return spans


def fewest_spans(length: int, widths: Sequence[int]) -> list[ChunkSpan]:
  """The fewest passes over the first ``length`` positions."""
  starts = range(0, length, widths[-1])
  sizes = [min(widths[-1], length - start) for start in starts]
  return [ChunkSpan(start, size, narrowest(size, widths)) for start, size in zip(starts, sizes)]
