"""Compressed drafting: the distribution of a round through real bytes by enumeration, and the mechanics of rounds.

The enumeration is that of `tests/verifiers/test_lossless.py`. Target probabilities in quarters and a denominator of 4 make
every threshold a multiple of 1/12. A draft is drawn by an integer below 4. So 4 * 4 * 12^3 rows give the distribution of a
round of two drafts exactly.
"""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxspec
from jaxspec import rng
from jaxspec.decode import loop
from jaxspec.decode.state import TargetSide
from jaxspec.drafters.compressed import CompressedParams, compressed
from jaxspec.link.opening import Agreement
from jaxspec.link.sqs_wire import SqsWire
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.llamagen import llamagen_fns
from tests.helpers import DRAFT, TARGET, labels, markov_fns, markov_joint, random_params, side
from tests.sqs_pair import codec_of, markov_pair, settings, tables, verifier_of

slow = lambda *case: pytest.param(*case, marks=pytest.mark.slow)
V, ROWS = 3, 200
QUARTERS = np.array([c for c in np.ndindex(5, 5, 5) if sum(c) == 4]) / 4
FOUR, TWELVE = (np.arange(4) + 0.5) / 4, (np.arange(12) + 0.5) / 12


def over_bytes(message, cursor, codec, window, equal=1):
  """Encodes a message to bytes and decodes it, as the other side would; ``equal`` rows in a row have the same message."""
  one, again = (lambda leaf: leaf[::equal] if jnp.ndim(leaf) else leaf), (lambda leaf: jnp.repeat(leaf, equal, axis=0))
  own, cursor = jax.tree.map(one, message), jax.tree.map(one, cursor)
  chex.assert_trees_all_equal(jax.tree.map(again, own), message)
  wire, agreement = SqsWire(codec, window), Agreement(cursor.length.shape[0], 4)
  frames, _ = wire.encode_draft(own, cursor, agreement)
  return jax.tree.map(again, wire.decode_draft(frames, cursor, agreement)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
  "policy, seed, budget",
  [(None, 0, 1e6), ("text", 1, 1e6), ("literal", 2, 7), ("drafted", 2, 7), (None, 3, 1), ("text", 3, 1)],
)
def test_enumerated_distribution_of_one_round_over_bytes(policy, seed, budget, monkeypatch):
  """The next three tokens after a first one; budgets for two drafts, one draft and none. Without a policy it is K-SQS."""
  kind, options = ("top", {}) if policy is None else ("conformal", dict(policy=policy))
  generator = np.random.default_rng(seed)
  p = QUARTERS[generator.integers(len(QUARTERS), size=V + 1)]
  q = generator.dirichlet(np.ones(V), V + 1)
  codec = codec_of(kind, V, 2 if kind == "top" else 3, ell=4, **options)
  params, drafter, verifier = markov_pair(p, q, codec, settings(kind, 2, first=0.3, eta=0.9), window=2, budget=budget)
  cells = np.stack(np.meshgrid(FOUR, FOUR, TWELVE, TWELVE, TWELVE, indexing="ij"), -1).reshape(-1, 5).astype(np.float32)
  rows, first = cells.shape[0], 1
  state = loop.start(
    params, jax.random.key(0), ClassLabels(jnp.zeros((rows,), jnp.int32)), drafter=drafter, verifier=verifier, max_len=4
  )
  cursor = state.draft_side.cursor._replace(last=jnp.full((rows,), first, jnp.int32))
  edge, cloud = (
    state.draft_side.replace(cursor=cursor),
    TargetSide(cursor, state.draft_side.keys, jnp.int32(4), state.verifier),
  )

  columns = jnp.pad(jnp.asarray(cells[:, :2]), ((0, 0), (0, 1)))
  monkeypatch.setattr(rng, "integer", lambda keys, offset, below: (columns[:, offset] * below).astype(jnp.int32))
  monkeypatch.setattr(rng, "uniforms", lambda keys, num: jnp.asarray(cells[:, 2:4]))
  monkeypatch.setattr(rng, "final_uniform", lambda keys: jnp.asarray(cells[:, 4]))
  waiting = loop.draft_round(params.draft, edge, drafter=drafter)
  sent = over_bytes(waiting.draft, cursor, codec, 2, equal=len(TWELVE) ** 3)  # the first two columns make the drafts
  cloud, verdict = loop.verify_round(params.target, cloud, sent, verifier=verifier)
  done = loop.commit_reply(params.draft, waiting, verdict, drafter=drafter)
  chex.assert_trees_all_equal(done.cursor, cloud.cursor)

  gained, tokens = np.asarray(done.cursor.length) - 1, np.asarray(done.tokens)[:, 1:]
  assert int(waiting.draft.num_drafted.max()) == {1e6: 2, 7: 1, 1: 0}[budget]
  distribution = np.zeros((V,) * 3)
  for count in (1, 2, 3):
    heads, number = np.unique(tokens[gained == count, :count], axis=0, return_counts=True)
    for head, n in zip(heads, number):
      tail = np.ones(()) if count == 3 else markov_joint(np.vstack([p[:-1], p[head[-1]]]), 3 - count)
      distribution[tuple(head)] += n / rows * tail
  error = np.abs(distribution - markov_joint(np.vstack([p[:-1], p[first]]), 3)).max()
  assert error < 1e-5, error


