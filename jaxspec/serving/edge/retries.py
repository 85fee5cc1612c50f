"""When a call is tried again: attempts, pauses, deadlines, and a budget for all calls of an edge.

Pure: time and chance are passed in. This is the one place that decides about retries; gRPC's own are off, for they cannot
resume a stream. Retried are ``UNAVAILABLE``, ``DEADLINE_EXCEEDED`` and ``DATA_LOSS``, and ``RESOURCE_EXHAUSTED`` where the
server says when to come back.

The pauses are drawn from [0, cap] with a cap that doubles ("full jitter"), so that edges which failed together do not come
back together.

Two kinds of failures end in different ways:

1. The call did not come through (``UNAVAILABLE``), or a server said when to come back. That costs a server next to nothing,
   and the edge has nowhere else to go: it asks until `Policy.give_up_s` has passed. The pauses alone bound the load: they
   grow until a call is tried once a second, where ``max_pause_s`` is 2.
2. A server may have worked on it (``DEADLINE_EXCEEDED``, ``DATA_LOSS``, and streams that were lost). That is counted, and
   `Budget` keeps a fleet from burying a sick server: when more than a tenth of the recent calls fail so, nobody retries.
"""

from __future__ import annotations

import dataclasses

from jaxspec.serving.wire.cloud import CloudError, Status

_RETRIED = (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.DATA_LOSS)
_WAITED_FOR = (Status.UNAVAILABLE, Status.RESOURCE_EXHAUSTED)  # until the time is up
_SHARE = 0.125  # of the newest call in the smoothed time


@dataclasses.dataclass(frozen=True)
class Policy:
  """Limits of the attempts at one call.

  Attributes:
    attempts: at most, resumes included; those that did not come through, or were put off, are not counted.
    give_up_s: no attempt begins later than this after the first.
    first_pause_s: cap of the first pause; it doubles up to ``max_pause_s``.
    min_timeout_s: shortest deadline of an attempt; it is ``times`` smoothed calls long, up to ``max_timeout_s``.
  """

  attempts: int = 6
  give_up_s: float = 60.0
  first_pause_s: float = 0.05
  max_pause_s: float = 2.0
  min_timeout_s: float = 1.0
  max_timeout_s: float = 10.0
  times: float = 4.0

  def pause_cap_s(self, failures: int) -> float:
    """Longest pause after so many failures, at least one."""
    return min(self.max_pause_s, self.first_pause_s * 2.0 ** (failures - 1))


def is_retried(error: CloudError) -> bool:
  """Whether a call that failed like this may be tried again."""
  if error.status is Status.RESOURCE_EXHAUSTED:
    return error.pushback_s is not None
  return error.status in _RETRIED


class Budget:
  """A bucket of tokens that failures empty and successes fill."""

  def __init__(self, size: float = 10.0, cost: float = 1.0, gain: float = 0.1, least: float = 5.0):
    self._level = self._size = size
    self._cost, self._gain, self._least = cost, gain, least

  @property
  def allows_retries(self) -> bool:
    """Whether enough calls succeeded lately."""
    return self._level >= self._least

  def failed(self) -> None:
    """An attempt failed."""
    self._level = max(0.0, self._level - self._cost)

  def succeeded(self) -> None:
    """An attempt succeeded."""
    self._level = min(self._size, self._level + self._gain)


class CallTimes:
  """The smoothed time of calls that succeeded."""

  def __init__(self):
    self._seconds: float | None = None

  def add(self, seconds: float) -> None:
    """A call took so long."""
    old = seconds if self._seconds is None else self._seconds
    self._seconds = old + _SHARE * (seconds - old)

  def timeout_s(self, policy: Policy) -> float:
    """Deadline of the next attempt."""
    if self._seconds is None:
      return policy.max_timeout_s  # a prefill may take long, and nothing is known yet
    return min(policy.max_timeout_s, max(policy.min_timeout_s, policy.times * self._seconds))


class Attempts:
  """The attempts at one call.

  Args:
    now: when the first one begins.
  """

  def __init__(self, policy: Policy, budget: Budget, times: CallTimes, now: float):
    self._policy, self._budget, self._times, self._began = policy, budget, times, now
    self._failures = 0  # that are counted
    self._pauses = 0

  def timeout_s(self) -> float:
    """Deadline of the next attempt. A call that takes longer goes on at the server, and the next attempt joins it."""
    return self._times.timeout_s(self._policy)

  def succeeded(self, seconds: float) -> None:
    """An attempt was answered after so long."""
    self._budget.succeeded()
    self._times.add(seconds)

  def failed(self, error: CloudError, now: float, uniform: float) -> float:
    """An attempt failed.

    Args:
      uniform: a random number in [0, 1).
    Returns:
      Seconds to wait before the next attempt.
    Raises:
      CloudError: the same, where it is final.
    """
    if not is_retried(error):
      raise error
    if error.status not in _WAITED_FOR:
      self._failures += 1
      self._budget.failed()
      if self._failures >= self._policy.attempts or not self._budget.allows_retries:
        raise error
    self._pauses += 1
    pause = uniform * self._policy.pause_cap_s(self._pauses)
    if error.status is Status.RESOURCE_EXHAUSTED:
      pause = max(pause, error.pushback_s)  # never earlier; a full queue says a few milliseconds, again and again
    if now + pause - self._began > self._policy.give_up_s:
      raise error
    return pause

  def resumed(self, error: CloudError) -> None:
    """The server had lost the stream, and has it again.

    Raises:
      CloudError: the same, where this happened too often.
    """
    self._failures += 1
    if self._failures >= self._policy.attempts:
      raise error
