"""Retries of a call: attempts, pauses, deadlines, and a budget for all calls of an edge.

Pure; time and random numbers are arguments. All retries are decided here; `jaxspec.serving.edge.reliable_stream` carries
them out. Those of gRPC are off, because they cannot resume a stream. Retried are ``UNAVAILABLE``, ``DEADLINE_EXCEEDED`` and
``DATA_LOSS``, and ``RESOURCE_EXHAUSTED`` with a pushback of the server.

The pauses are drawn from [0, cap] with a cap that doubles ("full jitter"). So edges that failed together do not retry
together.

Two kinds of failures have different limits:

1. The call did not reach the engine (``UNAVAILABLE``), or a server set a pushback. Such a failure costs a server almost
   nothing, and the edge has no other server. So it retries until `Policy.give_up_s` has passed. The pauses bound the load:
   with ``max_pause_s`` 2 they grow to one attempt a second.
2. A server may have computed the call (``DEADLINE_EXCEEDED``, ``DATA_LOSS``, and lost streams). These failures are counted,
   and `Budget` protects an overloaded server: retries stop when more than a tenth of the recent calls fail in this way.
"""

from __future__ import annotations

import dataclasses

from jaxspec.serving.wire.cloud import CloudError, Status

_RETRIED = (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.DATA_LOSS)
_WAITED_FOR = (Status.UNAVAILABLE, Status.RESOURCE_EXHAUSTED)  # until `Policy.give_up_s`
_SHARE = 0.125  # weight of the newest call in the smoothed time


@dataclasses.dataclass(frozen=True)
class Policy:
  """Limits of the attempts at one call.

  Attributes:
    attempts: most counted failures, resumes included. ``UNAVAILABLE`` and ``RESOURCE_EXHAUSTED`` are not counted.
    give_up_s: seconds after the first attempt after which no attempt begins.
    first_pause_s: cap of the first pause; it doubles up to ``max_pause_s``.
    min_timeout_s: shortest deadline of an attempt. A deadline is ``times`` smoothed calls long, at most ``max_timeout_s``.
  """

  attempts: int = 6
  give_up_s: float = 60.0
  first_pause_s: float = 0.05
  max_pause_s: float = 2.0
  min_timeout_s: float = 1.0
  max_timeout_s: float = 10.0
  times: float = 4.0

  def pause_cap_s(self, failures: int) -> float:
    """Longest pause after a number of failures, at least one."""
    return min(self.max_pause_s, self.first_pause_s * 2.0 ** (failures - 1))


def is_retried(error: CloudError) -> bool:
  """Whether a call that failed with this error may be retried."""
  if error.status is Status.RESOURCE_EXHAUSTED:
    return error.pushback_s is not None
  return error.status in _RETRIED


class Budget:
  """A token bucket: failures take tokens, successes add some."""

  def __init__(self, size: float = 10.0, cost: float = 1.0, gain: float = 0.1, least: float = 5.0):
    self._level = self._size = size
    self._cost, self._gain, self._least = cost, gain, least

  @property
  def allows_retries(self) -> bool:
    """Whether enough of the recent calls succeeded."""
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
    """Adds the seconds of a call."""
    old = seconds if self._seconds is None else self._seconds
    self._seconds = old + _SHARE * (seconds - old)

  def timeout_s(self, policy: Policy) -> float:
    """Deadline of the next attempt."""
    if self._seconds is None:
      return policy.max_timeout_s  # the first call may be a long prefill
    return min(policy.max_timeout_s, max(policy.min_timeout_s, policy.times * self._seconds))


class Attempts:
  """The attempts at one call.

  Args:
    now: time of the first one, seconds.
  """

  def __init__(self, policy: Policy, budget: Budget, times: CallTimes, now: float):
    self._policy, self._budget, self._times, self._began = policy, budget, times, now
    self._failures = 0  # counted ones
    self._pauses = 0

  def timeout_s(self) -> float:
    """Deadline of the next attempt. A longer call continues at the server, and the next attempt joins it."""
    return self._times.timeout_s(self._policy)

  def succeeded(self, seconds: float) -> None:
    """An attempt had a reply after ``seconds``."""
    self._budget.succeeded()
    self._times.add(seconds)

  def failed(self, error: CloudError, now: float, uniform: float) -> float:
    """An attempt failed.

    Args:
      uniform: a random number in [0, 1).
    Returns:
      Seconds to wait before the next attempt.
    Raises:
      CloudError: the same error, if the call is not retried.
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
    if error.status is Status.RESOURCE_EXHAUSTED and error.pushback_s is not None:
      pause = max(pause, error.pushback_s)  # never earlier; that of a full queue is a few milliseconds
    if now + pause - self._began > self._policy.give_up_s:
      raise error
    return pause

  def resumed(self, error: CloudError) -> None:
    """The server had lost the stream, which is resumed.

    Raises:
      CloudError: the same error, after too many failures.
    """
    self._failures += 1
    if self._failures >= self._policy.attempts:
      raise error
