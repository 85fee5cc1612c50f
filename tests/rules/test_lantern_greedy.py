"""LANTERN at temperature 0 on chains: the stored paths of the released code, and the whole method."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import rng
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Draft
from jaxspec.models.heads.eagle_head import EagleConfig, eagle_fns
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.rules.lantern_greedy import GreedyLanternRule
from jaxspec.rules.lantern_rule import LanternRule
from tests import helpers
from tests.rules import golden

ROWS = 32  # so that all calls for paths of one length share their programs


def _draft(tokens, target):
  return Draft.chain(jnp.asarray(tokens, jnp.int32), target[:, :-1], tokens.shape[1], 0)


@pytest.mark.slow
def test_golden_paths_as_chains():
  """Every root-to-leaf path of the stored trees is judged as a chain; the best one has the stored length and next row."""
  file, lengths = golden.load("tree_accept_greedy"), []
  table = jnp.asarray(file["neighbours"], jnp.int32)
  for case in range(int(file["n_cases"])):
    get = lambda name, case=case: file[f"g{case}_{name}"]
    enabled, num_neighbours, delta = get("lantern_k_delta")
    relaxed = LanternRule(int(num_neighbours), float(delta), delta > 1) if enabled else LanternRule(1, 0.0)
    logits, tokens = get("target_logits"), get("draft_tokens")
    paths = [path[path >= 0] for path in get("retrieve_indices")]
    found = [(0, 0)] * len(paths)
    for size in {len(path) for path in paths}:  # paths of one length are rows of one call, the last one repeated
      places = [place for place, path in enumerate(paths) if len(path) == size]
      assert len(places) <= ROWS
      nodes = np.stack([paths[place] for place in (places + places[-1:] * ROWS)[:ROWS]])
      target = jax.device_put(logits[nodes])
      keys = rng.row_keys(jax.random.key(case), ROWS)
      verdict = GreedyLanternRule(relaxed)(table, keys, _draft(tokens[nodes[:, 1:]], target), target)
      accepted, tokens_next = np.asarray(verdict.num_accepted), np.asarray(verdict.next_tokens[:, 0])
      for row, place in enumerate(places):
        found[place] = int(accepted[row]), int(tokens_next[row])
    best = int(np.argmax([length for length, _ in found]))
    assert (best, found[best][0]) == (get("best_row"), get("accept_length"))
    assert found[best][1] == get("next_logits").argmax()
    lengths.append(found[best][0])
  assert len(set(lengths)) > 1


@pytest.mark.slow
def test_a_borrowing_draft_replaces_the_arg_max():
  """With p = (.4, .3, .2, .1), token 1 borrows from 2 and exceeds 0; token 3 borrows too little."""
  table = jnp.asarray([[3, 1, 2], [2, 0, 3], [1, 0, 3], [2, 1, 0]], jnp.int32)
  rule = GreedyLanternRule(LanternRule(1, 0.25))
  target = jnp.log(jnp.broadcast_to(jnp.asarray([0.4, 0.3, 0.2, 0.1], jnp.float32), (3, 2, 4)))
  verdict = rule(table, rng.row_keys(jax.random.key(0), 3), _draft(np.asarray([[1], [3], [0]]), target), target)
  np.testing.assert_array_equal(verdict.num_accepted, [1, 0, 1])
  np.testing.assert_array_equal(verdict.next_tokens[:, 0], [0, 0, 0])  # always the arg-max of the original row


@pytest.fixture(scope="module")
def networks():
  target, draft = llamagen_fns(helpers.TARGET), llamagen_fns(helpers.DRAFT)
  codebook = jnp.asarray(np.random.default_rng(0).normal(size=(helpers.TARGET.vocab_size, 3)), jnp.float32)
  target = jaxspec.Network(target, helpers.random_params(target, 1), helpers.TARGET)
  return target, jaxspec.Network(draft, helpers.random_params(draft, 2)), codebook


@pytest.mark.slow
def test_the_whole_method_is_greedy_but_not_plain(networks):
  """The output is equal for all keys. With factor 1 it is plain greedy decoding; larger factors need fewer rounds."""
  target, draft, codebook = networks
  greedy = jaxspec.Decoder(target, sampling=jaxspec.SamplingConfig(temperature=0.0))
  decode = {}
  for factor in (1.0, 8.0):
    method = jaxspec.methods.Lantern(factor=factor, num_neighbours=6, gamma=3)
    decoder = dataclasses.replace(greedy, method=method, draft=draft, space=TokenSpace(codebook=lambda: codebook))
    decode[factor] = decoder(helpers.labels(3), key=jax.random.key(0), max_len=16)
    again = decoder(helpers.labels(3), key=jax.random.key(1), max_len=16)
    np.testing.assert_array_equal(decode[factor].tokens, again.tokens)
  plain = greedy(helpers.labels(3), key=jax.random.key(2), max_len=16)
  np.testing.assert_array_equal(decode[1.0].tokens, plain.tokens)
  assert (decode[8.0].tokens != plain.tokens).any()
  assert decode[8.0].counters.rounds.sum() < decode[1.0].counters.rounds.sum()


def test_options_without_a_distribution_are_errors(networks):
  target, draft, codebook = networks
  sampling, space = jaxspec.SamplingConfig(temperature=0.0), TokenSpace(codebook=lambda: codebook)
  decoder = jaxspec.Decoder(target, jaxspec.methods.Lantern(), draft, sampling, space, audit=True)
  with pytest.raises(ValueError, match="above 0 to audit"):
    _ = decoder.parts
  head = eagle_fns(EagleConfig.of(helpers.TARGET))
  eagle = jaxspec.Network(head, helpers.random_params(head, 3))
  trees = dataclasses.replace(decoder, method=jaxspec.methods.EagleLantern(num_neighbours=3), draft=eagle, audit=False)
  with pytest.raises(ValueError, match="above 0 for relaxed trees"):
    _ = trees.parts
