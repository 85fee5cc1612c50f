"""Scores of CIAR and of the baselines through the one interface; several heads."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core import rng
from jaxspec.core.types import Intervals
from jaxspec.intervals.discrete import DiscreteSet
from jaxspec.intervals.heads import combined_logits, head_weights
from jaxspec.intervals.inter_fuse import inter_fuse, scaled_bounds
from jaxspec.intervals.interval_uncertainty import Uncertainty
from jaxspec.intervals.scores import SCORES, DiscreteScore, EntropyLens, IntervalScore, Random, TemperatureSpread, make_score
from jaxspec.testing import fast_keys
from tests.helpers import slow_but

B, V = 6, 9


def heads(count, seed=0, spread=2.0):
  generator = np.random.default_rng(seed)
  centre = jnp.asarray(generator.normal(size=(B, count, V)) * spread, jnp.float32)
  radius = jnp.asarray(generator.gamma(1, 1, size=(B, count, V)), jnp.float32)
  return Intervals(centre, radius, jnp.asarray(generator.normal(size=(B, 2, V)) * spread, jnp.float32))


@functools.partial(jax.jit, static_argnums=0)
def _score(fn, intervals, keys):
  return fn(intervals, jnp.zeros((B, 4)), keys)


def score(fn, intervals):
  return np.asarray(_score(fn, intervals, fast_keys(0, B)))


@pytest.mark.parametrize("name", slow_but(SCORES, ["interval", "discrete"]))
def test_every_score_is_finite_and_independent_of_the_order_of_tokens(name):
  fn = DiscreteScore(DiscreteSet(4)) if name == "discrete" else SCORES[name]()
  order = np.random.default_rng(1).permutation(V)
  for count in (1, 3):
    one = heads(count)
    moved = jax.tree.map(lambda x: x[..., order], one)
    value = score(fn, one)
    assert value.shape == (B,) and np.isfinite(value).all() and (value >= 0).all()
    np.testing.assert_allclose(score(fn, moved), value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["entropy", "entropy_lens", "max_prob", "temperature"])
def test_baselines_rank_a_flat_distribution_above_a_sharp_one(name):
  flat, sharp = heads(1, spread=0.1), heads(1, spread=20.0)
  assert score(SCORES[name](), flat).min() > score(SCORES[name](), sharp).max()


def test_baselines_by_hand():
  p = np.asarray(jax.nn.softmax(heads(1).centre[:, 0]), np.float64)
  np.testing.assert_allclose(score(SCORES["entropy"](), heads(1)), -(p * np.log(p)).sum(1), rtol=1e-5)
  np.testing.assert_allclose(score(SCORES["max_prob"](), heads(1)), 1 - p.max(1), rtol=1e-5)
  hot = p**0.5 / (p**0.5).sum(1, keepdims=True)
  spread = TemperatureSpread((1.0, 2.0))
  np.testing.assert_allclose(score(spread, heads(1)), 1 - ((p * p).sum(1) + (p * hot).sum(1)) / 2, rtol=1e-5)


def test_entropy_lens_is_the_mean_over_layers_by_hand():
  one = heads(1)
  layers = np.concatenate([one.lens, one.centre], axis=1).astype(np.float64)  # [B, 3, V]
  p = np.exp(layers) / np.exp(layers).sum(-1, keepdims=True)
  np.testing.assert_allclose(score(EntropyLens(), one), -(p * np.log(p)).sum(-1).mean(-1), rtol=1e-5)
  alone = one._replace(lens=one.lens[:, :0])  # an edge network of one layer
  np.testing.assert_allclose(score(EntropyLens(), alone), score(SCORES["entropy"](), alone), rtol=1e-6)
  with pytest.raises(ValueError, match="logits of its layers"):
    score(EntropyLens(), one._replace(lens=None))


def test_scores_by_name():
  assert make_score("interval:additive:paper", "voting") == IntervalScore(Uncertainty("additive"), "paper", "voting")
  assert make_score("discrete:50:gap:generic") == DiscreteScore(DiscreteSet(50, "gap", "generic"))
  assert [make_score(name) for name in SCORES] == [score_class() for score_class in SCORES.values()]
  assert make_score("interval:radius=0.5") == IntervalScore(radius=0.5)
  for bad in ("certainty", "interval:median", "entropy:3", "discrete:lots", "interval:radius=wide", "interval:radius=0", ""):
    with pytest.raises(ValueError, match="Must have"):
      make_score(bad)


def test_one_radius_for_all_tokens_leaves_the_centre_alone():
  one = heads(2)
  other = one._replace(radius=3 * one.radius)
  control = make_score("interval:radius=0.5")
  np.testing.assert_array_equal(score(control, one), score(control, other))
  learnt = one._replace(radius=jnp.full_like(one.radius, 0.5))
  np.testing.assert_array_equal(score(control, one), score(make_score("interval"), learnt))
  assert (score(make_score("interval"), one) != score(control, one)).all()


def test_random_score_depends_on_its_keys_alone():
  one = Intervals(jnp.zeros((4000, 1, V)), jnp.zeros((4000, 1, V)))
  value = np.asarray(Random()(one, jnp.zeros((4000, 1)), rng.row_keys(jax.random.key(1), 4000)))
  assert abs((value <= 0.3).mean() - 0.3) < 0.03
  np.testing.assert_array_equal(value, Random()(one, jnp.zeros((4000, 1)), rng.row_keys(jax.random.key(1), 4000)))


def test_ensemble_averages_bounds_and_scales_once():
  three = heads(3)

  @jax.jit
  def wanted(centre, radius):
    bounds = inter_fuse(centre, radius)
    mean = type(bounds)(*(x.mean(1) for x in bounds))
    distribution = jax.nn.softmax(combined_logits(centre, "ensemble"))
    return Uncertainty()(mean.width), Uncertainty()(scaled_bounds(mean).width), distribution, jax.nn.softmax(centre).mean(1)

  plain, paper, distribution, mean = wanted(three.centre, three.radius)
  np.testing.assert_allclose(score(IntervalScore(), three), plain, rtol=1e-5)
  np.testing.assert_allclose(score(IntervalScore(scaling="paper"), three), paper, rtol=1e-5)
  np.testing.assert_allclose(distribution, mean, rtol=1e-5)


@pytest.mark.slow
def test_voting_follows_the_majority():
  """Two of three heads are the majority; ties go to the token of larger mean probability; U is their mean."""
  distribution = lambda *p: np.log(np.array(p))
  centre = jnp.asarray(
    [
      [distribution(0.6, 0.3, 0.1), distribution(0.5, 0.4, 0.1), distribution(0.01, 0.98, 0.01)],
      [distribution(0.5, 0.3, 0.2), distribution(0.1, 0.8, 0.1), distribution(0.1, 0.2, 0.7)],
    ],
    jnp.float32,
  )
  weights = np.asarray(head_weights(centre, "voting"))
  np.testing.assert_allclose(weights, [[0.5, 0.5, 0], [0, 1, 0]])
  radius = jnp.asarray(np.random.default_rng(0).gamma(1, 1, size=centre.shape), jnp.float32)
  each = Uncertainty()(inter_fuse(centre, radius).width)
  keys = rng.row_keys(jax.random.key(0), 2)
  value = jax.jit(IntervalScore(combination="voting"))(Intervals(centre, radius), jnp.zeros((2, 1)), keys)
  np.testing.assert_allclose(value, (each * weights).sum(1), rtol=1e-5)
  np.testing.assert_allclose(jax.nn.softmax(combined_logits(centre, "voting"))[0], [0.55, 0.35, 0.1], rtol=1e-5)


@pytest.mark.slow
def test_a_single_head_is_unchanged_by_every_combination():
  one = heads(1)
  for combination in ("ensemble", "voting"):
    np.testing.assert_array_equal(combined_logits(one.centre, combination), one.centre[:, 0])
    direct = Uncertainty()(inter_fuse(one.centre, one.radius).width)[:, 0]
    np.testing.assert_allclose(score(IntervalScore(combination=combination), one), direct, rtol=1e-6)


def test_bad_settings_are_errors():
  for score_class, bad in (
    (IntervalScore, dict(scaling="soft")),
    (IntervalScore, dict(combination="sum")),
    (TemperatureSpread, dict(temperatures=(0.0,))),
  ):
    with pytest.raises(ValueError, match="Must have"):
      score_class(**bad)
