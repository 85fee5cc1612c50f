"""Sparse quantize-and-sample decoding over a cloud: the fused loop's tokens, the target's distribution, the controller's
theorems, and the traffic.

One compiled decode of each sparsifier serves all tests: 3,000 rows, each with a key of its own and one of four budgets
(empty rounds, one draft, about two drafts, all that the window allows).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxspec
from jaxspec.core.state import Origin
from jaxspec.models.conditions import ClassLabels
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.edge.remote_decode import decode_over_cloud
from jaxspec.serving.server.engine import Engine, EngineSettings
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.wire.framing import OVERHEAD_BYTES, REPLY_BYTES
from jaxspec.serving.wire.sqs_codec import SqsCodec
from jaxspec.serving.wire.traffic import join_traffic
from tests.helpers import markov_fns, markov_joint
from tests.serving.edge.pairs import assert_same
from tests.sqs_pair import codec_of, markov_pair, settings, tables

V, ELL, ROWS, N, WINDOW = 4, 7, 3000, 6, 3
FEW = 8  # rows over a cloud, where each is decoded alone: two of each budget
P, Q = tables(V, 3)
BUDGETS = np.resize([5.0, 9.0, 18.0, 1e6], ROWS).astype(np.float32)
SUPPORT = dict(top=2, conformal=V)
KINDS = (pytest.param("top", marks=pytest.mark.slow), "conformal")


@functools.cache
def setup(kind, temperature=1.0, **options):
  codec = codec_of(kind, V, SUPPORT[kind], ell=ELL, **options)
  sparsifier = settings(kind, SUPPORT[kind])
  pair = markov_pair(P, Q, codec, sparsifier, window=WINDOW, budget=BUDGETS, temperature=temperature)
  keys = jax.vmap(jax.random.key)(jnp.arange(ROWS))
  params, drafter, verifier = pair
  args = (params, keys, ClassLabels(jnp.zeros((ROWS,), jnp.int32)))
  return codec, args, dict(drafter=drafter, verifier=verifier, max_len=N)


@functools.cache
def fused(kind, temperature=1.0, **options):
  _, args, kwargs = setup(kind, temperature, **options)
  return jax.tree.map(np.asarray, jaxspec.speculate(*args, **kwargs))


@functools.cache
def split(kind, **options):
  """The first rows of `fused` over a cloud, each with its own budget, and their traffic."""
  codec, (params, keys, condition), kwargs = setup(kind, **options)
  engine = Engine(
    params.target, markov_fns(V), [ServedProfile(SqsCodec(codec, WINDOW))], example=ClassLabels(np.zeros(1, np.int32)),
    settings=EngineSettings(max_streams=1, max_rows=1, max_len=N, widths=(8,)),
  )  # fmt: skip
  cloud, found = LocalCloud(engine), []
  for row in range(FEW):
    one = lambda leaf, row=row: leaf[row : row + 1]
    draft = params.draft._replace(budget=one(params.draft.budget))
    edge = Edge(draft, kwargs["drafter"], SqsCodec(codec, WINDOW), N)
    found.append(decode_over_cloud(edge, one(keys), jax.tree.map(one, condition), cloud))
  results, traffic = zip(*found)
  return jax.tree.map(lambda *leaves: np.concatenate(leaves), *results), join_traffic(traffic)


def few(out):
  """The rows of `split`."""
  return jax.tree.map(lambda leaf: leaf[:FEW], out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["top", "conformal"])
def test_all_ways_of_running_agree_for_every_seed(kind):
  """In one program and over a cloud, ``top`` also in a Python loop: tokens, origins, counters, thresholds."""
  out = fused(kind)
  assert_same(split(kind)[0], few(out))
  if kind == "top":
    _, args, kwargs = setup(kind)
    assert_same(out, jaxspec.speculate(*args, **kwargs, loop="host"))
  counters = out.counters
  assert (counters.rounds[BUDGETS == 5] == out.report.stats.empty_rounds[BUDGETS == 5]).all()  # nothing fits into 5 bits
  assert (counters.drafted[BUDGETS == 5] == 0).all() and (counters.accepted[BUDGETS > 9] > 0).any()
  per_round = counters.drafted / counters.rounds
  assert per_round[BUDGETS == 9].max() <= 1 < per_round[BUDGETS == 18].max() <= 3 and per_round[BUDGETS == 1e6].max() > 2
  np.testing.assert_array_equal(1 + counters.accepted + counters.rounds, N)
  if kind == "conformal":  # thresholds of rows differ
    assert len(np.unique(out.report.sparsifier.high)) > 40


def chi_square(tokens, joint):
  """p-value of the joint distribution of all tokens."""
  seen = np.bincount(np.ravel_multi_index(tuple(tokens.T), joint.shape), minlength=joint.size)
  expected = joint.ravel() / joint.sum() * len(tokens)
  big = expected >= 5
  return stats.chisquare(np.append(seen[big], seen[~big].sum()), np.append(expected[big], expected[~big].sum())).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_output_follows_the_target(kind):
  out = fused(kind)
  assert chi_square(out.tokens[:, :5], markov_joint(P, 5)) > 0.01
  # Every budget alone, each with its own pattern of drafts.
  for budget in np.unique(BUDGETS):
    assert chi_square(out.tokens[BUDGETS == budget, :3], markov_joint(P, 3)) > 0.003


@pytest.mark.slow
def test_sums_of_dropped_mass_telescope_in_every_row():
  """T-c and T-d on the loop's own counts, for policy text: one update for each token that a round committed."""
  out = fused("conformal")
  first, eta, alpha = 0.2, 0.1, 0.1
  tokens = out.lengths - 1
  beta = out.report.sparsifier.high.astype(float) + out.report.sparsifier.low
  np.testing.assert_allclose(out.report.stats.fed, alpha * tokens + (first - beta) / eta, atol=3e-6 / eta)
  assert (out.report.stats.fed / tokens <= alpha + (first + eta * (1 - alpha)) / (eta * tokens) + 1e-5).all()
  assert (beta >= -eta * (1 - alpha) - 1e-6).all()


