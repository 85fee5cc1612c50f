"""Logit processing against the official sampler's outputs, and the inverse-CDF draw against its distribution."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import jaxspec
from jaxspec.sampling import logit_processing

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "llamagen" / "sampling.npz")


@pytest.mark.parametrize("index", range(len(GOLDEN["combos"])))
def test_golden_combinations(index):
  temperature, top_k, top_p = GOLDEN["combos"][index]
  warp = jaxspec.Warp(top_k=int(top_k), nucleus=bool(top_p < 1))
  logits = warp(jnp.asarray(GOLDEN["logits"]), jaxspec.sampling_params(temperature, top_p))
  expected = GOLDEN[f"probs_{index}"]
  np.testing.assert_array_equal(np.isneginf(logits), np.isneginf(GOLDEN[f"filtered_{index}"]))
  np.testing.assert_allclose(logit_processing.probabilities(logits), expected, atol=1e-6)
  np.testing.assert_array_equal(jnp.argmax(logits, -1), GOLDEN[f"argmax_{index}"][:, 0])


def test_golden_ties_all_survive():
  names = [k for k in GOLDEN.files if k.startswith("tie_")]
  combos, logits = GOLDEN["tie_combos"], jnp.asarray(GOLDEN["tie_logits"])
  for index, (temperature, top_k, _) in enumerate(combos):
    warped = jaxspec.Warp(top_k=int(top_k))(logits, jaxspec.sampling_params(temperature))
    np.testing.assert_allclose(logit_processing.probabilities(warped), GOLDEN[f"tie_probs_{index}"], atol=1e-6)
  assert names


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 127, 128, 129, 512, 1000])
def test_inverse_cdf_is_the_cdf(size):
  """The midpoint of every token's interval gives that token, zero weights are never drawn, the ends of [0, 1) are safe."""
  weights = np.random.default_rng(size).gamma(0.3, size=size).astype(np.float32)
  weights[1::3] = 0
  weights[0] = 1.0
  ends = np.cumsum(weights.astype(np.float64)) / weights.sum(dtype=np.float64)
  starts = np.concatenate([[0], ends[:-1]])
  wide = ends - starts > 1e-5
  middle = ((starts + ends) / 2)[wide].astype(np.float32)
  edges = np.asarray([0.0, np.nextafter(np.float32(1), np.float32(0))], np.float32)
  uniforms = np.concatenate([middle, edges])
  drawn = np.asarray(jax.jit(logit_processing.inverse_cdf)(np.broadcast_to(weights, (len(uniforms), size)), uniforms))
  np.testing.assert_array_equal(drawn[:-2], np.flatnonzero(wide))
  assert (weights[drawn[-2:]] > 0).all()


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-20, 20, width=32), min_size=24, max_size=24), st.integers(0, 30), st.floats(0.05, 1.0))
def test_filters_keep_a_best_token_and_whole_ties(values, top_k, top_p):
  logits = jnp.asarray(values, jnp.float32)[None]
  warped = np.asarray(jaxspec.Warp(top_k=top_k, nucleus=True)(logits, jaxspec.sampling_params(1.0, top_p)))[0]
  kept = ~np.isneginf(warped)
  values = np.asarray(logits)[0]
  assert kept[np.argmax(values)]
  # The distribution does not depend on the order of ids: tokens with equal logits all survive or are all removed.
  assert not kept[~kept].any() and values[kept].min() >= (values[~kept].max() if (~kept).any() else -np.inf)


@pytest.mark.parametrize("scales", [(8.0, 5.0), (8.0, 0.1), (0.1, 0.2)], ids=["small", "small and large", "large"])
def test_nuclei_of_many_tokens(scales):
  """A nucleus equals that of a sort in float64, small or large, alone and in a batch; ties with its last id survive."""
  logits = np.random.default_rng(0).normal(size=(2, 3, 1000)).astype(np.float32) * np.float32(scales)[:, None, None]
  logits[..., 500:] = logits[..., :500]  # every logit twice
  warped = jax.jit(jaxspec.Warp(nucleus=True))(logits, jaxspec.sampling_params(1.0, 0.9))
  order = np.argsort(-logits, axis=-1, kind="stable")
  probs = np.take_along_axis(np.asarray(jax.nn.softmax(logits.astype(np.float64), axis=-1)), order, axis=-1)
  last = (np.cumsum(probs, axis=-1) - probs <= 0.9).sum(axis=-1, keepdims=True) - 1
  threshold = np.take_along_axis(logits, np.take_along_axis(order, last, axis=-1), axis=-1)
  np.testing.assert_array_equal(~np.isneginf(warped), logits >= threshold)
  alone = jaxspec.Warp(nucleus=True)(logits[1:, :1], jaxspec.sampling_params(1.0, 0.9))
  np.testing.assert_array_equal(warped[1:, :1], alone)
  sizes = (logits >= threshold).sum(axis=-1)
  assert all((sizes[row] < 100).all() if scale > 1 else (sizes[row] > 300).all() for row, scale in enumerate(scales))


@pytest.mark.parametrize("top_k", [1, 7, 100, 999])
def test_the_largest_of_many_tokens(top_k):
  """The kept ids are those of a sort, with all ties of the last; also with signed zeros, removed tokens and huge logits."""
  logits = np.random.default_rng(top_k).normal(size=(4, 3, 1000)).astype(np.float32)
  logits[0] = np.round(logits[0], 1)  # whole groups of ties
  logits[1, :, ::2] = -np.inf
  logits[2, 0], logits[2, 1, :500], logits[2, 1, 500:] = 0.0, 0.0, -0.0
  logits[3] *= np.float32(1e37)
  warped = np.asarray(jax.jit(jaxspec.Warp(top_k=top_k))(logits, jaxspec.sampling_params(1.0)))
  threshold = -np.sort(-logits, axis=-1)[..., top_k - 1 : top_k]
  np.testing.assert_array_equal(warped, np.where(logits >= threshold, logits, -np.inf))
  alone = jaxspec.Warp(top_k=top_k)(logits[3:, :1], jaxspec.sampling_params(1.0))
  np.testing.assert_array_equal(warped[3:, :1], alone)


@pytest.mark.parametrize("warp", [jaxspec.Warp(top_k=3), jaxspec.Warp(nucleus=True)])
def test_a_filter_outside_of_a_program_compiles_once(warp, compiled_operations):
  logits, params = jnp.arange(24.0).reshape(2, 12), jaxspec.sampling_params(1.0, 0.9)
  first, compiled = warp(logits, params), []
  listen = lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
  jax.monitoring.register_event_duration_secs_listener(listen)  # jax 0.8 cannot take a listener away again
  again = warp(logits, params)
  assert not compiled
  jax.jit(lambda x: 3 * x + 1)(logits)  # compilation is detected
  assert compiled
  np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("count", [40_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_chi_square_of_draws(count):
  logits = jnp.asarray(np.random.default_rng(0).normal(size=300) * 2, jnp.float32)
  uniform = jax.random.uniform(jax.random.key(0), (count,))
  tokens = jax.jit(logit_processing.sample)(jnp.broadcast_to(logits[None], (count, 300)), uniform)
  expected = np.asarray(jax.nn.softmax(logits), np.float64)
  observed = np.bincount(np.asarray(tokens), minlength=300)
  big = expected * count >= 5
  observed = np.append(observed[big], observed[~big].sum())
  expected = np.append(expected[big], expected[~big].sum())
  assert stats.chisquare(observed, expected / expected.sum() * count).pvalue > 0.01


def test_negative_top_k_is_an_error():
  with pytest.raises(ValueError, match="top_k"):
    jaxspec.Warp(top_k=-1)
