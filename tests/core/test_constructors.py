"""Drafters of one function get what a row consists of, whatever a round committed."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import testing
from jaxspec.core import rng
from jaxspec.core.constructors import from_features, from_history, stateless
from jaxspec.core.types import Draft
from jaxspec.rules.tree_rule import lossless_tree
from jaxspec.verifiers.target import target_features
from tests.contract.blocks import pausing, without_bonus
from tests.helpers import labels, markov_fns, side, slow_but

V, N, ROWS, WINDOW = 3, 12, 64, 3
LOGITS = jnp.asarray(np.random.default_rng(0).normal(size=(V + 1, V)), jnp.float32)
VERIFIERS = {"as it is": lambda verifier: verifier, "no bonus": without_bonus, "pauses": pausing}


def _chain(params, keys, cursor, *seen):
  tokens = jnp.int32(V * rng.uniforms(keys, WINDOW))
  return Draft.chain(tokens, jnp.zeros((*tokens.shape, V)), WINDOW, 0)


def _tree(params, keys, cursor, *seen):
  tokens = (cursor.last[:, None] + jnp.asarray([[0, 1, 2, 1]])) % V
  parents = jnp.broadcast_to(jnp.asarray([[-1, -1, 0, 1]], jnp.int32), tokens.shape)
  return Draft.tree(tokens, parents, 2, 0)


def _rounds(drafter, verifier, rule, **kwargs):
  """What is committed, and the drafter's state, after every round."""
  target = jaxspec.TargetVerifier(markov_fns(V), rule, warp=jaxspec.Warp(), feedback_fn=target_features)
  params, keys = jaxspec.SpecParams((), side(LOGITS)), testing.fast_keys(1, ROWS)
  call = dict(drafter=drafter, verifier=VERIFIERS[verifier](target), max_len=N) | kwargs
  for found in jaxspec.iterate(params, keys, labels(ROWS), **call):
    yield jax.tree.map(np.asarray, (found.tokens, found.cursor.length, found.drafter))
  assert (found.cursor.length == N).all() and found.counters.accepted.any()


CASES = list(itertools.product((False, True), VERIFIERS))


@pytest.mark.parametrize("is_tree, verifier", slow_but(CASES, [(False, "pauses")]))
def test_features_are_those_with_which_the_newest_token_was_drawn(is_tree, verifier):
  """Those of a Markov chain are the logits after the token before."""
  drafter = from_features(_tree if is_tree else _chain, window=4 if is_tree else WINDOW)
  for tokens, length, features in _rounds(drafter, verifier, lossless_tree if is_tree else jaxspec.lossless):
    before = np.where(length > 1, tokens[np.arange(ROWS), np.maximum(length - 2, 0)], V)
    np.testing.assert_array_equal(features, np.asarray(LOGITS)[before])


@pytest.mark.slow
@pytest.mark.parametrize("verifier", VERIFIERS)
def test_the_history_is_what_was_committed(verifier):
  drafter = from_history(_chain, window=WINDOW)
  for tokens, length, history in _rounds(drafter, verifier, jaxspec.lossless, target_prefix=3):
    valid = np.arange(N)[None] < length[:, None]
    np.testing.assert_array_equal(history.tokens[valid], tokens[valid])
    np.testing.assert_array_equal(history.condition.labels, labels(ROWS).labels)


def test_features_need_a_verifier_that_returns_them():
  target = jaxspec.TargetVerifier(markov_fns(V), jaxspec.lossless, warp=jaxspec.Warp())
  params = jaxspec.SpecParams((), side(LOGITS))
  with pytest.raises(ValueError, match=r"features \[B, T, D\] as the verifier's feedback, we instead got \(\)"):
    drafter = from_features(_chain, window=WINDOW)
    jaxspec.speculate(params, jax.random.key(0), labels(2), drafter=drafter, verifier=target, max_len=N)


def test_drafters_are_equal_where_their_functions_are():
  for make in (stateless, from_history, from_features):
    assert make(_chain, window=2) == make(_chain, window=2) and hash(make(_chain, window=2)) == hash(make(_chain, window=2))
    assert make(_chain, window=2) not in (make(_tree, window=2), make(_chain, window=3))
  assert len({make(_chain, window=2) for make in (stateless, from_history, from_features)}) == 3