def quantize(distribution, ids):
  """The distribution qhat on ``ids``, written down once more in float64."""
  kept = distribution[ids] / distribution[ids].sum()
  counts = np.floor(ELL * kept + 0.5).astype(int)
  order = np.argsort(counts - ELL * kept, kind="stable")
  excess = counts.sum() - ELL
  counts[order[len(order) - excess :] if excess > 0 else order[:-excess]] -= np.sign(excess)
  qhat = np.zeros(V)
  qhat[ids] = counts / ELL
  return qhat


def quantized(support):
  """The distribution qhat and the dropped mass of every context under K-SQS."""
  kept = [np.sort(np.argsort(-distribution, kind="stable")[:support]) for distribution in Q[:-1]]
  return np.array([quantize(distribution, ids) for distribution, ids in zip(Q, kept)]), np.array(
    [1 - distribution[i].sum() for distribution, i in zip(Q, kept)]
  )


def replayed(tokens, first=0.2, eta=0.1, alpha=0.1):
  """C-SQS under policy text, from the committed tokens of one row alone: qhat, dropped mass and K before each token."""
  beta, positions = first, []
  for context in tokens[:-1]:
    distribution = np.float32(Q[context]).astype(np.float64)
    ids = np.flatnonzero(distribution >= beta)
    dropped = 1 - distribution[ids].sum() if len(ids) else 1.0
    ids = ids if len(ids) else np.array([distribution.argmax()])
    positions.append((quantize(distribution, ids), 1 - distribution[ids].sum(), len(ids)))
    beta -= eta * (dropped - alpha)
  return positions, beta


@pytest.mark.slow
def test_rejections_are_a_martingale_around_the_total_variation():
  """T-i: at a tested position P(reject | prefix) = TV(qhat, p).  T-j: N_rej <= sum TV(q, p) + d + K / (4 ell)."""
  out = fused("top")
  distributions, dropped = quantized(SUPPORT["top"])
  distance = lambda a, b: 0.5 * np.abs(a - b).sum(-1)
  before, origin = out.tokens[:, :-1], out.origin[:, 1:]
  rejected = origin == Origin.REPLACED
  tested = rejected | (origin == Origin.DRAFT)
  chance = distance(distributions, P[:-1])[before]
  z = (rejected.sum() - chance[tested].sum()) / np.sqrt((chance * (1 - chance))[tested].sum())
  assert abs(z) < 2.6, z
  assert tested.sum() > 3000 and rejected.sum() > 300
  ceiling = distance(Q[:-1], P[:-1])[before] + dropped[before] + SUPPORT["top"] / (4 * ELL)
  assert rejected.sum() <= ceiling.sum()
  assert rejected.sum() <= out.counters.rounds.sum()  # at most one for each round
  # The recorded dropped mass is that of the committed positions.
  np.testing.assert_allclose(out.report.stats.dropped, dropped[before].sum(1), atol=1e-5)


