"""Times of rounds over a link: their estimates, the lengths that they give, and what a length may read."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.drafters import length_choice
from jaxspec.serving.edge.link_times import ROUNDS, LinkTimes, Past, estimate, table
from jaxspec.serving.edge.round_timing import TIMING_BYTES, TimedRound, Timing, microseconds
from jaxspec.serving.wire.link_model import best_length

MOST, ONE_ROW = 24, jnp.ones((1,), jnp.int32)


def timed(drafted, *, draft_pass=0.002, exchange=0.05, each_draft=0.0, verify=0.01):
  """A round on a link without jitter."""
  seconds = draft_pass * (drafted + 1), exchange + each_draft * drafted, verify
  return TimedRound(drafted, Timing(*map(microseconds, seconds)))


def test_an_estimate_is_exact_without_jitter():
  rounds = [timed(drafted, each_draft=0.001) for drafted in (5, 7, 7, 4)]
  np.testing.assert_allclose(estimate(rounds), (0.002, 0.05, 0.001, 0.01))
  assert estimate([timed(6)]) == pytest.approx((0.002, 0.05, 0.0, 0.01))  # one round has no slope


def test_late_replies_and_a_compiler_change_little():
  rounds = [timed(drafted, each_draft=0.001) for drafted in (5, 7, 6, 4, 7, 6)]
  rounds.insert(0, TimedRound(5, Timing(3_000_000, 2_000_000, 2_000_000)))
  rounds.insert(4, TimedRound(6, Timing(15_000, 900_000, 900_000)))
  found = estimate(rounds)
  assert found.draft_pass == pytest.approx(0.002, rel=0.1) and found.exchange == pytest.approx(0.05, rel=0.1)
  assert 0 <= found.each_draft < 0.003


def test_an_estimate_moves():
  """A new delay counts after half of the rounds that are read."""
  rounds = [timed(drafted) for drafted in (3, 5) * ROUNDS] + [timed(drafted, exchange=0.2) for drafted in (3, 5) * 5]
  assert estimate(rounds).exchange == pytest.approx(0.2)


@pytest.mark.parametrize("pipeline, bonus", [(1, True), (1, False), (2, False), (4, False)])
def test_lengths_are_those_of_the_formula(pipeline, bonus):
  """After many rounds of one acceptance; ``K + 1`` passes make drafts, so one pass counts as a part of the target's."""
  found, choose = [], jax.jit(length_choice.choose, static_argnums=2, static_argnames="bonus")
  for acceptance, delay in ((acceptance, delay) for acceptance in (0.5, 0.8) for delay in (0.004, 0.02, 0.1, 0.5)):
    state = length_choice.start(jnp.full((MOST + 1,), length_choice.PLAIN), 1, MOST, 10_000)
    share = round(acceptance * (1 << 16))
    state = state.replace(tested=jnp.full((1, MOST), 1 << 16), accepted=jnp.full((1, MOST), share))
    full = (acceptance ** np.arange(MOST + 1)).tolist()
    rounds = [timed(drafted, exchange=delay, verify=0.003) for drafted in (4, 6, 4)]
    times = table(Past(9, rounds, full if pipeline > 1 else (), pipeline, MOST))
    lengths = tuple(range(MOST + 1))
    found.append(int(choose(state, jnp.asarray(times), lengths, ONE_ROW, bonus=bonus)))
    wanted = dict(draft_s=0.002, verify_s=0.003, link_s=delay - 0.001, most=MOST, pipeline=pipeline, bonus=bonus)
    # The optimum is flat, and times are integers: its neighbours are as good.
    assert abs(found[-1] - best_length(acceptance, **wanted)) <= (1 if bonus else 2), (acceptance, delay)
  assert found[:4] == sorted(found[:4]) and found[4:] == sorted(found[4:]) and found[0] < found[7]


@pytest.mark.slow
def test_a_slow_uplink_shortens_drafts():
  """A draft that takes 4 ms of the uplink costs more than its pass."""
  state = length_choice.start(jnp.full((MOST + 1,), length_choice.PLAIN), 1, MOST, 10_000)
  state = state.replace(tested=jnp.full((1, MOST), 1 << 16), accepted=jnp.full((1, MOST), round(0.8 * (1 << 16))))

  def length(each_draft):
    times = table(Past(9, [timed(drafted, each_draft=each_draft) for drafted in (4, 6, 5)], (), 1, MOST))
    return int(length_choice.choose(state, jnp.asarray(times), tuple(range(MOST + 1)), ONE_ROW))

  assert length(0.004) + 3 <= length(0.0)
  assert abs(length(0.004) - best_length(0.8, draft_s=0.006, verify_s=0.052, link_s=0.0, most=MOST)) <= 1


def test_nothing_measured_has_no_table():
  assert table(Past(0, [], (), 1, 4)) is None
  assert (table(Past(1, [TimedRound(0, Timing(0, 0, 0))], (), 1, 4)) > 0).all()
  assert LinkTimes(0.001, 0.0, 0.0, 0.5).round_of(3).link == 0.0  # a pass is a part of the exchange


def test_timings_survive_a_journal():
  timing = Timing(microseconds(0.0123456), microseconds(1e9), microseconds(-1.0))
  assert timing == (12_346, 2**32 - 1, 0)
  assert Timing.unpack(timing.pack()) == timing and len(timing.pack()) == TIMING_BYTES
