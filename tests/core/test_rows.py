"""Rows with individual rounds, lengths, ends, sampling and guidance equal rows of one decode with these values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import commits, rng
from jaxspec.core.rounds import verify_round
from jaxspec.core.state import TargetSide
from jaxspec.core.types import Cursor, Draft
from jaxspec.models import guidance
from jaxspec.models.guidance import Guided
from jaxspec.models.llamagen import llamagen_fns
from jaxspec.rules.greedy import greedy
from jaxspec.sampling.logit_processing import Sampling
from jaxspec.verifiers.target import TargetState
from tests.helpers import TARGET, random_params

ROWS, WINDOW = 4, 4
ENDS = np.array([[4, -1], [5, 6], [-1, -1], [4, 2]], np.int32)


def side_of(guided, cache, row=None):
  """Parameters, target side and draft of all rows, or of one with scalars."""
  at = (lambda leaf: jax.device_put(leaf)) if row is None else lambda leaf: jax.device_put(leaf[row])
  kept = (lambda leaf: jax.device_put(leaf)) if row is None else lambda leaf: jax.device_put(leaf[row : row + 1])
  floats = lambda *values: at(np.array(values, np.float32))
  ints = lambda *values: np.array(values, np.int32)
  fns = llamagen_fns(TARGET)
  weights = random_params(fns, 2)
  weights = Guided(weights, floats(1.5, 3.0, 0.0, 1.0)) if guided else weights
  params = jaxspec.ModelParams(weights, Sampling(floats(0.5, 1.0, 2.0, 1.0), floats(0.9, 1.0, 0.3, 0.5)))
  tokens = np.random.default_rng(10).integers(0, 13, (ROWS, WINDOW + 1)).astype(np.int32)
  cursor = Cursor(kept(tokens[:, 0]), kept(ints(3, 9, 5, 6)), kept(np.ones(ROWS, bool)), at(ints(2, 7, 4, 0)), at(ENDS))
  state = TargetState(cache, at(ints(1, 3, 2, 1)))
  target = TargetSide(cursor, kept(rng.row_keys(jax.random.key(4), ROWS)), at(ints(16, 10, 7, 9)), state)
  return params, target, Draft.chain(kept(tokens[:, 1:]), (), kept(ints(4, 0, 1, 3)), 0)


@pytest.mark.slow
@pytest.mark.parametrize("guided", [False, True])
def test_a_round_of_different_rows(guided):
  fns = guidance.guided(llamagen_fns(TARGET)) if guided else llamagen_fns(TARGET)
  verifier = jaxspec.TargetVerifier(fns, greedy, warp=jaxspec.Warp(top_k=6, nucleus=True))
  generator = np.random.default_rng(1)
  draw = lambda leaf: leaf if leaf.dtype == bool else jax.device_put(generator.normal(size=leaf.shape).astype(leaf.dtype))
  cache = jax.tree.map(draw, fns.init_cache(ROWS, 24))
  run = jax.jit(lambda params, target, draft: verify_round(params, target, draft, verifier=verifier))
  after, verdict = run(*side_of(guided, cache))
  for row in range(ROWS):
    one, alone = run(*side_of(guided, fns.take(cache, jnp.asarray([row])), row))
    for name in ("num_accepted", "next_tokens", "num_next", "is_drafted"):
      np.testing.assert_array_equal(getattr(verdict, name)[row], getattr(alone, name)[0])
    for name in ("last", "length", "live"):
      np.testing.assert_array_equal(getattr(after.cursor, name)[row], getattr(one.cursor, name)[0])
    assert int(after.cursor.round[row]) == int(one.cursor.round)
  assert 0 < int(verdict.num_accepted.sum()) and not np.asarray(after.cursor.live).all()


def test_keys_and_end_tokens_of_rows():
  keys, rounds = rng.row_keys(jax.random.key(0), ROWS), jnp.asarray([5, 0, 3, 3])
  found = jax.random.key_data(rng.stream_keys(keys, rng.Stream.VERIFY, rounds))
  for row in range(ROWS):
    alone = rng.stream_keys(keys[row : row + 1], rng.Stream.VERIFY, rounds[row])
    np.testing.assert_array_equal(found[row], jax.random.key_data(alone)[0])
  tokens = jnp.asarray([[4, 5], [4, 6], [4, 5], [2, 4]])
  cursor = Cursor(tokens[:, 0], rounds, rounds > 0, rounds, jnp.asarray(ENDS))
  np.testing.assert_array_equal(
    commits.is_end_token(cursor, tokens), [[True, False], [False, True], [False, False], [True, True]]
  )
  np.testing.assert_array_equal(commits.is_end_token(cursor, tokens[:, 0]), [True, False, False, True])
