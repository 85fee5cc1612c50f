"""The lifted world: the same images with twins of their background codes, and scores that see through them."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.engine.lifted import STEP, Lift
from experiments.engine.quality import Quality
from jaxspec.core import rng
from jaxspec.evaluation.scenes.world import BACKGROUNDS
from jaxspec.intervals.merged_codes import groups_within
from jaxspec.intervals.scores import make_score
from jaxspec.models import guidance
from jaxspec.models.guidance import Guided
from jaxspec.run.loading import load_pipeline
from jaxspec.sampling.logit_processing import Warp, sampling_params

LIFT = Lift(twins=5, sigma=1.5, uniform=0.2, top_p=0.9)


@pytest.fixture(scope="module")
def flat():
  return load_pipeline("scenes")


@pytest.fixture(scope="module")
def lifted(flat):
  return LIFT(flat)


def rows_of(pipeline):
  """Some tokens ``[2, 6]`` with runs of one background, and their numbers in the lifted world."""
  twins = pipeline.target.params.twins
  split = np.flatnonzero(twins.is_split)
  code = np.asarray(twins.code)
  one, other = (split[code[split] == c] for c in np.unique(code[split])[:2])
  return jnp.asarray([[one[0], one[2], one[1], 17, one[3], other[4]], [other[1], other[1], one[0], 5, 9, one[4]]], jnp.int32)


def passed(fns, params, condition, tokens, **kwargs):
  """Logits ``[2, 6, W]`` of the tokens after a prefill."""
  cache = fns.init_cache(2, 64)
  _, cache = fns.apply(params, condition, cache, positions=None)
  length = fns.prefix_len(condition)
  return fns.apply(params, tokens, cache, positions=jnp.arange(length, length + 6)[None], **kwargs)[0]


@pytest.mark.slow
def test_twins_share_the_probability_of_their_code(flat, lifted):
  twins, condition = lifted.target.params.twins, lifted.encode(["a red heart", "two cats"]).condition
  tokens = rows_of(lifted)
  output = passed(lifted.target.fns, lifted.target.params, condition, tokens)
  probs = np.asarray(jax.nn.softmax(output.logits), np.float64)
  whole = np.zeros((2, 6, 1024))
  np.add.at(whole, (slice(None), slice(None), np.asarray(twins.code)), probs)
  target, scale = flat.target, jnp.float32(flat.defaults.sampling["cfg_scale"])
  fns = guidance.guided(target.fns, features="combined")
  codes = passed(fns, Guided(target.params, scale), condition, twins.code[tokens]).logits
  np.testing.assert_allclose(whole, jax.nn.softmax(Warp(nucleus=True)(codes, sampling_params(top_p=0.9))), atol=2e-6)
  # After a twin of the same code the shares follow the grain; after another token they are equal.
  code, number = np.asarray(twins.code), np.asarray(twins.number)
  after = np.asarray(tokens)[0, 1]
  family = np.flatnonzero(code == code[after])
  shares = probs[0, 1, family] / probs[0, 1, family].sum()
  np.testing.assert_allclose(shares, np.exp(LIFT.grain())[number[after], number[family]], rtol=1e-4)
  others = np.flatnonzero(np.asarray(twins.is_split) & (code != code[after]))
  groups = probs[0, 1, others].reshape(-1)
  for c in np.unique(code[others]):
    np.testing.assert_allclose(groups[code[others] == c], groups[code[others] == c].mean(), rtol=1e-4)
  one = passed(lifted.target.fns, lifted.target.params, condition, tokens, logits_at=jnp.int32([4, 4]))
  np.testing.assert_allclose(one.logits[:, 0], output.logits[:, 4], atol=1e-4)


@pytest.mark.slow
def test_one_twin_is_the_flat_world(flat):
  alone = dataclasses.replace(LIFT, twins=1)(flat)
  assert alone.family.space.vocab_size == 1024
  condition, tokens = alone.encode(["a red heart", "two cats"]).condition, jnp.arange(12).reshape(2, 6)
  draft = flat.drafts["draft-1"]
  found = passed(alone.drafts["draft-1"].fns, alone.drafts["draft-1"].params, condition, tokens).logits
  expected = passed(draft.fns, draft.params, condition, tokens).logits
  np.testing.assert_array_equal(found, Warp(nucleus=True)(expected, sampling_params(top_p=0.9)))


@pytest.mark.slow
def test_images_are_those_of_the_codes(flat, lifted):
  twins = lifted.target.params.twins
  tokens = np.random.default_rng(0).integers(0, twins.code.shape[0], (2, 144)).astype(np.int32)
  np.testing.assert_array_equal(lifted.family.decode(tokens), flat.family.decode(np.asarray(twins.code)[tokens]))
  assert lifted.family.space.vocab_size == 1024 + 4 * len(BACKGROUNDS) == len(twins.code)
  assert lifted.family.space.embedding().shape == (len(twins.code), 257)


@pytest.mark.slow
def test_a_merged_score_sees_the_codes(flat, lifted):
  space, twins = lifted.family.space, lifted.target.params.twins
  groups = groups_within(space.codebook(), 1.2 * STEP, normalise=space.unit_codes)
  np.testing.assert_array_equal(np.asarray(groups.of_code), np.asarray(groups.of_code)[np.asarray(twins.code)])
  assert groups.first.shape == (1024,)
  condition, tokens = lifted.encode(["a red heart", "two cats"]).condition, rows_of(lifted)
  edge, own = lifted.drafts["inter-2"], flat.drafts["inter-2"]
  inputs = lambda network, ids: jax.tree.map(
    lambda leaf: leaf[:, 1], passed(network.fns, network.params, condition, ids).intervals
  )
  keys = rng.row_keys(jax.random.key(0), 2)
  score = lambda text, given, tables=(): np.asarray(make_score(text)(given, jnp.zeros((2, 0)), keys, tables))
  for name in ("interval", "entropy", "max_prob"):
    merged = score(f"merged:{1.2 * STEP:g}:{name}", inputs(edge, tokens), groups)
    np.testing.assert_allclose(merged, score(name, inputs(own, twins.code[tokens])), rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_the_mean_step_counts_neighbours_of_one_code(lifted):
  tokens = rows_of(lifted)
  assert LIFT.mean_step(lifted.target.params.twins, np.asarray(tokens)) == pytest.approx((2 + 1 + 0) / 3)
  assert math.isnan(LIFT.mean_step(lifted.target.params.twins, np.full((1, 4), 17)))


def test_entropy_of_a_twin():
  assert Lift(twins=1, sigma=1.0).nats() == 0.0
  for flat in (Lift(twins=64, sigma=0.0), Lift(twins=64, uniform=1.0)):
    assert flat.nats() == pytest.approx(math.log(64), rel=1e-5)
  # A Gaussian of 16 of 256 twins has log(16 sqrt(2 pi e)) nats; twins near the ends have fewer neighbours.
  gaussian = math.log(16 * math.sqrt(2 * math.pi * math.e))
  assert gaussian - 0.1 < Lift(twins=256, sigma=16.0, uniform=0.0).nats() < gaussian


def test_settings_that_do_not_fit():
  for wrong in (dict(twins=0), dict(sigma=-1.0), dict(uniform=1.5), dict(top_p=0.0)):
    with pytest.raises(ValueError, match="Must have twins from 1"):
      Lift(**wrong)
  assert Quality(title="t", rows=(), lift=LIFT).lift == LIFT
