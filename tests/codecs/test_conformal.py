"""The conformal threshold: theorems that hold on every path, and counterexamples to published claims that do not hold.

A path is a sequence of distributions with one update per committed token. The effect of rounds is tested with the loop.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.codecs.conformal import Conformal, ConformalParams, Threshold

V = 12


@functools.cache
def _runner(empty_error, max_support):
  rule = Conformal(max_support, empty_error=empty_error)

  def run(params, distributions):
    """Distributions ``[T, B, V]`` to errors, true dropped masses and thresholds after each token, ``[T, B]``."""
    cap = jnp.full((distributions.shape[1],), max_support, jnp.int32)

    def step(state, q):
      support = rule.support(params, state, q, cap)
      after = rule.update(params, state, support)
      return after, (rule.error(support), support.dropped, after.high.astype(float) + after.low)

    return jax.lax.scan(step, rule.init(params, distributions.shape[1]), distributions)[1]

  return jax.jit(run)


def run(first, eta, alpha, distributions, empty_error="one", max_support=V):
  """One path for each row, as float64 arrays ``[T, B]``."""
  params = ConformalParams(
    *(jnp.asarray(np.broadcast_to(x, distributions.shape[1:2]), jnp.float32) for x in (first, eta, alpha))
  )
  return [
    np.asarray(x, np.float64) for x in _runner(empty_error, max_support)(params, jnp.asarray(distributions, jnp.float32))
  ]


def distributions_of(seed, tokens, rows):
  """Random contexts between certain and flat, in long alternating runs, as adversarial as random contexts can be."""
  generator = np.random.default_rng(seed)
  sharpness = np.exp(np.cumsum(generator.normal(size=(tokens, rows)), 0) / 2) * 0.3
  weights = generator.gamma(np.clip(sharpness, 0.02, 50)[..., None], size=(tokens, rows, V)) + 1e-9
  return weights / weights.sum(-1, keepdims=True)


ROWS = 256
GRID = np.random.default_rng(1)
ALPHA = 10 ** GRID.uniform(-3.3, -0.4, ROWS)
ETA = 10 ** GRID.uniform(-3, 1, ROWS)
FIRST = np.maximum(GRID.uniform(-0.5, 1.2, ROWS), -ETA * (1 - ALPHA))


@functools.cache
def paths():
  return run(FIRST, ETA, ALPHA, distributions_of(0, 400, ROWS))


def test_telescoping_is_signed():
  """T-c: sum of d = alpha T + (beta_1 - beta_T) / eta, on 256 paths of 400 tokens."""
  fed, _, beta = paths()
  tokens = len(fed)
  right = ALPHA * tokens + (FIRST - beta[-1]) / ETA
  # beta is rounded once per token to 2^-48 of itself, settings to float32.
  slack = 1e-4 + 3e-6 * np.abs(beta).max(0) / ETA + 1e-6 * ALPHA * tokens
  assert (np.abs(fed.sum(0) - right) < slack).all()
  # With the printed absolute value the claim is false: the threshold rises where little is dropped.
  certain = np.full((300, 1, V), 0.0)
  certain[:, :, 0], certain[:, :, 1] = 1 - 1e-4, 1e-4
  fed, _, beta = run(0.5, 0.01, 0.1, certain)
  assert abs(fed.sum() - 0.03) < 1e-3
  printed = 0.1 * 300 + abs(0.5 - beta[-1, 0]) / 0.01
  assert abs(printed - 59.97) < 0.01
  assert abs(0.1 * 300 + (0.5 - beta[-1, 0]) / 0.01 - 0.03) < 1e-3


def test_the_tight_bound_holds_on_every_path_and_at_every_time():
  """T-d: beta >= -eta (1 - alpha), hence mean d <= alpha + (beta_1 + eta (1 - alpha)) / (eta T)."""
  fed, dropped, beta = paths()
  tokens = np.arange(1, len(fed) + 1)[:, None]
  assert (beta >= -ETA * (1 - ALPHA) - 1e-6 * (1 + ETA)).all()
  bound = ALPHA + (FIRST + ETA * (1 - ALPHA)) / (ETA * tokens)
  assert (np.cumsum(fed, 0) / tokens <= bound + 1e-6 + 1e-6 / (ETA * tokens)).all()
  assert (np.cumsum(dropped, 0) <= np.cumsum(fed, 0) + 1e-5).all()  # the recorded mass bounds the true one


def test_the_published_constant_fails_for_large_steps():
  """T-e: (|beta_1| + 1 + eta alpha) / (eta T) follows from T-d only while eta <= 1 / (1 - 2 alpha)."""
  flat = np.full((1, 1, V), 1 / V)
  fed, _, _ = run(0.9, 10.0, 0.01, flat)
  printed = 0.01 + (0.9 + 1 + 10 * 0.01) / 10
  assert fed.mean() == 1.0 and abs(printed - 0.21) < 1e-6
  tight = 0.01 + (0.9 + 10 * 0.99) / 10
  assert fed.mean() <= tight
  fed, _, _ = paths()
  small = ETA <= 1 / (1 - 2 * ALPHA)
  tokens = np.arange(1, len(fed) + 1)[:, None]
  published = ALPHA + (np.abs(FIRST) + 1 + ETA * ALPHA) / (ETA * tokens)
  assert (np.cumsum(fed, 0) / tokens <= published + 1e-6 + 1e-6 / (ETA * tokens))[:, small].all()


def test_the_bound_says_nothing_at_the_published_settings():
  """T-f: with eta = 0.001 and alpha = 0.0005 the bound exceeds 1 up to about 1010 tokens."""
  eta, alpha, first = 1e-3, 5e-4, 0.01
  printed = lambda tokens: alpha + (first + 1 + eta * alpha) / (eta * tokens)
  tight = lambda tokens: alpha + (first + eta * (1 - alpha)) / (eta * tokens)
  assert printed(1010) > 1 > printed(1012)
  assert 2e6 < (first + 1 + eta * alpha) / (eta * alpha) < 2.1e6
  assert 21_000 < (first + eta * (1 - alpha)) / (eta * alpha) < 23_000
  assert tight(22_000) == pytest.approx(2 * alpha, rel=0.01)


def test_the_threshold_is_bounded_above_only_if_an_empty_set_counts_as_one():
  """T-g. Clipping prevents the windup."""
  certain = np.zeros((5000, 1, V))
  certain[:, :, 0], certain[:, :, 1] = 0.9999, 0.0001
  _, _, beta = run(0.9, 0.5, 0.05, certain)
  assert beta.max() <= 1 + 0.5 * 0.05 + 1e-6
  fed, _, beta = run(0.9, 0.5, 0.05, certain, empty_error="true")
  assert beta.max() <= 1
  unclipped = 0.9 - 0.5 * (np.float64(fed.sum()) - 0.05 * 5000)
  assert 120 < unclipped < 130
  fed, _, beta = paths()
  assert (beta <= np.maximum(FIRST, 1 + ETA * ALPHA) + 1e-5 * (1 + ETA)).all()


def test_supports_have_the_expected_tokens_and_sizes():
  q = jnp.array([[0.4, 0.3, 0.2, 0.1, 0.0]] * 5)
  params = ConformalParams(jnp.float32(0), jnp.float32(0.1), jnp.float32(0.1))
  beta, cap = jnp.array([0.2, 0.3, 0.05, 0.5, -0.1]), jnp.array([3, 3, 3, 3, 5])
  rule = Conformal(5)
  kept = jax.jit(rule.support)(params, Threshold(beta, jnp.zeros(5)), q, cap)
  assert kept.ids.tolist() == [[0, 1, 2, 0, 0], [0, 1, 0, 0, 0], [0, 1, 2, 0, 0], [0, 0, 0, 0, 0], [0, 1, 2, 3, 0]]
  np.testing.assert_allclose(kept.dropped, [0.1, 0.3, 0.1, 0.6, 0.0], atol=1e-6)
  # Row 2 is truncated: what does not fit is dropped mass, and is not paid for. In row 3 nothing reaches the threshold, so
  # the most probable token is taken. Row 4 keeps every token of positive probability and is priced as the whole vocabulary.
  assert kept.size.tolist() == [3, 2, 3, 1, 4] and kept.literal_size.tolist() == [3, 2, 3, 1, 5]
  assert kept.was_empty.tolist() == [False, False, False, True, False] and kept.dropped[4] == 0
  assert rule.error(kept)[3] == 1.0 and Conformal(5, empty_error="true").error(kept)[3] == pytest.approx(0.6)


def test_truncation_does_not_wind_the_threshold_down():
  flat = np.full((3000, 1, V), 1 / V)
  _, dropped, beta = run(0.2, 0.1, 0.05, flat, max_support=4)
  assert dropped[-1] == pytest.approx(8 / 12) and beta.min() >= -0.1 * 0.95 - 1e-6


def test_small_steps_are_not_lost():
  """The step is 5e-7 and the threshold near 1. A single float32 would lose an eighth of the step."""
  certain = np.zeros((20_000, 1, V))
  certain[:, :, 0] = 1.0
  _, _, beta = run(0.9, 1e-3, 5e-4, certain)
  assert abs(beta[-1, 0] - (np.float64(np.float32(0.9)) + 20_000 * 5e-7)) < 1e-7


def test_a_round_moves_the_threshold_by_the_tokens_of_its_policy():
  """After three committed tokens, all of them drafts: a round without a bonus token commits no more than it accepts."""
  position = lambda policy: Conformal(V, policy=policy).rollback_position(jnp.int32(3), jnp.int32(3), jnp.int32(5))
  assert [int(position(policy)) for policy in Conformal.POLICIES] == [3, 3, 5]
  assert int(Conformal(V).rollback_position(jnp.int32(4), jnp.int32(3), jnp.int32(5))) == 4  # with a token of the target


def test_bad_settings_are_errors():
  for bad in (dict(policy="none"), dict(empty_error="half")):
    with pytest.raises(ValueError, match="Must have"):
      Conformal(4, **bad)
