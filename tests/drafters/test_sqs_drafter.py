"""Compressed drafting: the distribution of a round through real bytes by enumeration, and the mechanics of rounds.

The enumeration is that of `tests/rules/test_lossless.py`. Target probabilities in quarters and a denominator of 4 make
every threshold a multiple of 1/12. A draft is drawn by an integer below 4. So 4 * 4 * 12^3 rows give the distribution of a
round of two drafts exactly.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core import rng, rounds
from jaxspec.core.state import TargetSide
from jaxspec.drafters.sqs_drafter import SqsDrafter
from jaxspec.models.conditions import ClassLabels
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.sqs_codec import SqsCodec
from tests.helpers import labels, markov_fns, markov_joint
from tests.sqs_pair import codec_of, markov_pair, settings, tables

slow = lambda *case: pytest.param(*case, marks=pytest.mark.slow)
V, FIRST, ROWS = 3, 1, 200
QUARTERS = np.array([c for c in np.ndindex(5, 5, 5) if sum(c) == 4]) / 4
FOUR, TWELVE = (np.arange(4) + 0.5) / 4, (np.arange(12) + 0.5) / 12
CELLS = np.stack(np.meshgrid(FOUR, FOUR, TWELVE, TWELVE, TWELVE, indexing="ij"), -1).reshape(-1, 5).astype(np.float32)


def over_bytes(message, cursor, codec, window, equal=1):
  """Encodes a message to bytes and decodes it, as the other side would; ``equal`` consecutive rows share a message."""
  one, again = (lambda leaf: leaf[::equal] if jnp.ndim(leaf) else leaf), (lambda leaf: jnp.repeat(leaf, equal, axis=0))
  own, cursor = jax.tree.map(one, message), jax.tree.map(one, cursor)
  chex.assert_trees_all_equal(jax.tree.map(again, own), message)
  rounds, agreement, decoded = SqsCodec(codec, window), Agreement(4), []
  own, cursor = jax.device_get((own, cursor))
  for row in range(len(cursor.length)):
    one = lambda leaf, row=row: leaf[row : row + 1] if np.ndim(leaf) else leaf
    draft, at = jax.tree.map(one, own), jax.tree.map(one, cursor)
    decoded.append(rounds.decode_draft(rounds.encode_draft(draft, at, 4)[0], at, agreement).draft)
  return jax.tree.map(lambda *leaves: again(np.concatenate(leaves)), *decoded)


@functools.cache
def halves(policy):
  """``(codec, pair, send, judge)``: a round before and after its message, compiled for all rows of `CELLS`.

  Tables and budgets are traced. The rows continue after token `FIRST`.
  """
  kind, options = ("top", {}) if policy is None else ("conformal", dict(policy=policy))
  codec = codec_of(kind, V, 2 if kind == "top" else 3, ell=4, **options)
  sparsifier = settings(kind, 2, first=0.3, eta=0.9)
  pair = functools.partial(markov_pair, codec=codec, sparsifier=sparsifier, window=2)
  _, drafter, verifier = pair(*tables(V, 0), budget=1.0)

  @jax.jit
  def send(params):
    condition = ClassLabels(jnp.zeros((len(CELLS),), jnp.int32))
    state = rounds.start(params, jax.random.key(0), condition, drafter=drafter, verifier=verifier, max_len=4)
    cursor = state.draft_side.cursor._replace(last=jnp.full((len(CELLS),), FIRST, jnp.int32))
    cloud = TargetSide(cursor, state.draft_side.keys, jnp.int32(4), state.verifier)
    return rounds.draft_round(params.draft, state.draft_side.replace(cursor=cursor), drafter=drafter), cloud

  @jax.jit
  def judge(params, waiting, cloud, sent):
    cloud, verdict = rounds.verify_round(params.target, cloud, sent, verifier=verifier)
    return rounds.commit_reply(params.draft, waiting, verdict, drafter=drafter), cloud

  return codec, pair, send, judge


@pytest.mark.slow
@pytest.mark.parametrize(
  "policy, seed, budget",
  [(None, 0, 1e6), ("text", 1, 1e6), ("literal", 2, 7), ("drafted", 2, 7), (None, 3, 1), ("text", 3, 1)],
)
def test_enumerated_distribution_of_one_round_over_bytes(policy, seed, budget, monkeypatch):
  """The next three tokens after a first one; budgets for two drafts, one draft and none. Without a policy it is K-SQS."""
  generator = np.random.default_rng(seed)
  p = QUARTERS[generator.integers(len(QUARTERS), size=V + 1)]
  q = generator.dirichlet(np.ones(V), V + 1)
  columns, rows = np.pad(CELLS[:, :2], ((0, 0), (0, 1))), len(CELLS)
  monkeypatch.setattr(
    rng, "integer", lambda keys, offset, below: (jnp.asarray(columns)[:, offset] * below).astype(jnp.int32)
  )
  monkeypatch.setattr(rng, "uniforms", lambda keys, num: jnp.asarray(CELLS[:, 2 : 2 + num]))
  monkeypatch.setattr(rng, "final_uniform", lambda keys: jnp.asarray(CELLS[:, 4]))
  codec, pair, send, judge = halves(policy)
  params = pair(p, q, budget=budget)[0]
  waiting, cloud = send(params)
  sent = over_bytes(waiting.draft, cloud.cursor, codec, 2, equal=len(TWELVE) ** 3)  # the first two columns make the drafts
  done, cloud = judge(params, waiting, cloud, sent)
  chex.assert_trees_all_equal(done.cursor, cloud.cursor)

  gained, tokens = np.asarray(done.cursor.length) - 1, np.asarray(done.tokens)[:, 1:]
  assert int(waiting.draft.num_drafted.max()) == {1e6: 2, 7: 1, 1: 0}[budget]
  distribution = np.zeros((V,) * 3)
  for count in (1, 2, 3):
    heads, number = np.unique(tokens[gained == count, :count], axis=0, return_counts=True)
    for head, n in zip(heads, number):
      tail = np.ones(()) if count == 3 else markov_joint(np.vstack([p[:-1], p[head[-1]]]), 3 - count)
      distribution[tuple(head)] += n / rows * tail
  error = np.abs(distribution - markov_joint(np.vstack([p[:-1], p[FIRST]]), 3)).max()
  assert error < 1e-5, error


@functools.cache
def stepper(policy):
  """One compiled round of C-SQS; budget and end token are traced."""
  codec = codec_of("conformal", 6, 4, ell=20, policy=policy)
  pair = functools.partial(markov_pair, *tables(6, 1), codec, settings("conformal", 4, first=0.15), window=3)
  _, drafter, verifier = pair(budget=1.0)

  @jax.jit
  def run(params, key, end_token):
    state = rounds.start(params, key, labels(ROWS), max_len=30, end_token=end_token, drafter=drafter, verifier=verifier)
    waiting = rounds.draft_round(params.draft, state.draft_side, drafter=drafter)
    cloud = TargetSide(state.draft_side.cursor, state.draft_side.keys, jnp.int32(30), state.verifier)
    cloud, verdict = rounds.verify_round(params.target, cloud, waiting.draft, verifier=verifier)
    return state.draft_side, waiting, verdict, rounds.commit_reply(params.draft, waiting, verdict, drafter=drafter)

  return run, pair


def stepped(policy="text", budget=1e6, end_token=-1):
  """The draft side before a round, while it waits, the verdict, and the draft side after the round, as host arrays."""
  run, pair = stepper(policy)
  out = run(pair(budget=budget)[0], jax.random.key(1), jnp.int32(end_token))
  is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
  return jax.tree.map(lambda x: x if is_key(x) else np.asarray(x), out)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["text", slow("literal"), slow("drafted")])
def test_thresholds_are_rolled_back_to_the_committed_token(policy):
  """Compares with a controller in NumPy that reads the committed tokens only (text), or the published indices."""
  q = tables(6, 1)[1]
  before, waiting, verdict, after = stepped(policy)
  eta, alpha = 0.1, 0.1
  accepted, drafted = verdict.num_accepted, waiting.draft.num_drafted
  assert len(np.unique(accepted)) > 2
  for row in range(len(accepted)):
    tokens = [before.cursor.last[row], *waiting.draft.tokens[row, : drafted[row]]]
    beta = [np.float32(0.15)]
    for token in tokens:
      distribution = q[token]
      kept = np.sort(distribution[distribution >= beta[-1]])[::-1][:4]
      error = 1.0 if not len(kept) else 1 - kept.sum()
      beta.append(beta[-1] - eta * (error - alpha))
    position = dict(text=accepted[row] + 1, literal=accepted[row], drafted=drafted[row])[policy]
    np.testing.assert_allclose(after.drafter.sparsifier.high[row], beta[position], atol=2e-6)


@pytest.mark.slow
def test_rounds_end_at_the_end_token_and_at_the_budget():
  before, waiting, _, after = stepped(budget=30.0, end_token=2)
  draft = waiting.draft
  bits, number = waiting.trace.bits, draft.num_drafted
  spent = np.cumsum(bits[:, :-1], 1)
  for row in np.flatnonzero(before.cursor.live):
    tokens = draft.tokens[row, : number[row]]
    assert number[row] == 0 or spent[row, number[row] - 1] <= 30
    assert 2 not in tokens[:-1]
    ended = number[row] and tokens[-1] == 2
    full = number[row] == 3
    assert ended or full or spent[row, number[row]] > 30  # the only end of a round
  assert not number[~before.cursor.live].any()  # rows that ended with token 0 draft nothing
  lengths, live = after.cursor.length, after.cursor.live
  for row in range(ROWS):
    assert live[row] == (2 not in after.tokens[row, : lengths[row]])
    assert 2 not in after.tokens[row, : lengths[row] - 1]


def test_bad_settings_are_errors():
  codec = codec_of("top", 6, 4)
  for bad in (dict(window=0), dict(on_empty="wait")):
    with pytest.raises(ValueError, match="Must have"):
      SqsDrafter(markov_fns(6), codec, **bad)
  assert SqsDrafter(markov_fns(6), codec) == SqsDrafter(markov_fns(6), codec)
