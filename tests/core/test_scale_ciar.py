"""CIAR on scales: its limits are other methods, and between them every scale follows the distribution of its side."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import methods
from jaxspec.core import rng
from jaxspec.core.network import Network
from jaxspec.core.state import Origin, SpecParams
from jaxspec.drafters.ciar_drafter import GatedParams
from jaxspec.drafters.ciar_scales import CiarScaleDrafter, pooled
from jaxspec.intervals.scores import make_score
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.tokenizers.var_vae import var_vae_fns
from jaxspec.models.var.var import var_fns
from jaxspec.rules.scale_rule import ScaleRule
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import ScaleSampling
from jaxspec.sampling.scale_network import ScaleNetwork, ScaleWeights
from jaxspec.testing import assert_same_distribution, fast_keys
from jaxspec.verifiers.scale_target import ScaleVerifier
from tests import helpers
from tests.core.next_scale import ScaleParams, generate_scales
from tests.methods import networks
from tests.scale_toy import ToyScales, places

SIDES, ROWS = (1, 2, 3), 3  # each scale is compiled in every program
SAMPLING = ScaleSampling(2.0, 4, 0.95, 3.0)
LABELS = ClassLabels(jnp.arange(ROWS))
TOY = ToyScales((1, 2, 1, 2), 2)
SHORT = ToyScales((1, 2, 1), 2)
LONG = ToyScales((1, 2, 1, 2, 1), 3)


@functools.cache
def _network(seed, sides=SIDES, **fields):
  config = dataclasses.replace(networks.VAR, sides=sides, **fields)
  fns, vae = var_fns(config), var_vae_fns(dataclasses.replace(networks.VAR_VAE, sides=sides))
  weights = ScaleWeights(helpers.random_params(fns, seed, scale=0.2), helpers.random_params(vae, 0, scale=0.2))
  return Network(ScaleNetwork(fns, vae), weights, config)


_cloud, _edge = functools.partial(_network, 1), functools.partial(_network, 2, inter_head=True)


def _keys():
  return fast_keys(3, ROWS)


def _draw(method, target=None, draft=None):
  draft = None if method.name == "ar" else draft or _edge()
  return Decoder(target or _cloud(), method, sampling=SAMPLING, draft=draft)(LABELS, key=_keys())


def _scales(network, last, refiner=None):
  """Scales of the direct sampler, with random numbers of the cloud below scale ``last`` and of the edge from it on."""
  streams = [rng.stream_keys(_keys(), stream, jnp.int32(0)) for stream in (rng.Stream.FIRST, rng.Stream.OPEN)]
  uniforms = [rng.uniforms(rng.of_token(streams[k >= last], k), side**2) for k, side in enumerate(SIDES)]
  model, tokenizer = network.fns.model, network.fns.tokenizer
  more = {} if refiner is None else dict(refiner=refiner.fns.model, refine_from=last)
  params = ScaleParams(*network.params, refiner=() if refiner is None else refiner.params.network)
  return generate_scales(
    model, tokenizer, params, jax.random.key(0), LABELS, SAMPLING.side(network).sampling, top_k=SAMPLING.top_k,
    uniforms=jnp.concatenate(uniforms, axis=1), **more,
  )  # fmt: skip


@pytest.mark.slow
def test_everything_is_local():
  """The edge alone: the scales of its own sampler, without cloud calls."""
  out = _draw(methods.ScaleCiar(tau=float("inf")))
  np.testing.assert_array_equal(places(out.tokens, _cloud().fns.sizes), _scales(_edge(), 0).tokens)
  assert (out.origin == int(Origin.LOCAL)).all() and not np.any(out.counters.target_calls)
  assert np.all(out.counters.local == 3) and np.all(out.counters.draft_calls == 3)


@pytest.mark.slow
def test_code():
  """The cloud draws the first two scales and the edge the last one (CoDe), with one call per scale of the cloud."""
  out = _draw(methods.ScaleCiar(tau=float("inf"), target_prefix=2 / 3))
  np.testing.assert_array_equal(places(out.tokens, _cloud().fns.sizes), _scales(_cloud(), 2, _edge()).tokens)
  assert np.all(out.counters.target_calls == 2) and np.all(out.counters.local == 1)
  assert out.origin.tolist() == [[Origin.FIRST, Origin.BONUS, Origin.LOCAL]] * ROWS


@pytest.mark.slow
def test_nothing_is_local():
  """The cloud alone, with every scale or all of the prefix."""
  alone = _draw(methods.Plain())
  for method in (methods.ScaleCiar(tau=-1.0, max_window=0), methods.ScaleCiar(tau=float("inf"), target_prefix=1.0)):
    out = _draw(method)
    np.testing.assert_array_equal(out.tokens, alone.tokens)
    np.testing.assert_array_equal(out.origin, alone.origin)
    assert np.all(out.counters.target_calls == 3)


@pytest.mark.slow
def test_nothing_is_local_with_a_window():
  """Speculative decoding, draw by draw."""
  exact = _draw(methods.ScaleSpeculative(gamma=1))
  asked = _draw(methods.ScaleCiar(tau=-1.0, max_window=1))
  for name in ("tokens", "origin", "commit_round"):
    np.testing.assert_array_equal(getattr(asked, name), getattr(exact, name))
  for name in ("rounds", "drafted", "accepted", "local", "target_calls"):
    np.testing.assert_array_equal(getattr(asked.counters, name), getattr(exact.counters, name))


@pytest.mark.slow
def test_an_inter_head_changes_the_radii_alone():
  """The network draws as without a head; U is the mean, or a quantile, over positions."""
  config = dataclasses.replace(_edge().config, inter_head=False)
  plain = {name: leaf for name, leaf in _edge().params.network.items() if name != "inter_head"}
  plain |= {"head": dict(plain["head"])}
  plain["head"]["bias"] = plain["head"]["bias"] + _edge().params.network["inter_head"]["centre_bias"][0]
  bare = Network(ScaleNetwork(var_fns(config), _edge().fns.tokenizer), _edge().params._replace(network=plain))
  side, other = SAMPLING.side(_edge()), SAMPLING.side(bare)
  hear = lambda fns: jax.jit(lambda side: fns.hear(side, fns.start(side, LABELS), [], first=0, end=1)[0][0])
  with_head, without = hear(_edge().fns)(side), hear(bare.fns)(other)
  np.testing.assert_allclose(with_head.centre, without.centre, rtol=1e-5, atol=1e-5)
  assert np.all(with_head.radius > 0) and not np.any(without.radius) and with_head.radius.shape == (ROWS, 1, 1, networks.V)
  fresh = jax.jit(_edge().fns.model.init)(jax.random.key(0))["inter_head"]
  assert jax.nn.softplus(fresh["radius_bias"]) == pytest.approx(0.5) and not np.any(fresh["radius_weight"])
  scores = jnp.asarray([[0.0, 1.0, 5.0], [2.0, 2.0, 2.0]])
  np.testing.assert_allclose(pooled(scores, None), [2.0, 2.0])
  np.testing.assert_allclose(pooled(scores, 0.5), [1.0, 2.0])


@functools.cache
def _toy_parts(toy, window, bonus, score):
  """Parts made once, so that calls of one shape share a trace."""
  verifier = ScaleVerifier(toy, ScaleRule(), bonus=bonus)
  return dict(drafter=CiarScaleDrafter(toy, make_score(score), most_drafts=window), verifier=verifier)


def _toy_decode(params, keys, tau, *, toy=TOY, window=1, bonus=False, score="max_prob"):
  parts = _toy_parts(toy, window, bonus, score)
  params = SpecParams(GatedParams(params.draft, jnp.float32(tau)), params.target)
  return jaxspec.speculate(params, keys, ClassLabels(jnp.zeros(len(keys), jnp.int32)), **parts, max_len=len(toy.sizes))


def _any(seed, toy):
  generator = np.random.default_rng(seed)
  return toy.tables(lambda num: generator.dirichlet(np.full(toy.vocab_size, 1.0), num))


def _joint(toy, params, tau):
  """Joint probability of all scales, where the edge's U given the previous scales selects the distribution."""
  joint, local = np.ones(1), 0
  for edge, cloud, table in zip(toy.laws(params.draft), toy.laws(params.target), params.draft):
    uncertain = np.mean(1 - np.max(np.exp(np.asarray(table, np.float64)), axis=-1), axis=-1)  # [rows]
    local = local + joint @ (uncertain <= tau)
    joint = (joint[:, None] * np.where((uncertain <= tau)[:, None], edge, cloud)).reshape(-1)
  return joint.reshape((toy.vocab_size,) * sum(toy.sizes)), local


