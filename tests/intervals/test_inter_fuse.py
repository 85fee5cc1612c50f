"""InterFuse against its printed form in float64, with tests of its true claims and counterexamples to the false ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.intervals.inter_fuse import SCALINGS, inter_fuse, log_odds, scale, scaled_bounds
from jaxspec.intervals.interval_uncertainty import Uncertainty

CASES = settings(max_examples=60, deadline=None)
N = 12
MAX_RADIUS = 10.0
vectors = lambda low, high: st.lists(st.floats(low, high, width=32), min_size=N, max_size=N).map(
  lambda x: np.array(x, np.float32)
)


_fused, _scaled = jax.jit(inter_fuse), jax.jit(scaled_bounds)
_share = jax.jit(lambda centre: jax.nn.sigmoid(log_odds(centre)))


def bounds_of(centre, radius):
  return jax.tree.map(np.asarray, _fused(centre, radius))


def printed(centre, radius):
  """Equations 4 to 7 as printed, in float64."""
  c, r = np.float64(centre), np.float64(radius)
  c = c - c.max()
  rest = np.array([np.exp(np.delete(c, i)).sum() for i in range(len(c))])
  low, high = np.exp(c - r), np.exp(c + r)
  return low / (rest + low), high / (rest + high)


def test_stable_form_is_the_printed_form_to_1e_12():
  generator = np.random.default_rng(0)
  with jax.enable_x64(True):
    for spread in (0.1, 1, 5, 20):
      c, r = generator.normal(size=200) * spread, generator.gamma(1, 2, size=200)
      low, high = printed(c, r)
      ours = _fused(jnp.asarray(c), jnp.asarray(r))
      assert ours.lower.dtype == jnp.float64
      np.testing.assert_allclose(ours.lower, low, atol=1e-12)
      np.testing.assert_allclose(ours.upper, high, atol=1e-12)
      np.testing.assert_allclose(ours.width, high - low, atol=1e-12)


@CASES
@given(vectors(-1e4, 1e4), vectors(0, MAX_RADIUS))
def test_finite_and_ordered_in_float32(centre, radius):
  low, high, width = map(np.asarray, bounds_of(centre, radius))
  share = np.asarray(_share(centre))
  assert low.dtype == np.float32
  for values in (low, high, width, share):
    assert np.isfinite(values).all()
  assert (0 <= low).all() and (low <= share).all() and (share <= high).all() and (high <= 1).all() and (width >= 0).all()


def test_sums_of_large_logits_keep_their_digits():
  """With rounding at the size of the logits, upper bounds would add up to 0.9997 here, which no valid set allows."""
  centre = jnp.float32(1e4) + jnp.asarray([0.0, 0.25, -0.5, 1.0, 0.125], jnp.float32)
  bounds = _fused(centre, jnp.zeros_like(centre))
  np.testing.assert_allclose([bounds.lower.sum(), bounds.upper.sum()], 1, atol=1e-6)


def test_the_only_token_of_a_distribution_is_certain():
  bounds = _fused(jnp.asarray([-jnp.inf, 2.0, -jnp.inf]), jnp.full(3, 0.5))
  np.testing.assert_array_equal(bounds, [[0, 1, 0], [0, 1, 0], [0, 0, 0]])


@jax.jit
def gradients(centre, radius):
  value = lambda c, r, form, scaling: Uncertainty(form)(scale(inter_fuse(c, r), scaling).width)
  cases = [(form, scaling) for form in Uncertainty.FORMS for scaling in SCALINGS]
  return [jax.grad(value, argnums=(0, 1))(centre, radius, *case) for case in cases]


@pytest.mark.slow
@CASES
@given(vectors(-1e4, 1e4), vectors(0, MAX_RADIUS))
def test_gradients_are_finite(centre, radius):
  for gradient in jax.tree.leaves(gradients(centre, radius)):
    assert np.isfinite(gradient).all()


def test_no_digits_are_lost_where_one_token_leads():
  """The printed denominator is 0 in float32 here; the true value is of the order of e^-19."""
  centre = np.zeros(8, np.float32)
  centre[2] = 19 + np.log(8)
  radius = np.full(8, 0.5, np.float32)
  low, high = printed(centre, radius)
  ours = bounds_of(centre, radius)
  assert np.float32(np.exp(centre).sum()) - np.exp(centre[2]) != 7  # the difference in the printed form
  np.testing.assert_allclose(ours.width, high - low, rtol=2e-5)


@pytest.mark.slow
def test_masked_ids_have_no_probability_and_finite_gradients():
  centre = jnp.array([0.3, -jnp.inf, 1.2, -jnp.inf])
  radius = jnp.ones(4)
  ours = inter_fuse(centre, radius)
  whole = inter_fuse(centre[::2], radius[::2])
  for got, wanted in zip(ours, whole):
    np.testing.assert_allclose(got[::2], wanted, rtol=1e-6)
    np.testing.assert_array_equal(got[1::2], 0)
  gradient = jax.grad(lambda r: jnp.sum(inter_fuse(centre, r).width))(radius)
  assert np.isfinite(gradient).all()


@CASES
@given(vectors(-30, 30), vectors(0, MAX_RADIUS))
def test_sums_enclose_one_without_any_scaling(centre, radius):
  raw = bounds_of(centre, radius)
  assert raw.lower.sum() <= 1 + 1e-5 and raw.upper.sum() >= 1 - 1e-5


@CASES
@given(vectors(-30, 30), vectors(0, MAX_RADIUS), st.floats(0, 2, width=32))
def test_bounds_are_monotone_in_the_radius(centre, radius, more):
  narrow, wide = bounds_of(centre, radius), bounds_of(centre, radius + np.float32(more))
  assert (wide.lower <= narrow.lower).all() and (wide.upper >= narrow.upper).all()


@CASES
@given(vectors(-30, 30), vectors(0, MAX_RADIUS))
def test_scaling_only_widens(centre, radius):
  raw = bounds_of(centre, radius)
  paper = jax.tree.map(np.asarray, _scaled(raw))
  assert (paper.lower <= raw.lower).all() and (paper.upper >= raw.upper).all()
  assert paper.lower.sum() <= 0.99 + 1e-5 and paper.upper.sum() >= 1.01 - 1e-5
  np.testing.assert_allclose(paper.width, paper.upper - paper.lower, atol=1e-6)


@pytest.mark.slow
def test_scaling_breaks_proposition_2():
  """Scaling gives upper bounds above 1, and positive widths at radius 0 and for certain tokens (against Proposition 2)."""
  n = 16384
  certain = jnp.zeros(n).at[0].set(60.0)
  raw, paper = inter_fuse(certain, jnp.zeros(n)), scaled_bounds(inter_fuse(certain, jnp.zeros(n)))
  assert float(paper.upper.max()) > 1.005
  assert float(Uncertainty()(raw.width)) == 0 and float(Uncertainty("volume")(raw.width)) == 0
  np.testing.assert_allclose(Uncertainty("volume")(paper.width), 0.02, rtol=1e-3)
  np.testing.assert_allclose(Uncertainty()(paper.width), 4e-4 * np.sqrt(n - 1) / n, rtol=1e-2)  # 3.1e-6
  nearly = inter_fuse(certain, jnp.full(n, 0.7))
  assert float(Uncertainty("volume")(nearly.width)) < 1e-6


def test_bad_arguments_are_errors():
  with pytest.raises(ValueError, match="Must have a scaling"):
    scale(bounds_of(np.zeros(N, np.float32), np.zeros(N, np.float32)), "soft")
  with pytest.raises(ValueError, match="at least 2 tokens"):
    inter_fuse(jnp.zeros((3, 1)), jnp.zeros((3, 1)))
