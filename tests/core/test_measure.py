"""The arithmetic of the benchmarks; no timing is asserted."""

import jax
import numpy as np
import pytest

from jaxspec.run import measure
from tests.helpers import labels, tiny_pair


def test_alternate_takes_turns_and_pairs_ratios():
  order = []
  seconds = measure.alternate({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3)
  assert order == ["a", "b"] + ["a", "b"] * 3
  assert [len(v) for v in seconds.values()] == [3, 3]
  assert measure.pairwise_ratio([2.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == measure.Timing(2.0, 2.0, 3.0)


def test_seconds_are_compared_by_the_token():
  """Half the time for half the text is not a speed-up."""
  plain, own = measure.per_token([4.0, 8.0], [8, 16]), measure.per_token([2.0, 2.0], [4, 2])
  assert plain == [0.5, 0.5] and own == [0.5, 1.0]
  assert measure.pairwise_ratio(plain, own) == measure.Timing(0.75, 0.5, 1.0)


@pytest.mark.slow
def test_bare_rounds_run_as_many_rounds_as_asked():
  """One more round changes the tokens, so the timed loop runs every round."""
  params, drafter, verifier = tiny_pair()
  run = jax.jit(
    lambda p, k, n: measure.bare_rounds(p, k, labels(8), drafter=drafter, verifier=verifier, max_len=16, rounds=n)
  )
  tokens = [np.asarray(run(params, jax.random.key(0), n)).tolist() for n in range(6)]
  assert len({tuple(t) for t in tokens}) > 2
