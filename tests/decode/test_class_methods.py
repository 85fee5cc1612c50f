"""Pictures of classes as one decode per method: what is shared, what is refused."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxspec import rng
from jaxspec.decode.class_methods import ClassMethod, class_decode, signal_of
from jaxspec.decode.state import Origin
from jaxspec.decode.token_methods import TokenSampling, nearest_stop
from jaxspec.diffusion.chain import token_noise
from jaxspec.models.conditions import ClassLabels, Prefixed
from jaxspec.token_bundle import head_fns, load_token_bundle
from jaxspec.verifiers.path_coupling import PathCoupling
from tests.cli import fake_classes

SAMPLING = TokenSampling(5, 1)
LABELS = ClassLabels(np.asarray([0, 2, 1], np.int32))


@pytest.fixture(scope="module", params=[pytest.param("masked", marks=pytest.mark.slow), "causal"])
def bundle(request, tmp_path_factory):
  network = {"masked": fake_classes.MAR, "causal": fake_classes.CAUSAL}[request.param]
  return load_token_bundle(fake_classes.make(tmp_path_factory.mktemp(request.param) / "bundle", network))


def drawn(bundle, method):
  params, decode = class_decode(bundle, method)
  keys = jax.random.key_data(jax.random.split(jax.random.key(3), 3))
  return jax.device_get(jax.jit(decode)(params, keys, LABELS))


@pytest.mark.slow
def test_first_tokens_are_those_of_the_whole_picture(bundle):
  whole = drawn(bundle, ClassMethod("ar", SAMPLING))
  part = drawn(bundle, ClassMethod("ar", SAMPLING, num_tokens=2))
  there = part.origin != Origin.EMPTY
  assert (there.sum(axis=1) == 2).all()
  np.testing.assert_allclose(part.tokens[there], whole.tokens[there], atol=1e-5)
  assert not part.tokens[~there].any()


@pytest.mark.slow
def test_a_draft_like_its_target_is_kept(bundle):
  """With the target's own weights as draft, drafts are kept, and the draft alone is the target alone."""
  twin = dataclasses.replace(bundle, drafts={"small": bundle.target})
  out = drawn(twin, ClassMethod("cspd", SAMPLING, gamma=2, rule=PathCoupling()))
  assert (out.origin != Origin.REPLACED).all() and (out.origin == Origin.DRAFT).any()
  target, draft = (drawn(twin, ClassMethod("ar", SAMPLING, alone=alone)).tokens for alone in (False, True))
  np.testing.assert_array_equal(target, draft)


def test_errors(bundle):
  with pytest.raises(ValueError, match="method in ar, parallel, cspd"):
    ClassMethod("beam")
  with pytest.raises(ValueError, match="for the draft alone"):
    ClassMethod("cspd", alone=True)
  with pytest.raises(ValueError, match="has no draft"):
    class_decode(dataclasses.replace(bundle, drafts={}), ClassMethod("ar", SAMPLING, alone=True))
  with pytest.raises(ValueError, match="gamma from 1 to 3"):
    class_decode(bundle, ClassMethod("cspd", SAMPLING, gamma=4))
  with pytest.raises(ValueError, match="causal one" if not bundle.is_masked else "num_iter from 1 to 4"):
    class_decode(bundle, ClassMethod("parallel", SAMPLING, num_iter=9))


@pytest.mark.slow
def test_refined_tokens_take_the_steps_left_out(bundle):
  """Token by token from the prefix alone, as the one pass over all places does it."""
  if bundle.is_masked:
    with pytest.raises(ValueError, match="by a causal network"):
      class_decode(bundle, ClassMethod("ar", SAMPLING, refine=True))
    return
  noisy, clean = (drawn(bundle, ClassMethod("ar", TokenSampling(5, 2), refine=refine)) for refine in (False, True))
  guided = drawn(bundle, ClassMethod("ar", TokenSampling(5, 2, scale=2.0), refine=True))
  assert np.isfinite(guided.tokens).all() and np.abs(guided.tokens - clean.tokens).max() > 1e-3
  head, params = head_fns(bundle.target), bundle.target.params
  fns = TokenSampling(5, None).bind(head)
  keys = rng.stream_keys(jax.random.split(jax.random.key(3), 3), rng.Stream.REFINE, 0)
  for place in range(4):
    z = head.network.apply(params, Prefixed(LABELS, noisy.tokens[:, :place]))[0].features[:, -1:]
    noise = token_noise(keys, np.full((1, 1), place), 2, head.token_dim)
    law, x = fns.law(params, z, np.full((1, 1), place)), noisy.tokens[:, place : place + 1]
    for step in (1, 0):
      at = law(np.int32(step), x)
      x = at.mean + (step > 0) * np.exp(0.5 * at.log_variance) * noise.steps[:, :, step]
    np.testing.assert_allclose(clean.tokens[:, place], x[:, 0], rtol=1e-4, atol=1e-4)
  method = ClassMethod("ar", TokenSampling(5, 2))
  assert signal_of(dataclasses.replace(method, refine=True)) == 1 > signal_of(method)
  with pytest.raises(ValueError, match="stop early"):
    class_decode(bundle, ClassMethod("ar", TokenSampling(5), refine=True))


def test_nearest_stop_keeps_the_noise_of_tokens():
  assert nearest_stop(50, 50, 5) == 5 and nearest_stop(100, 50, 5) == 9 and nearest_stop(8, 8, 4) == 4
