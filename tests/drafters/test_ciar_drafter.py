"""The gated decoder of CIAR: its limiting cases, its counters, its caches, and the independence of rows and sides."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxspec
from jaxspec.codecs.codec import topk_lattice
from jaxspec.codecs.sparsify import TopKParams
from jaxspec.core import rng, rounds
from jaxspec.core.constructors import with_verify
from jaxspec.core.state import Origin, result
from jaxspec.drafters.ciar_drafter import CiarDrafter
from jaxspec.drafters.ciar_draws import SparseDraw
from jaxspec.intervals.gate import conformal_gate, constant_gate, rate_params
from jaxspec.intervals.scores import MaxProb, Random
from jaxspec.models.conditions import ClassLabels, Prefixed
from jaxspec.rules.greedy import greedy
from jaxspec.rules.lossless_sparse import lossless_sparse
from jaxspec.sampling.logit_processing import sample
from jaxspec.testing import fast_keys
from jaxspec.verifiers.ciar_target import CiarVerifier
from tests import ciar_pair
from tests.ciar_pair import INFINITY, gated_params, log, markov_gated
from tests.helpers import labels, markov_fns, markov_joint, side
from tests.sqs_pair import tables

# All transformer tests have one shape and one window. Thresholds and keys are traced, so one program serves many tests;
# irrelevant lengths of runs, prefixes and rules are those of another test.
N, ROWS, PREFIX = 16, 4, 5
keys_of = functools.partial(fast_keys, 0)
networks = functools.partial(ciar_pair.networks, cloud_layers=1)
transformer_gated = functools.partial(ciar_pair.transformer_gated, cloud_layers=1)


def run(params, kwargs, rows=ROWS, max_len=N, order=None):
  keys, prompt = keys_of(rows), labels(rows)
  if order is not None:
    keys, prompt = keys[order], ClassLabels(prompt.labels[order])
  out = jaxspec.speculate(params, keys, prompt, max_len=max_len, **kwargs)
  return jax.tree.map(np.asarray, out)


def numbers(counters):
  return {name: np.asarray(getattr(counters, name)) for name in counters.__dataclass_fields__}


@pytest.mark.slow
def test_a_closed_gate_is_speculative_decoding_with_identical_tokens():
  """With tau < 0 the draws, tests and tokens equal those of `small_model` with the same window."""
  params, kwargs = transformer_gated(tau=-1.0)
  cloud, cloud_params, edge, edge_params = networks()
  out = run(params, kwargs)
  plain = jaxspec.SpecParams(side(edge_params), side(cloud_params))
  drafter = jaxspec.SmallModelDrafter(edge, window=3, warp=jaxspec.Warp())
  verifier = jaxspec.TargetVerifier(cloud, jaxspec.lossless, warp=jaxspec.Warp())
  reference = run(plain, dict(drafter=drafter, verifier=verifier))
  np.testing.assert_array_equal(out.tokens, reference.tokens)
  np.testing.assert_array_equal(out.origin, reference.origin)
  for name in ("rounds", "accepted", "target_calls", "local"):
    np.testing.assert_array_equal(numbers(out.counters)[name], numbers(reference.counters)[name])


@pytest.mark.slow
def test_a_closed_gate_is_lossless_by_chi_square():
  """Joint distribution of four tokens, windows of 3, 20,000 rows; sparse distributions are those of ``verify="exact"``."""
  p, q = tables(4, 3)
  codec = topk_lattice(4, 2, ell=7, coding="rice")
  params, kwargs = markov_gated(p, q, window=3, rule=lossless_sparse, draw=SparseDraw(codec))
  params = params._replace(draft=params.draft._replace(draw=TopKParams(jnp.int32(2))))
  rows = 20_000
  out = jaxspec.speculate(params, keys_of(rows), ClassLabels(jnp.zeros((rows,), jnp.int32)), max_len=4, **kwargs)
  seen = np.bincount(np.ravel_multi_index(tuple(np.asarray(out.tokens).T), (4,) * 4), minlength=4**4)
  expected = markov_joint(p, 4).ravel()
  expected = expected / expected.sum() * rows
  big = expected >= 5
  merged = [np.append(x[big], x[~big].sum()) for x in (seen, expected)]
  assert stats.chisquare(*merged).pvalue > 0.01
  assert int(out.counters.accepted.sum()) > rows / 4


@functools.partial(jax.jit, static_argnames="stream")
def drawn(keys, logits, position, rounds, offsets, *, stream=rng.Stream.DRAFT):
  """Tokens ``[B]`` at a position of ``logits [B, N, V]``; each row has its own round, and offset in it."""
  uniform = lambda key, offset: rng.uniform(key[None], offset)[0]
  return sample(logits[:, position], jax.vmap(uniform)(rng.stream_keys(keys, stream, rounds), offsets))


@pytest.mark.slow
@pytest.mark.parametrize("max_run, rule", [(5, jaxspec.lossless), (N, greedy)])
def test_an_open_gate_is_the_edge_alone(max_run, rule):
  """With tau = infinity and no prefix the tokens equal those of the edge without cache or loop. Nothing is exchanged."""
  params, kwargs = transformer_gated(tau=INFINITY, max_run=max_run, rule=rule)
  out = run(params, kwargs)
  _, _, edge, weights = networks()
  keys = keys_of(ROWS)
  score = jax.jit(lambda tokens: edge.apply(weights, Prefixed(labels(ROWS), tokens))[0].logits)
  tokens = np.zeros((ROWS, N), np.int32)
  for position in range(N):
    # The edge draws token 0; then each round draws max_run tokens.
    round_, offset = divmod(max(position - 1, 0), max_run)
    stream = rng.Stream.DRAFT if position else rng.Stream.OPEN
    tokens[:, position] = drawn(keys, score(tokens), position, np.full(ROWS, round_), np.full(ROWS, offset), stream=stream)
  np.testing.assert_array_equal(out.tokens, tokens)
  assert (out.origin == Origin.LOCAL).all()
  counters = numbers(out.counters)
  np.testing.assert_array_equal(counters["local"], N)
  assert not counters["target_calls"].any() and not counters["drafted"].any() and not out.report.sent.any()


@pytest.mark.slow
def test_a_prefix_of_the_whole_row_is_the_cloud_alone():
  for tau in (-1.0, INFINITY):
    params, kwargs = transformer_gated(tau=tau, prefix=N)
    out = run(params, kwargs)
    verifier = jaxspec.TargetVerifier(networks()[0], jaxspec.lossless, warp=jaxspec.Warp())
    plain = jaxspec.autoregress(params, keys_of(ROWS), labels(ROWS), verifier=verifier, max_len=N)
    np.testing.assert_array_equal(out.tokens, plain.tokens)
    np.testing.assert_array_equal(out.counters.target_calls, N)
    assert not out.counters.local.any() and np.isnan(out.report.scores).all()


@pytest.mark.slow
def test_code_is_a_target_prefix_and_then_the_edge():
  """CoDe(N) is tau = infinity after a prefix; the first tokens equal those of the cloud alone."""
  params, kwargs = transformer_gated(tau=INFINITY, prefix=PREFIX)
  out = run(params, kwargs)
  alone = run(*transformer_gated(tau=INFINITY, prefix=N))
  np.testing.assert_array_equal(out.tokens[:, :PREFIX], alone.tokens[:, :PREFIX])
  _, _, edge, weights = networks()
  logits = jax.jit(lambda tokens: edge.apply(weights, Prefixed(labels(ROWS), tokens))[0].logits)(out.tokens)
  for position in range(PREFIX, N):  # the edge's own draws, after the cloud's prefix
    rounds = out.commit_round[:, position]
    offsets = position - np.argmax(rounds[:, None] == out.commit_round, axis=1)
    np.testing.assert_array_equal(out.tokens[:, position], drawn(keys_of(ROWS), logits, position, rounds - 1, offsets))
  assert (out.origin[:, PREFIX:] == Origin.LOCAL).all() and (out.origin[:, :PREFIX] != Origin.LOCAL).all()
  np.testing.assert_array_equal(out.counters.target_calls, PREFIX)


def recomputed(out, row):
  """Computes the counters of a row from the origins and rounds of its tokens alone."""
  origin, rounds = out.origin[row], out.commit_round[row]
  called = [r for r in np.unique(rounds) if r > 0 and np.isin(origin[rounds == r], (Origin.REPLACED, Origin.BONUS)).any()]
  return dict(
    local=(origin == Origin.LOCAL).sum(), accepted=(origin == Origin.DRAFT).sum(),
    target_calls=len(called) + (origin[0] == Origin.FIRST), rounds=rounds.max(),
  )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
  "options", [{}, dict(prefix=PREFIX), dict(guided=True, early_close=True), dict(rule=greedy, max_run=N)]
)
def test_counters_and_rows_of_transformers(options):
  """The map of origins agrees with the counters; rows do not depend on their neighbours."""
  params, kwargs = transformer_gated(**options)
  out = run(params, kwargs)
  counters = numbers(out.counters)
  np.testing.assert_array_equal(out.lengths, N)
  for row in range(ROWS):
    for name, value in recomputed(out, row).items():
      assert counters[name][row] == value, (row, name)
  assert len(np.unique(out.origin)) >= 4 and (counters["local"] > 0).any()  # every kind of token occurs
  assert (out.report.scores[out.origin == Origin.LOCAL] <= 0.15).all()
  order = np.array([2, 0, 3, 0])
  moved = run(params, kwargs, order=order)
  np.testing.assert_array_equal(moved.tokens, out.tokens[order])
  np.testing.assert_array_equal(moved.report.scores, out.report.scores[order])


def from_scratch(fns, weights, tokens):
  """The cache after the condition and all tokens, fed at once."""
  _, cache = fns.apply(weights, labels(ROWS), fns.init_cache(ROWS, 40), positions=jnp.arange(1)[None])
  return fns.apply(weights, tokens, cache, positions=1 + jnp.arange(N)[None])[1]


@pytest.mark.slow
def test_caches_after_some_rounds_equal_caches_from_scratch():
  params, kwargs = transformer_gated(tau=0.35, max_run=2, cloud_layers=2)  # short runs: some end without an exchange
  cloud, cloud_params, edge, edge_params = networks(cloud_layers=2)
  rows = ROWS
  start = jax.jit(functools.partial(rounds.start, max_len=N, **kwargs))
  step = jax.jit(functools.partial(rounds.decode_round, **kwargs))
  state = start(params, keys_of(rows), labels(rows))
  for _ in range(3):
    state = step(params, state)
  own = state.draft_side
  sides = [
    (cloud, cloud_params, state.verifier.cache, np.asarray(own.drafter.read)),
    (edge, edge_params, own.drafter.cache, np.asarray(own.cursor.length) - 2),
  ]
  assert (np.asarray(own.cursor.length) - np.asarray(own.drafter.read)).max() > 2  # some row has tokens to catch up
  assert (np.asarray(own.origin) == Origin.REPLACED).any()  # some draft was rolled back
  for fns, weights, cache, known in sides:
    fresh = jax.jit(functools.partial(from_scratch, fns))(weights, own.tokens)
    heads = fresh.k[0].shape[0] // rows
    for ours, theirs in zip(*(jax.tree.map(np.asarray, (*one.k, *one.v)) for one in (cache, fresh))):
      for row in range(rows):
        upto, part = 1 + known[row], slice(row * heads, (row + 1) * heads)
        np.testing.assert_allclose(ours[part, :upto], theirs[part, :upto], atol=2e-5)


@pytest.mark.slow
def test_cloud_is_skipped_unless_a_live_row_needs_it():
  """Counts the verifier's calls: one for each round in which the row needs verification, none with an open gate."""
  calls = []
  params, kwargs = markov_gated(*tables(4, 3), window=3, max_run=2)
  inner = kwargs["verifier"]

  def verify(*args):
    jax.debug.callback(lambda: calls.append(1))
    return inner.verify(*args)

  kwargs["verifier"] = with_verify(inner, verify)
  for tau in (0.6, INFINITY):  # one of the four tokens has a less certain successor
    calls.clear()
    out = run(params._replace(draft=params.draft._replace(gate=jnp.float32(tau))), kwargs, rows=1, max_len=64)
    jax.effects_barrier()
    rounds = np.where(np.isin(out.origin, (Origin.REPLACED, Origin.BONUS)), out.commit_round, 0)
    assert len(calls) == len(np.unique(rounds[rounds > 0])) < out.commit_round.max()  # some round is without an exchange
    assert (len(calls) == 0) == (tau == INFINITY)


