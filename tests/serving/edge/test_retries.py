"""Attempts, pauses, deadlines and the budget, by hand."""

import pytest

from jaxspec.serving.edge.retries import Attempts, Budget, CallTimes, Policy, is_retried
from jaxspec.serving.wire.cloud import CloudError, Status

UNAVAILABLE = CloudError(Status.UNAVAILABLE, "gone")
LATE = CloudError(Status.DEADLINE_EXCEEDED, "no reply in time")


def test_what_is_retried():
  retried = {status for status in Status if is_retried(CloudError(status, ""))}
  assert retried == {Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.DATA_LOSS}
  assert [status for status in Status if is_retried(CloudError(status, "", 0.1)) and status not in retried] == [
    Status.RESOURCE_EXHAUSTED
  ]


def test_pauses_double_up_to_their_cap_and_are_drawn_below_it():
  attempts = Attempts(Policy(attempts=9), Budget(size=100), CallTimes(), 0.0)
  assert [attempts.failed(UNAVAILABLE, 0.0, 1.0) for _ in range(8)] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2, 2])
  assert Attempts(Policy(), Budget(), CallTimes(), 0.0).failed(UNAVAILABLE, 0.0, 0.25) == pytest.approx(0.0125)


def test_the_server_may_say_when():
  """Then only the time limit applies, and the budget does not change; pauses grow for any pushback."""
  busy, budget = CloudError(Status.RESOURCE_EXHAUSTED, "busy", 0.7), Budget(size=5)
  attempts = Attempts(Policy(), budget, CallTimes(), 0.0)
  assert [attempts.failed(busy, second, 0.0) for second in range(59)] == [0.7] * 59
  with pytest.raises(CloudError):
    attempts.failed(busy, 59.5, 0.0)
  assert budget.allows_retries
  soon = Attempts(Policy(), Budget(), CallTimes(), 0.0)
  assert [soon.failed(CloudError(Status.RESOURCE_EXHAUSTED, "", 0.15), 0.0, 1.0) for _ in range(7)] == pytest.approx(
    [0.15, 0.15, 0.2, 0.4, 0.8, 1.6, 2.0]
  )


def test_a_server_that_is_away_is_asked_until_the_time_is_up():
  """Neither the number of attempts nor the budget ends that; at most once a second on average after the first ones."""
  budget, now, tried = Budget(size=5), 0.0, 0
  attempts = Attempts(Policy(), budget, CallTimes(), now)
  with pytest.raises(CloudError):
    while True:
      now += attempts.failed(UNAVAILABLE, now, 0.5)
      tried += 1
  assert 59 < now <= 60 and 60 < tried < 66 and budget.allows_retries
  mixed = Attempts(Policy(), Budget(), CallTimes(), 0.0)
  for _ in range(5):
    mixed.failed(UNAVAILABLE, 0.0, 0.0)
    mixed.failed(LATE, 0.0, 0.0)
  with pytest.raises(CloudError):
    mixed.failed(LATE, 0.0, 0.0)


def test_a_call_is_given_up():
  """After six attempts; after its time, pause included; at once where a retry would not help; never by chance."""
  attempts = Attempts(Policy(), Budget(), CallTimes(), 0.0)
  for _ in range(5):
    attempts.failed(LATE, 0.0, 0.0)
  with pytest.raises(CloudError):
    attempts.failed(LATE, 0.0, 0.0)
  late = Attempts(Policy(give_up_s=10.0), Budget(), CallTimes(), 100.0)
  assert late.failed(UNAVAILABLE, 109.9, 1.0) == pytest.approx(0.05)
  with pytest.raises(CloudError):
    late.failed(UNAVAILABLE, 109.95, 1.0)
  with pytest.raises(CloudError):
    Attempts(Policy(), Budget(), CallTimes(), 0.0).failed(CloudError(Status.OUT_OF_RANGE, ""), 0.0, 0.0)


def test_resumes_are_attempts():
  attempts = Attempts(Policy(attempts=3), Budget(), CallTimes(), 0.0)
  for _ in range(2):
    attempts.resumed(UNAVAILABLE)
  with pytest.raises(CloudError):
    attempts.resumed(UNAVAILABLE)


def test_the_budget_ends_retries_when_many_calls_fail():
  budget = Budget()
  for _ in range(5):
    budget.failed()
  assert budget.allows_retries
  budget.failed()
  assert not budget.allows_retries
  with pytest.raises(CloudError):
    Attempts(Policy(), budget, CallTimes(), 0.0).failed(LATE, 0.0, 0.0)
  for _ in range(21):
    budget.succeeded()
  assert budget.allows_retries
  for _ in range(1000):
    budget.succeeded()
  for _ in range(5):
    budget.failed()
  assert budget.allows_retries  # no more than ten are saved up


def test_deadlines_follow_the_smoothed_time_of_calls():
  times, policy = CallTimes(), Policy()
  assert times.timeout_s(policy) == 10.0
  times.add(0.02)
  assert times.timeout_s(policy) == 1.0
  times.add(0.02 + 8 * 0.48)  # an eighth of it counts
  assert times.timeout_s(policy) == pytest.approx(2.0)
  times.add(100.0)
  assert times.timeout_s(policy) == 10.0
