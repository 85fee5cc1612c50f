"""Properties of U that hold, and plausible ones that do not hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from jaxspec.intervals.inter_fuse import inter_fuse
from jaxspec.intervals.interval_uncertainty import Uncertainty

CASES = settings(max_examples=80, deadline=None)
N = 10
widths = st.lists(st.floats(0, 1, width=32), min_size=N, max_size=N).map(lambda x: np.array(x, np.float32))
product = jax.jit(Uncertainty())
close = dict(rtol=1e-4, atol=1e-6)


@CASES
@given(widths, st.floats(0, 4, width=32), st.permutations(range(N)))
def test_sign_scale_permutation_and_bounds(width, factor, order):
  value, volume = float(product(width)), float(width.sum())
  assert value >= 0
  np.testing.assert_allclose(product(width[list(order)]), value, **close)
  np.testing.assert_allclose(product(width * np.float32(factor)), factor**2 * value, **close)
  np.testing.assert_allclose(value, volume * np.std(np.float64(width)), **close)
  assert np.std(np.float64(width)) <= np.sqrt(N - 1) / N * volume + 1e-6
  assert value <= np.square(np.float64(width)).sum() / 2 + 1e-5


def test_bounds_are_reached():
  assert float(product(np.full(N, 0.37, np.float32))) < 1e-6  # 0, up to the rounding of the mean
  one_hot = np.eye(N, dtype=np.float32)[3] * 0.8
  np.testing.assert_allclose(product(one_hot), 0.8 * np.sqrt(N - 1) / N * 0.8, rtol=1e-5)
  half = np.repeat(np.float32([0.6, 0]), N // 2)
  np.testing.assert_allclose(product(half), np.square(half).sum() / 2, rtol=1e-5)
  assert float(product(np.float32([0.1] * (N - 1) + [0.2]))) > 1e-3  # 0 only if all are equal


def test_it_is_not_monotone_in_a_width():
  np.testing.assert_allclose(Uncertainty()(jnp.array([0.0, 1.0])), 0.5)
  np.testing.assert_allclose(Uncertainty()(jnp.array([1.0, 1.0])), 0.0)


def test_it_is_small_for_sharp_and_for_flat_distributions():
  """Temperatures 4 to 0.05 of one random distribution at radius 0.7: U rises and falls while the entropy only falls."""
  centre = np.random.default_rng(0).normal(size=16384)
  temperatures = (4, 2, 1, 0.5, 0.25, 0.1, 0.05)
  forms = Uncertainty(), Uncertainty("additive")
  scores = jax.jit(lambda centre: [form(inter_fuse(centre, jnp.full(centre.shape, 0.7)).width) for form in forms])
  values, additive = np.transpose([scores(np.float32(centre / t)) for t in temperatures])
  middle = int(np.argmax(values))
  assert 2 <= middle <= 5
  assert (np.diff(values[: middle + 1]) > 0).all() and (np.diff(values[middle:]) < 0).all()
  assert additive[0] > 10 * additive[-1]  # this form stays large for flat distributions


@pytest.mark.slow
def test_diameter_of_the_set_of_distributions():
  """max ||p - q||_1 over the set, by linear programming: p - q = a - b with a, b >= 0."""
  generator = np.random.default_rng(3)
  n = 5
  for _ in range(6):
    centre, radius = generator.normal(size=n), generator.gamma(1, 1, size=n)
    bounds = inter_fuse(jnp.asarray(centre, jnp.float32), jnp.asarray(radius, jnp.float32))
    low, high = np.float64(bounds.lower), np.float64(bounds.upper)
    # The distance is convex in (p, q): its maximum is twice the largest mass that can move, over subsets.
    best = 0.0
    for subset in range(1, 2**n - 1):
      inside = np.array([subset >> i & 1 for i in range(n)], float)
      ends = [linprog(sign * inside, A_eq=np.ones((1, n)), b_eq=[1], bounds=list(zip(low, high))).fun for sign in (1, -1)]
      best = max(best, 2 * (-ends[1] - ends[0]))
    assert best <= min(bounds.width.sum(), 2 * (1 - low.sum()), 2 * (high.sum() - 1)) + 1e-6


def test_forms():
  width = jnp.asarray(np.random.default_rng(0).uniform(size=N), jnp.float32)
  volume, spread = float(width.sum()), float(jnp.std(width))
  expected = dict(
    product=volume * spread, product_eps=volume * np.sqrt(spread**2 + 0.01), additive=0.5 * volume + volume * spread,
    per_n=volume * spread / N, ratio=spread / volume, volume=volume,
  )  # fmt: skip
  for form in Uncertainty.FORMS:
    np.testing.assert_allclose(Uncertainty(form, eps=0.01, volume_weight=0.5)(width), expected[form], rtol=1e-5)
  assert float(Uncertainty("ratio")(jnp.zeros(N))) == 0
  for bad in (dict(form="sum"), dict(eps=-1.0), dict(volume_weight=float("nan"))):
    with pytest.raises(ValueError, match="Must have"):
      Uncertainty(**bad)
