"""How often a peer was wrong. Pure; time is passed in."""

from __future__ import annotations

import collections

_MAX_PEERS = 10_000


class Failures:
  """Wrong tokens by peer. Whoever brings more than ``free`` in a minute is answered slowly."""

  def __init__(self, free: int = 10, window_s: float = 60.0, delay_s: float = 1.0):
    self._free, self._window_s, self._delay_s = free, window_s, delay_s
    self._times: collections.OrderedDict[str, collections.deque[float]] = collections.OrderedDict()

  def delay_s(self, peer: str, now: float) -> float:
    """Counts a wrong token; how long to wait before saying so."""
    times = self._times.setdefault(peer, collections.deque(maxlen=self._free))
    self._times.move_to_end(peer)
    if len(self._times) > _MAX_PEERS:
      self._times.popitem(last=False)
    slow = len(times) == self._free and now - times[0] < self._window_s
    times.append(now)
    return self._delay_s if slow else 0.0
