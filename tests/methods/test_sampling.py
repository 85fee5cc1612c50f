"""Sampling settings: their effects, and the noise of continuous tokens."""

import jax.numpy as jnp
import pytest

import jaxspec
from jaxspec.core.network import Network
from jaxspec.models.guidance import Guided
from jaxspec.sampling import ContinuousSampling, SamplingConfig, head_fns, nearest_stop
from tests.methods.networks import host, markov, vectors


def test_settings_of_ids():
  plain, cut = SamplingConfig(), SamplingConfig(top_k=5, top_p=0.9, temperature=0.5)
  assert plain.warp() == jaxspec.Warp() and cut.warp() == jaxspec.Warp(5, True)
  assert float(cut.params().temperature) == 0.5 and float(cut.params().top_p) == jnp.float32(0.9)
  assert not plain.is_guided and SamplingConfig(cfg_scale=1.5).is_guided


def test_a_side_is_guided_above_one_where_its_network_takes_guidance():
  network, learned = host(), Network(host().fns, host().params, meta={"guided": False})
  guided = SamplingConfig(cfg_scale=3.0, cfg_interval=4)
  fns, side = guided.side(network)
  assert isinstance(side.model, Guided) and side.model.scale == 3.0 and fns is guided.side(network)[0]
  assert fns is not SamplingConfig(cfg_scale=3.0).side(network)[0]  # the interval is static
  for sampling, part, options in (
    (SamplingConfig(), network, {}), (guided, learned, {}), (guided, network, {"guided": False})
  ):  # fmt: skip
    fns, side = sampling.side(part, **options)
    assert fns is host().fns and side.model is host().params
  assert isinstance(guided.side(learned, guided=True)[1].model, Guided)


def test_settings_of_vectors():
  head = head_fns(vectors("causal", 1))
  fns = ContinuousSampling("ddim5", 1).bind(head)
  assert (fns.num_steps, fns.noisy_end) == (4, True) and fns is ContinuousSampling("ddim5", 1, temperature=0.5).bind(head)
  assert ContinuousSampling("5").bind(head) is ContinuousSampling(5).bind(head) and ContinuousSampling("5").steps == 5
  guided = ContinuousSampling(5, cfg_scale=2.0)
  assert isinstance(guided.side(vectors("causal", 1)).model, Guided) and guided.bind(head) is not ContinuousSampling(5).bind(
    head
  )
  masked = head_fns(vectors("mar", 1))
  assert masked is head_fns(vectors("mar", 2)) and masked.num_tokens == 4
  with pytest.raises(ValueError, match="HeadFns, MARFns.* as markov 0, we instead got ModelFns"):
    head_fns(markov(0))


def test_the_signal_of_tokens_that_keep_noise():
  assert ContinuousSampling(50).signal() == 1 == ContinuousSampling(50, 5, refine=True).signal()
  noisy = [ContinuousSampling(50, stop).signal() for stop in (1, 5, 20)]
  assert 1 > noisy[0] > noisy[1] > noisy[2] > 0
  assert not ContinuousSampling(50, refine=True).is_refined and ContinuousSampling(50, 5, refine=True).is_refined


def test_other_steps_keep_the_noise_of_tokens():
  assert nearest_stop(50, 50, 5) == 5 and nearest_stop(100, 50, 5) == 9 and nearest_stop(8, 8, 4) == 4
  trained = ContinuousSampling(50, 5, temperature=0.9)
  other = trained.respaced(100)
  assert (other.steps, other.stop, other.temperature) == (100, 9, 0.9)
  assert abs(other.signal() - trained.signal()) < 0.01
  assert ContinuousSampling(50).respaced(25) == ContinuousSampling(25)