@pytest.mark.slow
def test_rejections_under_a_moving_threshold():
  """T-i and T-j for C-SQS, where d_n and K_n are random; and T-j is no equality, as printed: bonus tokens cannot fail."""
  out = fused("conformal")
  tokens, origin = out.tokens, out.origin[:, 1:]
  found = [replayed(row) for row in tokens]
  final = out.report.sparsifier.high.astype(float) + out.report.sparsifier.low
  np.testing.assert_allclose(final, [beta for _, beta in found], atol=2e-6)
  qhat = np.array([[position[0] for position in positions] for positions, _ in found])
  dropped, size = (np.array([[position[i] for position in positions] for positions, _ in found]) for i in (1, 2))
  assert len(np.unique(size)) > 2
  p, q = P[tokens[:, :-1]], Q[tokens[:, :-1]]
  chance = 0.5 * np.abs(qhat - p).sum(-1)
  rejected = origin == Origin.REPLACED
  tested = rejected | (origin == Origin.DRAFT)
  spread = np.sqrt((chance * (1 - chance))[tested].sum())
  z = (rejected.sum() - chance[tested].sum()) / spread
  assert abs(z) < 2.6, z
  assert chance.sum() - rejected.sum() > 10 * spread
  ceiling = 0.5 * np.abs(q - p).sum(-1) + dropped + size / (4 * ELL)
  assert rejected.sum() <= ceiling.sum() and (chance <= ceiling + 1e-9).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_sent(kind):
  """Formula and coded bits differ by ceilings and the token's index; messages are payload and framing."""
  out, traffic = split(kind)
  drafted, rounds = out.counters.drafted, out.counters.rounds
  assert (traffic.exchanges == rounds).all()
  assert (traffic.coded_bits >= np.floor(out.report.stats.formula_bits)).all()
  # Two ceilings, one flag or none, and the index among at most `support` tokens.
  most = 3 + np.ceil(np.log2(SUPPORT[kind]))
  assert (traffic.coded_bits <= out.report.stats.formula_bits + most * drafted + 1e-3).all()
  framed = traffic.uplink_bytes - OVERHEAD_BYTES * rounds
  assert (framed * 8 >= traffic.coded_bits).all() and (framed * 8 < traffic.coded_bits + 8 * rounds).all()
  assert (traffic.downlink_bytes == REPLY_BYTES * (rounds + 1)).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_temperature_zero_is_the_greedy_output(kind):
  """The same compiled program; drafts cost one token's price."""
  out = fused(kind, 0.0)
  token, expected = int(P[-1].argmax()), []
  for _ in range(N):
    expected.append(token)
    token = int(P[token].argmax())
  assert (out.tokens == np.array(expected)).all()
  stats_ = out.report.stats
  assert (stats_.support == out.counters.drafted).all() and (stats_.dropped < 1e-6).all()


CODINGS = [("top", "rice"), ("conformal", "trimmed"), ("top", "lazy"), ("conformal", "lazy"), ("conformal", "half")]


@pytest.mark.slow
@pytest.mark.parametrize("kind,coding", CODINGS)
def test_other_codings_agree_and_are_exact(kind, coding):
  (far, traffic), out = split(kind, coding=coding), fused(kind, coding=coding)
  assert_same(far, few(out))
  assert chi_square(out.tokens[:, :5], markov_joint(P, 5)) > 0.01
  assert (traffic.coded_bits > 0).any()


@pytest.mark.slow
def test_dense_coding_is_exact():
  """Over a cloud: `tests.serving.edge.test_edge_stream`."""
  codec = codec_of("top", V, V, ell=ELL, coding="dense")
  params, drafter, verifier = markov_pair(P, Q, codec, settings("top", V), window=WINDOW, budget=BUDGETS)
  out = jaxspec.speculate(params, *setup("top")[1][1:], drafter=drafter, verifier=verifier, max_len=N)
  assert chi_square(np.asarray(out.tokens)[:, :5], markov_joint(P, 5)) > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["literal", "drafted"])
def test_the_distribution_does_not_depend_on_the_policy(policy):
  out = fused("conformal", policy=policy)
  assert_same(split("conformal", policy=policy)[0], few(out))
  assert chi_square(out.tokens[:, :5], markov_joint(P, 5)) > 0.01
