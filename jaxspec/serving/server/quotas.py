"""What one tenant may use: streams, calls and tokens in a time. Pure; time is passed in."""

from __future__ import annotations

import dataclasses
import math

from jaxspec.serving.wire.cloud import CloudError, Status


@dataclasses.dataclass(frozen=True)
class Quota:
  """Limits of one token; infinite ones by default.

  Attributes:
    streams: open at the same time.
    calls_per_s: on average; a burst of one second's worth is free.
    fed_per_s: tokens that calls make the network read, likewise.
  """

  streams: float = math.inf
  calls_per_s: float = math.inf
  fed_per_s: float = math.inf

  def __post_init__(self):
    for name, value in dataclasses.asdict(self).items():
      if not (isinstance(value, int | float) and not isinstance(value, bool) and value > 0):
        raise ValueError(f"Must have a quota {name} above 0, we instead got {value!r}")


class Rate:
  """A bucket that fills with ``per_s`` a second, up to ``burst``.

  A charge above the whole bucket is possible when it is full; what is missing is paid later.
  """

  def __init__(self, per_s: float, burst: float, now: float):
    self._per_s, self._burst, self._level, self._time = per_s, burst, burst, now

  def wait_for(self, amount: float, now: float) -> float:
    """Seconds until ``amount`` may be taken; 0 if it may be now."""
    if math.isinf(self._per_s):
      return 0.0
    self._fill(now)
    return max(0.0, (min(amount, self._burst) - self._level) / self._per_s)

  def take(self, amount: float, now: float) -> None:
    """Takes what `wait_for` allowed."""
    if not math.isinf(self._per_s):
      self._fill(now)
      self._level -= amount

  def _fill(self, now: float) -> None:
    self._level = min(self._burst, self._level + max(0.0, now - self._time) * self._per_s)
    self._time = max(now, self._time)


class Usage:
  """What one tenant uses of its quota."""

  def __init__(self, quota: Quota, now: float):
    self.quota = quota
    self._calls = Rate(quota.calls_per_s, max(1.0, quota.calls_per_s), now)
    self._fed = Rate(quota.fed_per_s, max(1.0, quota.fed_per_s), now)

  def charge(self, fed: int, now: float) -> None:
    """Takes one call that feeds ``fed`` tokens, all of it or nothing.

    Raises:
      CloudError: ``RESOURCE_EXHAUSTED`` with the time after which there is room.
    """
    wait = max(self._calls.wait_for(1, now), self._fed.wait_for(fed, now))
    if wait > 0:
      raise CloudError(Status.RESOURCE_EXHAUSTED, "the quota of calls or tokens per second is used up", pushback_s=wait)
    self._calls.take(1, now)
    self._fed.take(fed, now)
