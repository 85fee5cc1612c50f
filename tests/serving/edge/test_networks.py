"""The model of a network against numbers by hand and against the published table's own arithmetic."""

import collections
import itertools

import numpy as np
import pytest

from jaxspec.serving.wire.link_model import NETWORKS, RoundSeconds, best_length, link_seconds, seconds_per_token


def test_by_hand():
  slow = NETWORKS["4g"]  # 20 Mbit/s, 50 ms
  once = link_seconds(slow, uplink_bytes=25_000, downlink_bytes=2_500, calls=10)
  assert once.uplink == pytest.approx(0.25 + 0.010) and once.downlink == pytest.approx(0.25 + 0.001)
  both = link_seconds(slow, uplink_bytes=25_000, downlink_bytes=2_500, calls=10, latency_is="one_way")
  assert both.total == pytest.approx(once.total + 0.5)


def test_latency_alone_explains_the_published_times():
  """Communication times of the table (ms): with empty messages a method made about the same number of calls everywhere."""
  published = {"lantern": (4424.63, 22291.31, 8768.01), "ciar": (1678.13, 8173.95, 3343.94)}
  for method, times in published.items():
    calls = [ms / 1e3 / NETWORKS[name].latency_s for ms, name in zip(times, ("5g", "4g", "wifi"))]
    assert max(calls) / min(calls) < 1.03, method
    for name, ms, number in zip(("5g", "4g", "wifi"), times, calls):
      seconds = link_seconds(NETWORKS[name], uplink_bytes=0, downlink_bytes=0, calls=round(number))
      assert seconds.total == pytest.approx(ms / 1e3, abs=NETWORKS[name].latency_s / 2 + 1e-9)  # calls are whole


def test_bad_arguments():
  with pytest.raises(ValueError, match="latency_is"):
    link_seconds(NETWORKS["5g"], uplink_bytes=1, downlink_bytes=1, calls=1, latency_is="half")
  with pytest.raises(ValueError, match="at least 0"):
    link_seconds(NETWORKS["5g"], uplink_bytes=-1, downlink_bytes=1, calls=1)


def simulated(is_full, seconds: RoundSeconds, pipeline: int) -> float:
  """Mean seconds of rounds, event by event: an edge that drafts while its pipeline has room, and reads replies in order."""
  outcomes, waiting, now, free, rounds = iter(is_full), collections.deque(), 0.0, 0.0, 0
  for outcome in outcomes:
    while len(waiting) < pipeline:
      now += seconds.draft
      free = max(free, now + seconds.link / 2) + seconds.verify  # of the cloud; a void draft takes no pass
      waiting.append(free + seconds.link / 2)
    now, rounds = max(now, waiting.popleft()), rounds + 1
    if not outcome:
      free = now - seconds.link / 2
      waiting.clear()
  return now / rounds


SECONDS = [RoundSeconds(*each) for each in itertools.product((0.004, 0.03), (0.002, 0.02), (0.0, 0.01, 0.05))]


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [1, 2, 4])
def test_the_rate_is_that_of_a_simulation(pipeline):
  for full, seconds in itertools.product((0.0, 0.3, 0.8, 1.0), SECONDS):
    outcomes = np.random.default_rng(1).random(20_000) < full
    share = outcomes.mean()
    assert seconds.mean(share, pipeline) == pytest.approx(simulated(outcomes, seconds, pipeline), rel=0.02)


def test_rates_by_hand():
  """Two drafts of 10 ms, a pass of 5 ms, 50 ms of link, and half of the drafts accepted."""
  seconds = RoundSeconds(0.02, 0.005, 0.05)
  assert seconds_per_token(0.5, 2, seconds, bonus=True) == pytest.approx(0.075 / 1.75)
  assert seconds_per_token(0.5, 2, seconds) == pytest.approx(0.075 / 1.5)
  assert seconds_per_token(1.0, 2, seconds, pipeline=2) == pytest.approx(0.0375 / 2)
  assert seconds_per_token(1.0, 2, seconds, pipeline=8) == pytest.approx(0.02 / 2)
  for bad in (dict(acceptance=1.1), dict(drafts=0), dict(pipeline=0), dict(pipeline=2, bonus=True)):
    with pytest.raises(ValueError, match="we instead got"):
      seconds_per_token(**(dict(acceptance=0.5, drafts=2, seconds=seconds) | bad))


def test_the_best_length_follows_the_delay():
  """Logarithmic in the delay for an edge that waits: equal factors add about as many drafts."""
  lengths = [best_length(0.8, draft_s=0.001, verify_s=0.002, link_s=0.01 * 4**n, most=100) for n in range(4)]
  assert lengths == sorted(lengths) and lengths[0] < lengths[3]
  steps = np.diff(lengths)
  assert abs(steps - np.log(4) / np.log(1 / 0.8)).max() <= 2.5
  assert best_length(0.8, draft_s=0.001, verify_s=0.0, link_s=0.0, most=100) == 1
  assert best_length(0.8, draft_s=0.001, verify_s=0.002, link_s=0.01, most=100, pipeline=8) < lengths[0]