@functools.cache
def stepper(policy):
  """One compiled round of C-SQS; budget and end token are traced."""
  codec = codec_of("conformal", 6, 4, ell=20, policy=policy)
  pair = functools.partial(markov_pair, *tables(6, 1), codec, settings("conformal", 4, first=0.15), window=3)
  _, drafter, verifier = pair(budget=1.0)

  @jax.jit
  def run(params, key, end_token):
    state = loop.start(params, key, labels(ROWS), max_len=30, end_token=end_token, drafter=drafter, verifier=verifier)
    waiting = loop.draft_round(params.draft, state.draft_side, drafter=drafter)
    cloud = TargetSide(state.draft_side.cursor, state.draft_side.keys, jnp.int32(30), state.verifier)
    cloud, verdict = loop.verify_round(params.target, cloud, waiting.draft, verifier=verifier)
    return state.draft_side, waiting, verdict, loop.commit_reply(params.draft, waiting, verdict, drafter=drafter)

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
    assert ended or full or spent[row, number[row]] > 30  # nothing else ends a round
  assert not number[~before.cursor.live].any()  # rows that ended with token 0 draft nothing
  lengths, live = after.cursor.length, after.cursor.live
  for row in range(ROWS):
    assert live[row] == (2 not in after.tokens[row, : lengths[row]])
    assert 2 not in after.tokens[row, : lengths[row] - 1]


def test_bad_settings_are_errors():
  codec = codec_of("top", 6, 4)
  for bad in (dict(window=0), dict(on_empty="wait")):
    with pytest.raises(ValueError, match="Must have"):
      compressed(markov_fns(6), codec, **bad)
  assert compressed(markov_fns(6), codec) is compressed(markov_fns(6), codec)


@pytest.mark.slow
def test_a_shrunk_support_avoids_empty_rounds():
  p, q = tables(6, 1)
  codec, out = codec_of("top", 6, 6, ell=20), {}
  for on_empty in ("cloud_token", "shrink_support"):
    params, drafter, verifier = markov_pair(p, q, codec, settings("top", 6), window=3, budget=8.0, on_empty=on_empty)
    kwargs = dict(drafter=drafter, verifier=verifier, max_len=6)
    out[on_empty] = jaxspec.speculate(params, jax.random.key(0), ClassLabels(jnp.zeros((4000,), jnp.int32)), **kwargs)
  assert not out["cloud_token"].counters.drafted.any()
  assert (out["shrink_support"].report.stats.empty_rounds <= 1).all()  # the last round may have no room for a draft
  for result in out.values():
    seen = np.bincount(np.ravel_multi_index(tuple(np.asarray(result.tokens)[:, :3].T), (6,) * 3), minlength=216)
    expected = markov_joint(p, 3).ravel() * 4000
    big = expected >= 5
    observed, expected = [np.append(x[big], x[~big].sum()) for x in (seen, expected)]
    assert stats.chisquare(observed, expected / expected.sum() * 4000).pvalue > 0.01


@pytest.mark.slow
def test_fine_lattices_of_the_whole_distribution_are_plain_speculative_sampling():
  """With K = V and a large denominator the acceptance is sum min(p, q) of the visited contexts."""
  p, q = tables(6, 1)
  codec = codec_of("top", 6, 6, ell=60_000)
  params, drafter, verifier = markov_pair(p, q, codec, settings("top", 6), window=3, budget=1e6)
  rows = ClassLabels(jnp.zeros((2000,), jnp.int32))
  out = jaxspec.speculate(params, jax.random.key(0), rows, drafter=drafter, verifier=verifier, max_len=40)
  plain = jaxspec.small_model(markov_fns(6), window=3, warp=jaxspec.Warp())
  other = jaxspec.SpecParams(params.draft.model, params.target)
  rule = jaxspec.target_model(markov_fns(6), jaxspec.lossless, warp=jaxspec.Warp())
  reference = jaxspec.speculate(other, jax.random.key(1), rows, drafter=plain, verifier=rule, max_len=40)
  rate = [np.asarray(r.counters.accepted) / np.asarray(r.counters.rounds) for r in (out, reference)]
  z = (rate[0].mean() - rate[1].mean()) / np.sqrt(rate[0].var() / 2000 + rate[1].var() / 2000)
  assert abs(z) < 2.6, z


