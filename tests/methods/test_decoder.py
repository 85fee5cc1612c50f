"""`Decoder`: the README's snippet, no second compilation, and errors of one line."""

import jax
import numpy as np
import pytest

from jaxspec import methods
from jaxspec.core import loop
from jaxspec.core.network import Network
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import ContinuousSampling, SamplingConfig
from tests.helpers import labels
from tests.methods.networks import condition_of, decoder, head, host, markov, small, vectors


def _readme(temperature=0.7):
  """The snippet of the README, on tables."""
  target, draft = markov(0), markov(1)
  return Decoder(
    target=Network(target.fns, target.params),
    method=methods.Speculative(draft=Network(draft.fns, draft.params), gamma=3),
    sampling=SamplingConfig(temperature=temperature, top_k=4),
  )


def test_a_decoder_of_ones_own_networks_compiles_once():
  bound = _readme()
  out = bound(labels(2), key=jax.random.key(1), max_len=9)
  assert out.tokens.shape == (2, 9) and out.lengths.tolist() == [9, 9]
  programs = loop._run._cache_size()
  again = _readme(0.9)(labels(2), key=jax.random.key(1), max_len=9)
  assert loop._run._cache_size() == programs and again.tokens.shape == (2, 9)

  direct = loop.speculate(
    bound.parts.params, jax.random.key(1), labels(2), drafter=bound.parts.drafter, verifier=bound.parts.verifier, max_len=9
  )
  assert loop._run._cache_size() == programs
  np.testing.assert_array_equal(direct.tokens, out.tokens)


@pytest.mark.slow
def test_all_ways_to_run_a_decoder_draw_the_same_tokens():
  bound = _readme()
  out = bound(labels(2), key=jax.random.key(1), max_len=9)
  keys = jax.random.key_data(jax.vmap(lambda r: jax.random.fold_in(jax.random.key(1), r))(np.arange(2)))
  compiled = jax.jit(bound.decode_fn(max_len=9))(bound.parts.params, keys, labels(2))
  np.testing.assert_array_equal(compiled.tokens, out.tokens)
  *_, last = bound.iterate(labels(2), key=jax.random.key(1), max_len=9)
  np.testing.assert_array_equal(last.tokens, out.tokens)


def test_the_draft_of_a_decoder_goes_over_that_of_its_method():
  method = methods.Speculative(draft=markov(1))
  assert Decoder(markov(0), method).drafting is markov(1)
  assert Decoder(markov(0), method, markov(2)).drafting is markov(2)
  assert Decoder(markov(0), methods.Plain(), markov(2)).drafting is None
  with pytest.raises(ValueError, match="a Network as draft of a decoder .*, we instead got 'small'"):
    Decoder(markov(0), methods.Speculative(draft="small")).parts


@pytest.mark.parametrize(
  "make, words",
  [
    (lambda: Decoder(markov(0).fns), "a Network as target of a decoder"),
    (lambda: Decoder(markov(0), "gsd"), "a Method in a decoder .*, we instead got 'gsd'"),
    (lambda: Decoder(markov(0), methods.Gsd), "a Method in a decoder"),
    (lambda: Decoder(markov(0), sampling={"top_k": 3}), "settings in SamplingConfig, .*, we instead got {'top_k': 3}"),
    (lambda: Decoder(markov(0), methods.Speculative(draft=markov(1).fns)).parts, "a Network as draft of a decoder"),
    (lambda: Decoder(markov(0), methods.Cspd()), "a ContinuousSampling for method cspd"),
    (lambda: Decoder(markov(0), methods.Gsd(), sampling=ContinuousSampling(5)), "a SamplingConfig for method gsd"),
    (lambda: Decoder(markov(0), sampling=ContinuousSampling(5)).parts, "network of continuous tokens"),
    (lambda: Decoder(markov(0), methods.Sqs()).parts, "a draft network for method sqs"),
    (lambda: Decoder(markov(0))(labels(1), key=jax.random.key(0)), "max_len where the number of tokens"),
    (lambda: Decoder(markov(0))(labels(1), key=jax.random.key(0), max_len=0), "at least 1 as max_len"),
    (lambda: next(decoder(small("parallel")).iterate(labels(1), key=jax.random.key(0))), "rounds of drafting"),
  ],
)
def test_what_does_not_fit_is_named(make, words):
  with pytest.raises(ValueError, match=words) as caught:
    make()
  assert "\n" not in str(caught.value)


def test_parallel_decoding_draws_whole_rows_in_a_given_order():
  bound = decoder(small("parallel"))
  condition = condition_of(bound, 2)
  for condition, options, words in (
    (condition, {"max_len": 3}, "max_len 4, whole rows"),
    (condition, {"end_token": 1}, "no end_token for continuous tokens"),
    (labels(2), {}, "OrderedLabels for parallel decoding, we instead got ClassLabels"),
  ):
    with pytest.raises(ValueError, match=words):
      bound(condition, key=jax.random.key(0), **options)


def test_memory_counts_caches_and_logits():
  """Keys and values of every layer for all slots, twice for guidance; logits with two temporaries; continuous tokens have
  none."""
  config, rows, window = host().config, 3, 2
  slots = 24  # condition, 16 tokens and the window, rounded up to a multiple of 8
  cache = lambda layers, dim, slots: layers * 2 * 4 * slots * dim + slots  # and one flag a slot
  logits = 3 * 4 * (window + 1) * config.vocab_size
  target, drafting = (rows * (cache(layers, config.dim, slots) + logits) for layers in (config.num_layers, 1))
  guided = SamplingConfig(cfg_scale=2.0)
  need = lambda *sampling, **fields: decoder(methods.EagleChain(gamma=2), *sampling, **fields).decode_bytes(rows, labels(1))
  assert need() == target + drafting
  assert need(guided) == 2 * (target + drafting)
  assert need(guided, draft=Network(head().fns, head().params, meta={"guided": False})) == 2 * target + drafting
  assert decoder(methods.EagleChain(gamma=2)).decode_bytes(rows, labels(1), max_len=32) > need()

  sampling = ContinuousSampling("ddim5", 1)
  cspd, plain = (decoder(small(name), sampling).decode_bytes(rows, labels(1)) for name in ("cspd", "ar"))
  assert plain == rows * cache(1, vectors("causal", 1).config.dim, 8) and cspd == 2 * plain
  assert decoder(small("parallel")).decode_bytes(rows, labels(1)) == 0


@pytest.mark.slow
def test_vectors_are_decoded_exactly_with_a_draft_that_is_the_target():
  """With one network on both sides every draft is accepted, and the first token is that of plain decoding."""
  twin = vectors("causal", 1)
  bound = decoder(small("cspd", exact=True), draft=twin)
  out = bound(labels(2), key=jax.random.key(3))
  np.testing.assert_array_equal(out.counters.accepted, out.counters.drafted)
  assert out.tokens.shape == (2, 4, 2) and np.isfinite(out.tokens).all()