class InStep(CiarDrafter):
  """The drafter whose rounds all end with a draft."""

  keeps_rounds_open = False


@pytest.mark.slow
def test_rounds_that_stay_open_change_nothing_but_the_number_of_passes():
  """Tokens, rounds, counters, scores and gates of eight rows, with random scores and a gate that moves."""
  fns = markov_fns(4)

  def apply(params, inputs, cache, **options):  # the cache counts the passes
    return fns.apply(params, inputs, (), **options)[0], cache + 1

  options = dict(max_run=16, tau=rate_params(0.8, 0.15), gate=conformal_gate, score_fn=Random(), early_close=True)
  params, kwargs = markov_gated(*tables(4, 3), window=3, **options)
  drafter, outcomes, passes = kwargs["drafter"], [], []
  for kind in (CiarDrafter, InStep):
    fields = {field.name: getattr(drafter, field.name) for field in dataclasses.fields(drafter)}
    fields["model"] = fns._replace(apply=apply, init_cache=lambda batch, max_len: jnp.int32(0))
    parts = kwargs | dict(drafter=kind(**fields))
    *_, side = jaxspec.iterate(params, keys_of(8), labels(8), max_len=128, **parts)
    outcomes.append(jax.tree.map(np.asarray, result(side, parts["drafter"])))
    passes.append(int(side.drafter.cache))
  opened, in_step = outcomes
  jax.tree.map(np.testing.assert_array_equal, opened, in_step)
  assert passes[0] < 0.8 * passes[1]
  assert {Origin.LOCAL, Origin.DRAFT, Origin.REPLACED} <= set(opened.origin.ravel())


