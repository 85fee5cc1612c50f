"""Contract of the loop: rows are independent, drivers agree, counters add up, and one compilation serves many calls."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import commits, rng, rounds
from jaxspec.core.constructors import VerifierOf
from jaxspec.core.loop import accepted_by_round
from jaxspec.core.no_draft import NO_DRAFTER
from jaxspec.core.types import Verifier
from jaxspec.models.conditions import ClassLabels
from tests.helpers import labels, tiny_pair

# Most tests have this length, these rows, and a window of 3: one program serves them.
N, ROWS = 16, 3


@pytest.mark.slow
def test_row_alone_equals_row_in_batch():
  params, drafter, verifier = tiny_pair(guided=True, warp=jaxspec.Warp(top_k=8), temperature=0.8)
  kwargs = dict(drafter=drafter, verifier=verifier, max_len=N)
  together = jaxspec.speculate(params, jax.random.key(3), labels(ROWS), **kwargs)
  keys = rng.row_keys(jax.random.key(3), ROWS)
  for row in range(ROWS):
    alone = jaxspec.speculate(params, keys[row : row + 1], ClassLabels(labels(ROWS).labels[row : row + 1]), **kwargs)
    np.testing.assert_array_equal(alone.tokens[0], together.tokens[row])
    for ours, theirs in zip(jax.tree.leaves(alone.counters), jax.tree.leaves(together.counters)):
      assert ours[0] == theirs[row]


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 3, 40])
def test_drivers_agree_and_counters_add_up(window):
  params, drafter, verifier = tiny_pair(window=window)
  kwargs = dict(drafter=drafter, verifier=verifier, max_len=N)
  fused = jaxspec.speculate(params, jax.random.key(0), labels(ROWS), **kwargs)
  if window in (3, 40):  # a usual window, and one beyond the end of every row
    host = jaxspec.speculate(params, jax.random.key(0), labels(ROWS), **kwargs, loop="host")
    chex.assert_trees_all_equal(fused, host)
    stepped = None
    for edge in jaxspec.iterate(params, jax.random.key(0), labels(ROWS), **kwargs):
      stepped = np.asarray(edge.tokens)
    np.testing.assert_array_equal(stepped, fused.tokens)

  counters = fused.counters
  np.testing.assert_array_equal(fused.lengths, N)
  np.testing.assert_array_equal(counters.target_calls, counters.rounds + 1)
  # Every token is the first, is accepted, or ends a round.
  np.testing.assert_array_equal(1 + counters.accepted + counters.rounds, N)
  np.testing.assert_array_equal(fused.accepted_mask.sum(1), counters.accepted)
  assert (np.asarray(counters.accepted) <= np.asarray(counters.drafted)).all()
  per_round = np.asarray(accepted_by_round(fused))
  np.testing.assert_array_equal(per_round.sum(1), N)
  np.testing.assert_array_equal((per_round > 0).sum(1), counters.rounds + 1)
  assert (per_round <= window + 1).all()


@pytest.mark.slow
def test_loops_of_plain_decoding_agree():
  params, _, verifier = tiny_pair()
  kwargs = dict(drafter=NO_DRAFTER, verifier=verifier, max_len=6)
  plain = jaxspec.autoregress(params, jax.random.key(0), labels(ROWS), verifier=verifier, max_len=6)
  for name in ("while", "fixed", "host"):
    out = jaxspec.speculate(params._replace(draft=()), jax.random.key(0), labels(ROWS), **kwargs, loop=name)
    chex.assert_trees_all_equal(out, plain)


@pytest.mark.parametrize(
  "call, message",
  [
    (dict(loop="python"), "'while', 'fixed' or 'host' as loop, we instead got 'python'"),
    (dict(loop="fixed"), "a constant number of rounds for loop 'fixed', we instead got a drafter"),
    (dict(loop="fixed", end_token=3, drafter=NO_DRAFTER), "we instead got an end token"),
    (dict(loop="fixed", drafter=NO_DRAFTER, verifier=VerifierOf(Verifier(), in_step=True)), "we instead got rows in step"),
  ],
)
def test_a_loop_that_does_not_fit_is_an_error(call, message):
  params, drafter, verifier = tiny_pair()
  with pytest.raises(ValueError, match=message):
    kwargs = dict(drafter=drafter, verifier=verifier, max_len=N) | call
    jaxspec.speculate(params, jax.random.key(0), labels(ROWS), **kwargs)


@pytest.mark.slow
def test_two_sides_exchange_only_draft_and_verdict():
  """Draft side and target side have their own cursors and exchange host arrays."""
  params, drafter, verifier = tiny_pair()
  kwargs = dict(drafter=drafter, verifier=verifier, max_len=N)
  expected = jaxspec.speculate(params, jax.random.key(5), labels(ROWS), **kwargs)

  keys = rng.row_keys(jax.random.key(5), ROWS)
  state = jax.jit(functools.partial(rounds.start, **kwargs))(params, keys, labels(ROWS))
  edge, cloud, cloud_cursor = state.draft_side, state.verifier, state.draft_side.cursor
  propose = jax.jit(lambda e: rounds.draft_round(params.draft, e, drafter=drafter))
  verify = jax.jit(lambda k, s, c, d: rounds.verify_step(params.target, k, s, c, d, verifier=verifier))
  commit = jax.jit(lambda w, v: rounds.commit_reply(params.draft, w, v, drafter=drafter))
  advance = jax.jit(lambda c, d, v: commits.advance(c, d, v, N))
  wire = lambda message: jax.tree.map(np.asarray, message)
  while np.asarray(cloud_cursor.live).any():
    waiting = propose(edge)
    verdict, cloud = verify(keys, cloud, cloud_cursor, wire(waiting.draft))
    cloud_cursor = advance(cloud_cursor, waiting.draft, verdict)
    edge = commit(waiting, wire(verdict))
    chex.assert_trees_all_equal(cloud_cursor, edge.cursor)
  np.testing.assert_array_equal(edge.tokens, expected.tokens)


@pytest.mark.slow
def test_identical_draft_is_always_accepted():
  params, _, verifier = tiny_pair()
  from jaxspec.models.llamagen import llamagen_fns
  from tests.helpers import TARGET

  drafter = jaxspec.SmallModelDrafter(llamagen_fns(TARGET), window=3, warp=jaxspec.Warp())
  same = jaxspec.SpecParams(params.target, params.target)
  out = jaxspec.speculate(same, jax.random.key(0), labels(2), drafter=drafter, verifier=verifier, max_len=N)
  np.testing.assert_array_equal(out.counters.accepted, out.counters.drafted)
  np.testing.assert_array_equal(out.counters.rounds, 4)  # 1 + 4 + 4 + 4 + 3


@pytest.mark.slow
def test_one_trace_serves_other_keys_prompts_temperatures_and_weights():
  params, drafter, verifier = tiny_pair()
  traced = chex.assert_max_traces(
    lambda p, k, c: jaxspec.speculate(p, k, c, drafter=drafter, verifier=verifier, max_len=8), n=1
  )
  run = jax.jit(traced)
  for seed, temperature in ((0, 1.0), (1, 0.5), (2, 2.0)):
    sampling = jaxspec.sampling_params(temperature)
    moved = jaxspec.SpecParams(*(s._replace(sampling=sampling) for s in params))
    run(moved, jax.random.key(seed), ClassLabels(jnp.full((2,), seed, jnp.int32)))
  # Constructors return the same object for equal arguments, so that calls of the public function do not compile again.
  again = tiny_pair()
  assert again[1] == drafter and again[2] == verifier


def test_bad_arguments_are_named():
  params, drafter, verifier = tiny_pair()
  with pytest.raises(ValueError, match="max_len"):
    jaxspec.speculate(params, jax.random.key(0), labels(2), drafter=drafter, verifier=verifier, max_len=0)
  with pytest.raises(ValueError, match="3 row keys"):
    keys = rng.row_keys(jax.random.key(0), 2)
    jaxspec.speculate(params, keys, labels(3), drafter=drafter, verifier=verifier, max_len=4)
  with pytest.raises(ValueError, match="at least 1"):
    tiny_pair(window=0)


@pytest.mark.slow
def test_single_token_needs_no_round():
  params, drafter, verifier = tiny_pair()
  out = jaxspec.speculate(params, jax.random.key(0), labels(2), drafter=drafter, verifier=verifier, max_len=1)
  plain = jaxspec.autoregress(params, jax.random.key(0), labels(2), verifier=verifier, max_len=1)
  np.testing.assert_array_equal(out.counters.rounds, 0)
  np.testing.assert_array_equal(out.tokens, plain.tokens)
