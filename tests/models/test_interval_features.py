"""Interval features: their inputs, untrained ones without effect, and their part of an edge's checkpoint."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core.types import Intervals
from jaxspec.intervals.inter_fuse import inter_fuse
from jaxspec.intervals.interval_uncertainty import Uncertainty
from jaxspec.io import checkpoints
from jaxspec.models.conditions import Prefixed
from jaxspec.models.heads.inter_head import InterHeadConfig, inter_head_fns
from jaxspec.models.heads.interval_features import IntervalFeaturesConfig, as_sent, interval_features_fns, token_input
from jaxspec.models.llamagen import llamagen_fns
from tests.helpers import DRAFT, TARGET, labels, random_params

V, D, T = TARGET.vocab_size, DRAFT.dim, 5


def said(heads=1, rows=2):
  generator = np.random.default_rng(0)
  draw = lambda *shape: jnp.asarray(generator.normal(size=shape), jnp.float32)
  intervals = Intervals(2 * draw(rows, T, heads, V), jnp.abs(draw(rows, T, heads, V)))
  return intervals, draw(rows, T, D), jnp.asarray(generator.integers(V, size=(rows, T)), jnp.int32)


def config(source="token"):
  return IntervalFeaturesConfig(width=TARGET.dim, input_width=D, vocab=V, hidden=8, source=source)


@pytest.mark.slow
def test_untrained_features_leave_the_cloud_s_logits_as_they_are():
  cloud = llamagen_fns(TARGET)
  weights = random_params(cloud, 2)
  intervals, features, tokens = said()
  run = jax.jit(lambda inject: cloud.apply(weights, Prefixed(labels(2), tokens), inject=inject)[0].logits)
  alone = run(jnp.zeros((2, T + 1, TARGET.dim)))
  for source in ("token", "all"):
    fns = interval_features_fns(config(source))
    params = fns.init(jax.random.key(0))
    vector = fns.apply(params, intervals, features, tokens)
    assert vector.shape == (2, T, TARGET.dim) and not np.asarray(vector).any()
    np.testing.assert_array_equal(run(jnp.pad(vector, ((0, 0), (1, 0), (0, 0)))), alone)
  trained = fns.apply(random_params(fns, 3), intervals, features, tokens)
  assert np.abs(run(jnp.pad(trained, ((0, 0), (1, 0), (0, 0)))) - alone).max() > 0.01


@pytest.mark.slow
def test_inputs_about_a_token_by_hand():
  intervals, _, tokens = said()
  bounds = inter_fuse(intervals.centre[..., 0, :], intervals.radius[..., 0, :])
  p = jax.nn.softmax(intervals.centre[..., 0, :])
  for row, position in np.ndindex(2, T):
    x = int(tokens[row, position])
    expected = [values[row, position, x] for values in (bounds.lower, bounds.upper, p)]
    got = token_input(intervals, tokens, "ensemble")[row, position]
    np.testing.assert_allclose(got, [*expected, Uncertainty()(bounds.width)[row, position]], rtol=1e-5)


def test_features_are_rounded_to_float16():
  values = np.array([1.0001, -3e-9, 70_000.0, np.nan], np.float32)
  np.testing.assert_array_equal(as_sent(jnp.asarray(values)), [1.0, 0.0, 0.0, 0.0])


def test_checkpoint_of_an_edge_with_features_round_trips(tmp_path):
  edge = InterHeadConfig(DRAFT, features=config())
  fns = inter_head_fns(edge)
  params = random_params(fns, 1)
  assert set(params) == {"trunk", "head", "features"}
  checkpoints.save(tmp_path / "edge", edge, params)
  loaded = checkpoints.load(tmp_path / "edge")
  assert loaded.config == edge and loaded.fns is fns
  jax.tree.map(np.testing.assert_array_equal, loaded.params, params)
  for bad in (dict(source="none"), dict(hidden=0), dict(combination="sum")):
    with pytest.raises(ValueError, match="Must have"):
      dataclasses.replace(config(), **bad)