def policies_mean(policy):
  """Mean dropped mass over 200 x 500 tokens, and the last threshold."""
  p, q = tables(16, 7, concentration=0.4)
  codec = codec_of("conformal", 16, 16, ell=50, policy=policy)
  params, drafter, verifier = markov_pair(p, q, codec, settings("conformal", 16, eta=0.5), window=4, budget=1e6)
  out = jaxspec.speculate(
    params, jax.random.key(0), ClassLabels(jnp.zeros((200,), jnp.int32)), drafter=drafter, verifier=verifier, max_len=501
  )
  return np.asarray(out.report.stats.fed) / 500, p, np.asarray(out.tokens)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["text", "literal", "drafted"])
def test_only_the_text_policy_reaches_its_target(policy):
  """Also T-h: compares transition frequencies of 100,000 tokens with the target's, for every policy."""
  mean, p, tokens = policies_mean(policy)
  bound = 0.1 + (0.2 + 0.5 * 0.9) / (0.5 * 500)
  if policy == "text":
    assert (mean <= bound + 1e-5).all() and abs(mean.mean() - 0.1) < 0.003
  else:  # 0.107 and 0.1015 on average; some paths break the bound
    assert (mean > bound + 1e-3).any() and mean.mean() > 0.101
  seen = np.zeros((16, 16))
  np.add.at(seen, (tokens[:, :-1].ravel(), tokens[:, 1:].ravel()), 1)
  expected = p[:-1] * seen.sum(1, keepdims=True)
  statistic, freedom = 0.0, 0
  for row, wanted in zip(seen, expected):
    big = wanted >= 5
    if big.sum() > 1:
      merged = [np.append(x[big], x[~big].sum()) if (~big).any() else x for x in (row, wanted)]
      keep = merged[1] > 0
      statistic += ((merged[0] - merged[1])[keep] ** 2 / merged[1][keep]).sum()
      freedom += keep.sum() - 1
  assert stats.chi2.sf(statistic, freedom) > 0.01, (statistic, freedom)


def transformers(kind, rows):
  """A random transformer pair with caches."""
  target, draft = llamagen_fns(TARGET), llamagen_fns(DRAFT)
  vocab = TARGET.vocab_size
  codec = codec_of(kind, vocab, 6 if kind == "top" else vocab, ell=30)
  drafting = CompressedParams(side(random_params(draft, 1)), settings(kind, 6), jnp.float32(70.0))
  params = jaxspec.SpecParams(drafting, side(random_params(target, 2)))
  kwargs = dict(drafter=compressed(draft, codec, window=4), verifier=verifier_of(target), max_len=16)
  keys = jax.vmap(jax.random.key)(jnp.arange(rows))
  return params, keys, labels(rows), codec, kwargs


@pytest.mark.slow
def test_a_resumed_decode_is_the_same():
  """The state between two rounds is saved to host arrays and restored; the tokens equal those without a break."""
  params, keys, condition, _, kwargs = transformers("conformal", 5)
  max_len = kwargs.pop("max_len")
  step = jax.jit(lambda state: loop.decode_round(params, state, **kwargs))

  def through_host(state):
    edge = state.draft_side.replace(keys=jax.random.key_data(state.draft_side.keys))
    state = jax.tree.map(jnp.asarray, jax.tree.map(np.asarray, state.replace(draft_side=edge)))
    return state.replace(draft_side=state.draft_side.replace(keys=jax.random.wrap_key_data(state.draft_side.keys)))

  ends = []
  for between in (lambda state: state, through_host):
    state = loop.start(params, keys, condition, max_len=max_len, **kwargs)
    while bool(state.draft_side.cursor.live.any()):
      state = between(step(state))
    ends.append(
      (
        state.draft_side.tokens,
        state.draft_side.counters,
        state.draft_side.drafter.sparsifier,
        state.draft_side.drafter.stats,
      )
    )
  chex.assert_trees_all_equal(*ends)
  out = jaxspec.speculate(params, keys, condition, max_len=max_len, **kwargs)
  np.testing.assert_array_equal(out.tokens, ends[0][0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["top", "conformal"])
def test_transformers_follow_the_target(kind):
  params, _, _, _, kwargs = transformers(kind, 1)
  rows = 16384
  prompt = ClassLabels(jnp.ones((rows,), jnp.int32))
  kwargs["max_len"] = 4
  fast = jaxspec.speculate(params, jax.random.key(11), prompt, **kwargs)
  plain = jaxspec.autoregress(params, jax.random.key(12), prompt, verifier=kwargs["verifier"], max_len=4)
  code = lambda out: np.bincount(np.ravel_multi_index(tuple(np.asarray(out.tokens[:, 1:]).T), (13,) * 3), minlength=13**3)
  table = np.array([code(fast), code(plain)])
  big = table.sum(0) >= 20
  table = np.concatenate([table[:, big], table[:, ~big].sum(1, keepdims=True)], 1)
  assert stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue > 0.01