@pytest.mark.parametrize(
  ("toy", "seed"),
  [(SHORT, 5), pytest.param(TOY, 1, marks=[pytest.mark.slow, pytest.mark.long_runs])],
  ids=["3 maps", "4 maps"],
)
def test_every_map_follows_the_side_that_decides_about_it(toy, seed):
  """Chi-square over all scales jointly, of batches whose rows stop each other and have pending scales."""
  params, tau, number = SpecParams(_any(seed, toy), _any(seed + 1, toy)), 0.2, len(toy.sizes)
  out = jax.jit(jax.vmap(lambda keys: _toy_decode(params, keys, tau, toy=toy)))(fast_keys(3, 8000).reshape(-1, 2))
  joint, local = _joint(toy, params, tau)
  assert_same_distribution(places(out.tokens.reshape(-1, number, 2), toy.sizes), joint)
  assert 1 < local < number - 0.5 and np.mean(out.counters.local) == pytest.approx(local, abs=0.05)
  assert np.all(out.counters.target_calls + out.counters.local >= number)  # a window of one scale: a call for each


def test_rows_alone_and_in_a_batch():
  """Without a bonus scale, a row has the same scales, with the same origins, in any batch. In a batch of its copies no other
  row stops it, and the program is that of all rows."""
  params, keys = SpecParams(_any(5, TOY), _any(6, TOY)), fast_keys(7, 10)
  kwargs = dict(tau=0.6, window=2, score="random")
  together = _toy_decode(params, keys, **kwargs)
  alone = [_toy_decode(params, keys[np.full(10, row)], **kwargs) for row in range(10)]
  np.testing.assert_array_equal(together.tokens, [out.tokens[0] for out in alone])
  local = lambda out: np.asarray(out.origin) == int(Origin.LOCAL)
  np.testing.assert_array_equal(local(together), [local(out)[0] for out in alone])
  assert 0 < local(together).mean() < 1 and any(np.any(out.accepted_mask[:, 1:]) for out in alone)