@pytest.mark.slow
def test_the_gate_controller_counts_every_committed_token_once():
  """mean(called) = rate + (beta_1 - beta_T) / (eta T) exactly, whatever was rejected and rolled back. The rate is held."""
  p, q = tables(8, 5)
  fns = markov_fns(8)
  rows, length, eta, rate = 50, 400, 0.1, 0.3
  gate = rate_params(0.5, rate, eta=eta)
  params = jaxspec.SpecParams(gated_params(side(log(q)), gate), side(log(p)))
  drafter = CiarDrafter(fns, MaxProb(), conformal_gate, most_drafts=3, max_run=6)
  verifier = CiarVerifier(fns, jaxspec.lossless, warp=jaxspec.Warp(), window=3, widths=(4, 12))
  out = run(params, dict(drafter=drafter, verifier=verifier), rows=rows, max_len=length)
  called = out.counters.target_calls  # without a prefix every call comes from the gate, also that for token 0
  moved = gate.first - (out.report.gate.high + out.report.gate.low)
  np.testing.assert_allclose(called / length, rate + moved / (eta * length), atol=1e-5)
  assert abs((called / length).mean() - rate) < 0.02
  assert out.counters.accepted.sum() < out.counters.drafted.sum()  # something was rolled back


def test_bad_settings_are_errors():
  fns = markov_fns(4)
  with pytest.raises(ValueError, match="most_drafts and max_run"):
    CiarDrafter(fns, MaxProb(), constant_gate, most_drafts=0)
  for widths in ((), (4,), (8, 4), (0, 8), (2, 4, 8)):
    with pytest.raises(ValueError, match="two ascending widths"):
      CiarVerifier(fns, jaxspec.lossless, warp=jaxspec.Warp(), window=3, widths=widths)
  params, kwargs = markov_gated(*tables(4, 3), window=2)
  plain = jaxspec.SmallModelDrafter(fns, window=2, warp=jaxspec.Warp())
  with pytest.raises(ValueError, match="what the target has not read"):
    run(jaxspec.SpecParams(params.draft.model, params.target), kwargs | dict(drafter=plain))
  with pytest.raises(ValueError, match="rate from 0 to 1"):
    rate_params(0.1, 1.5)
