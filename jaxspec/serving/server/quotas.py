"""Tenants and their quotas: streams, calls a second and tokens a second. Pure; time is an argument."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from jaxspec.serving.wire.cloud import CloudError, Status


@dataclasses.dataclass(frozen=True)
class Quota:
  """Limits of one token; infinite by default.

  Attributes:
    streams: most open streams.
    calls_per_s: calls a second, on average; the burst is that of one second.
    fed_per_s: tokens a second that the network reads for these calls, likewise.
  """

  streams: float = math.inf
  calls_per_s: float = math.inf
  fed_per_s: float = math.inf

  def __post_init__(self):
    for name, value in dataclasses.asdict(self).items():
      if not (isinstance(value, int | float) and not isinstance(value, bool) and value > 0):
        raise ValueError(f"Must have a quota {name} above 0, we instead got {value!r}")


class Tenant(NamedTuple):
  """The owner of a token."""

  name: str
  quota: Quota = Quota()


class Rate:
  """A token bucket that fills with ``per_s`` a second, up to ``burst``.

  A full bucket allows a charge above its size; the debt is refilled first.
  """

  def __init__(self, per_s: float, burst: float, now: float):
    self._per_s, self._burst, self._level, self._time = per_s, burst, burst, now

  def wait_for(self, amount: float, now: float) -> float:
    """Seconds until ``amount`` may be taken; 0 if it may be taken now."""
    if math.isinf(self._per_s):
      return 0.0
    self._fill(now)
    return max(0.0, (min(amount, self._burst) - self._level) / self._per_s)

  def take(self, amount: float, now: float) -> None:
    """Takes an amount that `wait_for` allowed."""
    if not math.isinf(self._per_s):
      self._fill(now)
      self._level -= amount

  def _fill(self, now: float) -> None:
    self._level = min(self._burst, self._level + max(0.0, now - self._time) * self._per_s)
    self._time = max(now, self._time)


class Usage:
  """What one tenant has used of its quota."""

  def __init__(self, quota: Quota, now: float):
    self.quota = quota
    self._calls = Rate(quota.calls_per_s, max(1.0, quota.calls_per_s), now)
    self._fed = Rate(quota.fed_per_s, max(1.0, quota.fed_per_s), now)

  def charge(self, fed: int, now: float) -> None:
    """Charges one call that feeds ``fed`` tokens, or nothing of it.

    Raises:
      CloudError: ``RESOURCE_EXHAUSTED`` with the seconds to wait.
    """
    wait = max(self._calls.wait_for(1, now), self._fed.wait_for(fed, now))
    if wait > 0:
      raise CloudError(Status.RESOURCE_EXHAUSTED, "the quota of calls or tokens per second is used up", pushback_s=wait)
    self._calls.take(1, now)
    self._fed.take(fed, now)