@pytest.mark.slow
def test_rows_alone_and_in_a_batch_without_drafts():
  """The cloud draws every uncertain scale itself."""
  params, keys = SpecParams(_any(5, TOY), _any(6, TOY)), fast_keys(7, 10)
  together, alone = (_toy_decode(params, some, tau=0.6, window=0, score="random") for some in (keys, keys[:1]))
  np.testing.assert_array_equal(together.tokens[:1], alone.tokens)
  np.testing.assert_array_equal(together.origin[:1], alone.origin)
  assert not np.any(together.counters.drafted) and 0 < np.mean(together.counters.local) < 4


@pytest.mark.slow
def test_a_window_begins_where_the_edge_is_uncertain():
  """Equal networks: two certain scales, an uncertain one, and the rest; one pass of the cloud."""
  sizes = LONG.sizes
  certain, even = [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]
  spread = iter((certain, certain, even, certain, certain))
  table = LONG.tables(lambda num: np.tile(next(spread), (num, 1)))
  out = _toy_decode(SpecParams(table, table), fast_keys(1, 3), 0.1, toy=LONG, window=2, bonus=True)
  assert out.origin.tolist() == [[Origin.LOCAL, Origin.LOCAL, Origin.DRAFT, Origin.DRAFT, Origin.BONUS]] * 3
  counters = {name: np.unique(getattr(out.counters, name)).tolist() for name in ("target_calls", "drafted", "accepted")}
  assert counters == {"target_calls": [1], "drafted": [2], "accepted": [2]}
  # The edge makes a pass for the first scale, for the second, and two for the window.
  assert np.all(out.counters.draft_calls == 4)
  scores = np.asarray(out.report.scores)
  np.testing.assert_allclose(scores[:, :4], [[0, 0, 0.5, 0]] * 3, atol=1e-6)
  assert np.isnan(scores[:, 4]).all()
  np.testing.assert_array_equal(out.report.sent, 4)  # two pending scales, and the window
  assert len(sizes) == 5


@pytest.mark.slow
def test_bad_settings_are_errors():
  for make, words in (
    (lambda: methods.ScaleCiar(max_window=-1), "max_window"),
    (lambda: _draw(methods.ScaleCiar()), "tau for method scale-ciar"),
    (lambda: methods.ScaleCiar(map_quantile=2.0), "map_quantile"),
    (lambda: methods.ScaleCiar(score="luck"), "a score in"),
    (lambda: methods.ScaleCiar(rule="none"), "rule"),
    (lambda: methods.ScaleCiar(max_window=4).check_length(4), "max_window below the 4 tokens of a row"),
    (lambda: CiarScaleDrafter(TOY, make_score("entropy"), most_drafts=-1), "window of at least 0"),
    (lambda: Decoder(_cloud(), methods.ScaleCiar(), sampling=SAMPLING).parts, "a draft network"),
    (
      lambda: Decoder(_cloud(), methods.ScaleCiar(), sampling=SAMPLING, draft=_network(1, sides=(1, 2))).parts,
      "a draft of scales",
    ),
  ):
    with pytest.raises(ValueError, match=words) as caught:
      make()
    assert "\n" not in str(caught.value)
