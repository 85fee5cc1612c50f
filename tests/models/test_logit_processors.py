"""`Warp` and the guidance formula against stored outputs of the processors of image models."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.models.guidance import Guided, guided
from jaxspec.sampling.logit_processing import probabilities

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "discrete" / "logit_processors.npz")
LOGITS, TIES = jnp.asarray(GOLDEN["logits"]), jnp.asarray(GOLDEN["logits_ties"])


@pytest.mark.parametrize("top_k", [1, 10, 50])
def test_top_k_keeps_ties(top_k):
  for logits, name in ((LOGITS, f"topk{top_k}"), (TIES, f"topk{top_k}_ties")):
    found = jaxspec.Warp(top_k=top_k)(logits, jaxspec.sampling_params())
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(GOLDEN[name]))
    np.testing.assert_array_equal(found, GOLDEN[name])


@pytest.mark.parametrize("percent", [50, 90, 100])
def test_top_p_agrees_away_from_ties(percent):
  found = jaxspec.Warp(nucleus=True)(LOGITS, jaxspec.sampling_params(1.0, percent / 100))
  np.testing.assert_array_equal(np.isneginf(found), np.isneginf(GOLDEN[f"topp{percent}_hf"]))


def test_temperature_and_both_filters():
  found = jaxspec.Warp()(LOGITS, jaxspec.sampling_params(0.7))
  np.testing.assert_allclose(found, GOLDEN["temp07"], rtol=1e-6)
  both = jaxspec.Warp(top_k=100, nucleus=True)(LOGITS, jaxspec.sampling_params(1.0, 0.8))
  np.testing.assert_array_equal(np.isneginf(both), np.isneginf(GOLDEN["llamagen_topk_topp"]))


def _guided_logits(scale):
  """A model that returns the stored pair, conditional rows first, under the library's guidance."""
  pair = jnp.asarray(GOLDEN["cfg_pair"]).reshape(8, 1, -1)
  model = jaxspec.ModelFns(
    init=lambda key: (),
    init_cache=lambda batch, max_len: (),
    apply=lambda params, inputs, cache, **kwargs: (jaxspec.ModelOutput(pair, pair), cache),
    prefix_len=lambda condition: 1,
    null_condition=lambda params, condition: condition,
  )
  params = Guided((), jnp.float32(scale))
  inputs = jnp.zeros((4, 1), jnp.int32)
  output, _ = guided(model).apply(params, inputs, (), positions=inputs)
  return output.logits[:, 0]


def test_guidance_comes_before_the_filters():
  for scale, name in ((1.0, "cfg_1_0"), (3.0, "cfg_3_0"), (7.5, "cfg_7_5")):
    np.testing.assert_allclose(_guided_logits(scale), GOLDEN[name], atol=1e-4)
  warped = jaxspec.Warp(top_k=40)(_guided_logits(3.0), jaxspec.sampling_params())
  np.testing.assert_array_equal(np.isneginf(warped), np.isneginf(GOLDEN["chain_cfg3_topk40_logits"]))
  np.testing.assert_allclose(probabilities(warped), GOLDEN["chain_cfg3_topk40_prob"], atol=1e-5)
