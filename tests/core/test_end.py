"""End tokens: a row stops after its first end token from either side, and its other tokens do not change."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core.commits import is_end_token
from jaxspec.core.state import Origin
from tests.helpers import TARGET, eagle_condition, labels, tiny_eagle, tiny_pair

N, ROWS = 16, 6


def _decoder(method):
  """``(params, kwargs of speculate, condition)``."""
  if method == "tree":
    params, kwargs, _, _ = tiny_eagle("classes")
    return params, kwargs, eagle_condition("classes", ROWS)
  params, drafter, verifier = tiny_pair()
  return params, dict(drafter=drafter, verifier=verifier), labels(ROWS)


def _cut(tokens, ends):
  """Rows up to their first end token, 0 after it, and their lengths."""
  lengths = [next((i + 1 for i, t in enumerate(row) if t in ends), len(row)) for row in tokens]
  return np.where(np.arange(tokens.shape[1]) < np.asarray(lengths)[:, None], tokens, 0), lengths


@pytest.mark.slow
@pytest.mark.parametrize("method", ["chain", "tree"])  # tests/contract has one end token with every method
def test_rows_are_cut_after_their_first_end_token(method):
  params, kwargs, condition = _decoder(method)
  key = jax.random.key(4)
  never = None if method == "chain" else (TARGET.vocab_size,) * 2  # as many as below, so that one program serves all
  free = jaxspec.speculate(params, key, condition, **kwargs, max_len=N, end_token=never)
  assert (np.asarray(free.lengths) == N).all()
  ended_on = set()
  drafted = [
    token for row, mask in zip(np.asarray(free.tokens), np.asarray(free.accepted_mask))
    for place, token in enumerate(row.tolist()) if mask[place] and token not in row[:place]
  ]  # fmt: skip
  for ends in ((3, 3), (5, 9), (11, 2), *[(token, token) for token in drafted[:1]]):
    out = jaxspec.speculate(params, key, condition, **kwargs, max_len=N, end_token=ends)
    tokens, lengths = _cut(np.asarray(free.tokens), ends)
    np.testing.assert_array_equal(out.tokens, tokens)
    np.testing.assert_array_equal(out.lengths, lengths)
    for name in ("origin", "commit_round", "accepted_mask"):
      inside = np.arange(N)[None] < np.asarray(lengths)[:, None]
      np.testing.assert_array_equal(getattr(out, name), np.where(inside, getattr(free, name), 0))
    counters = out.counters
    np.testing.assert_array_equal(out.accepted_mask.sum(1), counters.accepted)
    # Every token is the first, is accepted, or ends a round. A drafted end token leaves its round without such a token.
    last = np.asarray(out.origin)[np.arange(ROWS), np.asarray(lengths) - 1]
    drafted_end = np.isin(np.asarray(out.tokens)[np.arange(ROWS), np.asarray(lengths) - 1], ends) & (last == Origin.DRAFT)
    np.testing.assert_array_equal(1 + counters.accepted + counters.rounds - drafted_end, lengths)
    assert (np.asarray(counters.rounds) <= np.asarray(free.counters.rounds)).all()
    ended_on |= {int(origin) for origin, length in zip(last, lengths) if length < N}
  assert int(Origin.DRAFT) in ended_on


@pytest.mark.slow
def test_drivers_and_plain_decoding_agree_on_end_tokens():
  params, kwargs, condition = _decoder("chain")
  call = dict(max_len=N, end_token=(3, 7))
  fused = jaxspec.speculate(params, jax.random.key(1), condition, **kwargs, **call)
  host = jaxspec.speculate(params, jax.random.key(1), condition, **kwargs, **call, loop="host")
  chex.assert_trees_all_equal(fused, host)
  *_, edge = jaxspec.iterate(params, jax.random.key(1), condition, **kwargs, **call)
  np.testing.assert_array_equal(edge.tokens, fused.tokens)
  plain = jaxspec.autoregress(params, jax.random.key(1), condition, verifier=kwargs["verifier"], **call)
  np.testing.assert_array_equal(plain.counters.target_calls, plain.lengths)  # a finished row makes no calls
  tokens = np.asarray(plain.tokens)
  np.testing.assert_array_equal(_cut(tokens, (3, 7))[0], tokens)


@pytest.mark.slow
def test_the_first_token_may_be_an_end_token():
  params, kwargs, condition = _decoder("chain")
  free = jaxspec.speculate(params, jax.random.key(4), condition, **kwargs, max_len=N)
  ends = tuple(int(token) for token in free.tokens[:2, 0])
  out = jaxspec.speculate(params, jax.random.key(4), condition, **kwargs, max_len=N, end_token=ends)
  np.testing.assert_array_equal(out.lengths[:2], 1)
  np.testing.assert_array_equal(out.counters.rounds[:2], 0)
  assert not np.asarray(out.tokens)[:2, 1:].any()


def test_one_end_token_equals_several_equal_ones():
  cursor = jaxspec.Cursor(*(jnp.zeros((2,), jnp.int32),) * 2, jnp.ones((2,), bool), jnp.int32(0))
  tokens = jnp.asarray([[3, 7, 4], [5, 3, 3]])
  for end, expected in ((jnp.int32(3), tokens == 3), (jnp.asarray([3, 7]), (tokens == 3) | (tokens == 7))):
    np.testing.assert_array_equal(is_end_token(cursor._replace(end_tokens=end), tokens), expected)
  assert not is_end_token(cursor, tokens).any()
  assert not is_end_token(cursor._replace(end_tokens=jnp.int32(0)), jnp.zeros((2, 4))).any()  # continuous tokens
