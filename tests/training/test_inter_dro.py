"""The Inter-DRO loss: its terms by hand, its gradient conventions, and its three structural facts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxspec.core.types import Intervals
from jaxspec.training.inter_dro import ABLATIONS, InterDro, inter_dro, worst_case

B, T, V = 2, 3, 5
VALID = np.array([[True, True, True], [True, False, True]])

_inter_dro = jax.jit(inter_dro, static_argnums=2)


def case(heads=1, seed=0):
  generator = np.random.default_rng(seed)
  centre, radius = generator.normal(size=(2, B, T, heads, V))
  return Intervals(jnp.asarray(centre), jnp.asarray(np.log1p(np.exp(radius)))), jnp.asarray(generator.normal(size=(B, T, V)))


@pytest.fixture(autouse=True)
def double():
  with jax.enable_x64(True):
    yield


def softmax(x):
  e = np.exp(x - x.max(-1, keepdims=True))
  return e / e.sum(-1, keepdims=True)


def test_terms_by_hand():
  intervals, cloud = case()
  config = InterDro(variation=0.7, cross_entropy=0.3, divergence=0.9, alpha=2.0)
  total, terms = _inter_dro(intervals, cloud, config, VALID)
  c, r, pi = np.asarray(intervals.centre[:, :, 0]), np.asarray(intervals.radius[:, :, 0]), softmax(np.asarray(cloud))
  distributions = dict(mid=softmax(c), up=softmax(c + r), lo=softmax(c - r))
  ce = {name: -(pi * np.log(p)).sum(-1)[VALID] for name, p in distributions.items()}
  expected = {f"anchor_{n}": (0.7 * np.abs(p - pi).sum(-1)[VALID] + 0.3 * ce[n]).mean() for n, p in distributions.items()}
  expected["align"] = 0.9 * (pi * np.log(pi / distributions["mid"])).sum(-1)[VALID].mean()
  expected["dro"] = (softmax(2 * ce["lo"]) * ce["lo"]).sum()
  assert terms.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_allclose(terms[name], value, rtol=1e-6, err_msg=name)
  np.testing.assert_allclose(total, sum(expected.values()), rtol=1e-6)


def test_ablations_drop_their_terms():
  names = {name: set(_inter_dro(*case(), config)[1]) for name, config in ABLATIONS.items()}
  everything = {"anchor_mid", "align", "anchor_up", "anchor_lo", "dro"}
  assert names["full"] == everything
  assert names["without_centre"] == everything - {"anchor_mid", "align"}
  assert names["without_upper"] == everything - {"anchor_up"}
  assert names["without_lower"] == everything - {"anchor_lo", "dro"}
  terms = _inter_dro(*case(), ABLATIONS["without_anchor"])[1]
  assert all(terms[name] == 0 for name in everything if name.startswith("anchor")) and terms["dro"] > 0


@pytest.mark.slow
def test_gradient_of_the_worst_case_is_that_of_logsumexp():
  """Differentiating through the weights would give another gradient."""
  errors, alpha = jnp.asarray(np.random.default_rng(0).gamma(1, 1, size=(4, 3))), 1.7
  valid = jnp.ones((4, 3), bool).at[1, 2].set(False)
  ours = jax.grad(worst_case)(errors, alpha, valid)
  soft = jax.grad(lambda e: jax.nn.logsumexp(jnp.where(valid, alpha * e, -jnp.inf)) / alpha)(errors)
  np.testing.assert_allclose(ours, soft, atol=1e-12)
  assert ours[1, 2] == 0 and abs(ours.sum() - 1) < 1e-9
  through = jax.grad(lambda e: jnp.sum(jax.nn.softmax(jnp.where(valid, alpha * e, -jnp.inf).ravel()) * e.ravel()))(errors)
  assert np.abs(ours - through).max() > 0.05


@pytest.mark.slow
def test_loss_does_not_depend_on_a_common_shift_of_the_radii():
  intervals, cloud = case()
  shift = jnp.asarray(np.random.default_rng(1).uniform(size=(B, T, 1, 1)) * 3)
  moved = intervals._replace(radius=intervals.radius + shift)
  for config in ABLATIONS.values():
    np.testing.assert_allclose(_inter_dro(moved, cloud, config)[0], _inter_dro(intervals, cloud, config)[0], rtol=1e-6)
    gradient = jax.grad(lambda r, config=config: _inter_dro(intervals._replace(radius=r), cloud, config)[0])(
      intervals.radius
    )
    np.testing.assert_allclose(gradient.sum(-1), 0, atol=1e-7)
  # The terms that fix the level depend on it.
  for extra in (dict(radius_weight=1.0), dict(width_weight=1.0)):
    config = InterDro(**extra)
    assert abs(_inter_dro(moved, cloud, config)[0] - _inter_dro(intervals, cloud, config)[0]) > 1e-3


def test_cross_entropy_and_divergence_have_one_gradient_on_the_centre():
  intervals, cloud = case()
  base = InterDro(variation=0.0, upper=False, lower=False)
  gradient = lambda config: jax.grad(lambda c: _inter_dro(intervals._replace(centre=c), cloud, config)[0])(intervals.centre)
  one = gradient(dataclasses.replace(base, cross_entropy=0.9, divergence=0.2))
  np.testing.assert_allclose(one, gradient(dataclasses.replace(base, cross_entropy=0.3, divergence=0.8)), atol=1e-7)


@pytest.mark.slow
def test_gradients_numerically_and_none_to_the_cloud():
  intervals, cloud = case(heads=2)
  config = InterDro(alpha=0.0, radius_weight=0.5, width_weight=0.1)  # constant weights: the loss itself is differentiable
  loss = lambda c, r: _inter_dro(Intervals(c, r), cloud, config, VALID)[0]
  check_grads(loss, intervals[:2], order=1, modes=["rev"], atol=1e-3, rtol=1e-3)
  assert not jax.grad(lambda x: _inter_dro(intervals, x, InterDro(coverage_weight=1.0))[0])(cloud).any()


def test_invalid_positions_have_no_gradient():
  intervals, cloud = case()
  gradient = jax.grad(lambda c: _inter_dro(intervals._replace(centre=c), cloud, InterDro(), VALID)[0])(intervals.centre)
  assert not np.asarray(gradient)[~VALID].any() and np.asarray(gradient)[VALID].any()


@pytest.mark.slow
def test_equal_synonyms_change_the_weights_of_positions_alone():
  """A code that is split into equal ones has the same gradient; errors grow by log M of the code's probability."""
  intervals, cloud = case()
  split, num = np.array([1, 3]), 6
  code = np.concatenate([np.arange(V), np.repeat(split, num - 1)])
  share = np.where(np.isin(code, split), -np.log(num), 0.0)
  lift = lambda logits: logits[..., code] + jnp.broadcast_to(share, (*logits.shape[:-1], len(code)))

  def term(name, centre_radius, is_split, alpha=1.0):
    centre, radius = centre_radius
    found = Intervals(lift(centre), radius[..., code]) if is_split else Intervals(centre, radius)
    return _inter_dro(found, lift(cloud) if is_split else cloud, InterDro(alpha=alpha), VALID)[1][name]

  gradient = lambda *of, **kwargs: jax.grad(lambda leaves: term(of[0], leaves, *of[1:], **kwargs))(tuple(intervals[:2]))
  for name in ("anchor_mid", "align", "anchor_up", "anchor_lo"):
    for found, wanted in zip(gradient(name, True), gradient(name, False)):
      np.testing.assert_allclose(found, wanted, atol=1e-12, err_msg=name)
  assert all(np.allclose(*pair, atol=1e-12) for pair in zip(gradient("dro", True, alpha=0), gradient("dro", False, alpha=0)))

  distribution = jax.nn.softmax(cloud)
  grown = jnp.sum(distribution[..., split], axis=-1) * np.log(num)

  def errors_of(leaves):
    return -jnp.sum(distribution * jax.nn.log_softmax((leaves[0] - leaves[1])[:, :, 0]), axis=-1)

  weights = jax.nn.softmax(jnp.where(VALID, errors_of(tuple(intervals[:2])) + grown, -jnp.inf).reshape(-1)).reshape(B, T)
  wanted = jax.grad(lambda leaves: jnp.sum(weights * jnp.where(VALID, errors_of(leaves), 0.0)))(tuple(intervals[:2]))
  for found, value, flat in zip(gradient("dro", True), wanted, gradient("dro", False)):
    np.testing.assert_allclose(found, value, atol=1e-12)
    assert np.abs(found - flat).max() > 1e-3


def test_heads_are_averaged():
  intervals, cloud = case(heads=3)
  one = [_inter_dro(Intervals(*(x[:, :, h : h + 1] for x in intervals[:2])), cloud, InterDro())[0] for h in range(3)]
  np.testing.assert_allclose(_inter_dro(intervals, cloud, InterDro())[0], np.mean(one), rtol=1e-6)


def test_bad_settings_are_errors():
  for bad in (dict(alpha=-1.0), dict(centre=False, upper=False, lower=False)):
    with pytest.raises(ValueError, match="Must have"):
      InterDro(**bad)
