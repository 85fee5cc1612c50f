"""The exact distribution of complete decodes, by enumeration: every family of exact methods, through the compiled loop.

Four binary tokens whose probabilities are halves or certain, each depending on all tokens before it
(`tests.contract.networks`). All thresholds are then halves too, and a tape with two cells for every relevant draw has all
outcomes as its rows: a first token, a round of two drafts, one of one, and one without. Any error of a probability by a
half, in any context, is detected.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

import jaxspec
from jaxspec.codecs.codec import conformal_lattice, topk_lattice
from jaxspec.codecs.conformal import ConformalParams
from jaxspec.codecs.sparsify import TopKParams
from jaxspec.core import rng
from jaxspec.drafters.block_drafter import BlockDrafter
from jaxspec.drafters.ciar_drafter import CiarDrafter, GatedParams
from jaxspec.drafters.ciar_draws import DenseDraw
from jaxspec.drafters.eagle_chain import EagleChainDrafter
from jaxspec.drafters.eagle_tree import EagleTreeDrafter
from jaxspec.drafters.jacobi_drafter import JacobiDrafter
from jaxspec.drafters.spatial_drafter import SpatialDrafter
from jaxspec.drafters.sqs_drafter import SqsDrafter, SqsParams
from jaxspec.drafters.window_init import WindowInit
from jaxspec.intervals.gate import constant_gate
from jaxspec.intervals.scores import MaxProb
from jaxspec.models.conditions import ClassLabels
from jaxspec.rules.block_rule import block, block_sparse
from jaxspec.rules.distances import DistanceTable
from jaxspec.rules.exact_distribution import exact_distribution
from jaxspec.rules.gsd_rule import GsdRule
from jaxspec.rules.lantern_rule import lantern_plus_plus
from jaxspec.rules.lossless_sparse import lossless_sparse
from jaxspec.rules.path_coupling import PathCoupling
from jaxspec.rules.scaled_rule import ScaledRule
from jaxspec.rules.tree_rule import tree_rule
from jaxspec.testing import Tape, assert_same_cdf, enumerate_outcomes, first_draw, round_draws
from jaxspec.verifiers.ciar_target import CiarVerifier
from jaxspec.verifiers.target import target_features, target_logits
from tests.contract import networks
from tests.helpers import side, slow_but
from tests.rules.rules_reference import emitted_distribution
from tests.token_toy import decode as vector_decode
from tests.token_toy import distribution_params

V, N, WINDOW = 2, 4, 2
WARP = jaxspec.Warp()
HOST, HEAD = networks.history_fns(V, N), networks.history_fns(V, N, head=True)
SIZE = networks.rows_of_table(V, N)


TABLES = (2, 3, 5, 8)  # seeds; each detects an error that another misses


def _halves(seed, size=SIZE):
  """Probabilities by name: a half, or certain."""
  return np.asarray([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])[np.random.default_rng(seed).choice(3, size, p=[0.4, 0.3, 0.3])]


def _any(seed):
  """For drafts with a quantized or certain distribution."""
  return np.random.default_rng(seed).dirichlet(np.full(V, 0.7), SIZE)


def _side(probs):
  with np.errstate(divide="ignore"):
    return side({"output": jnp.asarray(np.log(probs), jnp.float32)})


def _head_side(probs):
  """A head that ignores the logits of its target."""
  with np.errstate(divide="ignore"):
    return side({"output": jnp.zeros(probs.shape), "own": jnp.asarray(np.log(probs), jnp.float32)})


def _judge(rule=jaxspec.lossless, feedback_fn=None, bonus=True):
  kwargs = dict(bonus=bonus) if feedback_fn is None else dict(feedback_fn=feedback_fn)
  return jaxspec.TargetVerifier(HOST, rule, warp=WARP, **kwargs)


# For each family: its drafter and verifier, and the draft side's parameters of a seed.


def _chain(rule=jaxspec.lossless, bonus=True):
  drafter = jaxspec.SmallModelDrafter(HOST, window=WINDOW, warp=WARP)
  return drafter, _judge(rule, bonus=bonus), lambda seed: _side(_halves(seed + 100))


def _jacobi(recycle, initial=WindowInit(), rule=jaxspec.lossless):
  drafter = JacobiDrafter(window=WINDOW, vocab_size=V, grid=8, initial=initial, recycle=recycle, block=rule is block)
  return drafter, _judge(rule, target_logits), lambda seed: ()


def _eagle_tree():
  drafter = EagleTreeDrafter(HEAD, total=4, top_k=2, depth=1, warp=WARP)
  return drafter, _judge(tree_rule(max_path=2), target_features), lambda seed: _head_side(_any(seed))


def _eagle_chain(rule=jaxspec.lossless):
  drafter = EagleChainDrafter(HEAD, window=WINDOW, warp=WARP)
  return drafter, _judge(rule, target_features), lambda seed: _head_side(_halves(seed + 100))


def _block_head(rule=jaxspec.lossless):
  drafter = BlockDrafter(networks.block_head_fns(V, N), window=WINDOW, warp=WARP)
  return drafter, _judge(rule, target_features), lambda seed: _head_side(_halves(seed + 100))


def _spatial(rule=jaxspec.lossless):
  drafter = SpatialDrafter(networks.spatial_fns(V, N, 2), window=WINDOW, columns=2, warp=WARP)
  return drafter, _judge(rule, target_features), lambda seed: _head_side(_halves(seed + 100))


def _sqs(codec, settings, rule=lossless_sparse, bonus=True):
  params = lambda seed: SqsParams(_side(_any(seed)), settings, jnp.float32(1e6))
  return SqsDrafter(HOST, codec, window=WINDOW), _judge(rule, bonus=bonus), params


def _ciar(draw=DenseDraw()):
  drafter = CiarDrafter(HOST, MaxProb(), constant_gate, most_drafts=WINDOW, max_run=1, draw=draw)
  verifier = CiarVerifier(HOST, jaxspec.lossless, warp=WARP, window=WINDOW, widths=(1, 4))
  return drafter, verifier, lambda seed: GatedParams(_side(_halves(seed + 100)), jnp.float32(-1.0))


TOP, THRESHOLD = TopKParams(jnp.int32(2)), ConformalParams(jnp.float32(0.3), jnp.float32(0.5), jnp.float32(0.2))
SAMPLED, TESTS = [(0, 1), (0,)], ((2, 2), (2,))
# A copied token is certain, so that a coupling with it is a matter of chance.
COPIES = WindowInit("left", "repeat")
# Cells of the tests of two drafts together and of one: thresholds are thirds, quarters and halves.
BLOCK = ((6, 4), (2,))
# The parts; the offsets of the draft side's draws, and the cells of the tests, in rounds 0 and 1; the share of accepted
# drafts.
FAMILIES = {
  "chain": (_chain, SAMPLED, TESTS, 11 / 19),
  "jacobi, fresh": (functools.partial(_jacobi, "fresh"), SAMPLED, TESTS, 24 / 37),
  "jacobi, coupled": (functools.partial(_jacobi, "coupled", COPIES), [(0, 1), (0, WINDOW)], TESTS, 39 / 82),
  "eagle": (_eagle_tree, [(), ()], ((2,) * 4, (2, 2)), 51 / 64),
  "eagle chain": (_eagle_chain, SAMPLED, TESTS, 11 / 19),
  "block head": (_block_head, SAMPLED, TESTS, 45 / 76),
  "block head, block": (functools.partial(_block_head, block), SAMPLED, BLOCK, 45 / 76),
  "spatial": (_spatial, SAMPLED, TESTS, 45 / 76),
  "sqs, topk": (functools.partial(_sqs, topk_lattice(V, 2, ell=2), TOP), SAMPLED, TESTS, 17 / 42),
  "sqs, conformal": (functools.partial(_sqs, conformal_lattice(V, 2, ell=2), THRESHOLD), SAMPLED, TESTS, 31 / 84),
  "chain, no bonus": (functools.partial(_chain, bonus=False), SAMPLED, TESTS, 11 / 19),
  "chain, block, no bonus": (functools.partial(_chain, block, bonus=False), SAMPLED, BLOCK, 11 / 19),
  "sqs, no bonus": (
    functools.partial(_sqs, conformal_lattice(V, 2, ell=2), THRESHOLD, bonus=False),
    SAMPLED,
    TESTS,
    31 / 84,
  ),
  "chain, block": (functools.partial(_chain, block), SAMPLED, BLOCK, 11 / 19),
  "jacobi, fresh, block": (functools.partial(_jacobi, "fresh", rule=block), SAMPLED, BLOCK, 24 / 37),
  "eagle chain, block": (functools.partial(_eagle_chain, block), SAMPLED, BLOCK, 11 / 19),
  "spatial, block": (functools.partial(_spatial, block), SAMPLED, BLOCK, 45 / 76),
  "sqs, block": (functools.partial(_sqs, topk_lattice(V, 2, ell=2), TOP, block_sparse), SAMPLED, BLOCK, 17 / 42),
  "ciar that always asks": (_ciar, SAMPLED, TESTS, 11 / 19),
  "ciar, greedy edge": (functools.partial(_ciar, DenseDraw("argmax")), [(), ()], TESTS, 37 / 78),
}


def all_outcomes(family):
  """The tape of a family."""
  _, offsets, tests, _ = FAMILIES[family]
  drafted = [(rng.Stream.DRAFT, round_, offset) for round_ in (0, 1) for offset in offsets[round_]]
  judged = dict.fromkeys([first_draw(), *round_draws(0), *round_draws(1), *round_draws(2)], 2)
  for round_, cells in enumerate(tests):
    judged |= zip(round_draws(round_, tests=len(cells), final=False), cells)
  if family.startswith("sqs"):  # drawn by integers below the denominator
    return Tape.all_outcomes(judged, dict.fromkeys(drafted, 2))
  return Tape.all_outcomes(judged | dict.fromkeys(drafted, 2))


# Their drafter and their rule are each in another family, or they differ from one in its distribution alone.
SLOW = {
  *("eagle chain, block", "spatial, block", "chain, block, no bonus", "block head, block", "sqs, block"),
  *("jacobi, fresh, block", "chain, no bonus", "sqs, no bonus"),
}


@pytest.mark.parametrize("family", slow_but(FAMILIES, FAMILIES.keys() - SLOW))
def test_every_outcome_of_a_decode(family):
  drafter, verifier, draft_params = FAMILIES[family][0]()
  tape, counters = all_outcomes(family), []
  condition = ClassLabels(jnp.zeros((tape.num_rows,), jnp.int32))
  for seed in TABLES:  # the same program
    probs = _halves(seed)
    params = jaxspec.SpecParams(draft_params(seed), _side(probs))

    def decode(keys, params=params):
      out = jaxspec.speculate(params, keys, condition, drafter=drafter, verifier=verifier, max_len=N)
      counters.append(jax.tree.map(np.asarray, out.counters))
      return out.tokens

    np.testing.assert_allclose(enumerate_outcomes(decode, tape, V), networks.joint(probs, V, N), atol=1e-6)
  # Also exact: bad drafts would only make a decode slow.
  share = sum(counted.accepted.sum() for counted in counters) / sum(counted.drafted.sum() for counted in counters)
  assert share == pytest.approx(FAMILIES[family][3], abs=1e-6)
  # Two nodes are all binary tokens: trees always commit two tokens a round.
  assert max(counted.rounds.max() for counted in counters) == (2 if family == "eagle" else 3)


def test_an_outcome_that_is_left_out_shows():
  """The power of the test above: omitting an outcome of a relevant draw is an error."""
  drafter, verifier, draft_params = _chain()
  values = dict(all_outcomes("chain").values)
  rows = len(values[first_draw()])
  values[rng.Stream.VERIFY, 1, 0] = np.full(rows, 0.25)
  condition, params = ClassLabels(jnp.zeros((rows,), jnp.int32)), jaxspec.SpecParams(draft_params(2), _side(_halves(2)))
  decode = lambda keys: jaxspec.speculate(params, keys, condition, drafter=drafter, verifier=verifier, max_len=N).tokens
  error = enumerate_outcomes(decode, Tape(values), V) - networks.joint(_halves(2), V, N)
  assert np.abs(error).max() > 1e-4


# Lossy rules: the distribution at one position, by enumeration of the compiled rule, equals the closed form.

QUARTERS = np.array([counts for counts in np.ndindex(5, 5, 5) if sum(counts) == 4]) / 4
DISTANCE = np.abs(np.subtract.outer([0.0, 1.0, 3.0], [0.0, 1.0, 3.0])).astype(np.float32)
NEAREST = np.argsort(DISTANCE + np.diag([np.inf] * 3), axis=1, kind="stable")[:, :-1].astype(np.int32)
RULES = {
  "scaled": (ScaledRule(2.0), None),
  "gsd": (GsdRule(2, 0.6, 2.5), DISTANCE),
  "lantern": (lantern_plus_plus(2, 3.0), NEAREST),
}


@pytest.mark.parametrize("name", RULES)
def test_every_outcome_of_a_lossy_rule(name):
  """Thresholds are twelfths where probabilities are quarters. Every seventh pair of target and draft of three tokens."""
  rule, array = RULES[name]
  pairs = [(p, q) for p in QUARTERS for q in QUARTERS][::7]
  cells = (np.arange(12) + 0.5) / 12
  drafted, tests, finals = (axis.ravel() for axis in np.meshgrid(np.arange(4), cells, cells, indexing="ij"))
  rows = len(tests)  # of one pair
  tape = Tape.of_rule(np.tile(tests, len(pairs))[:, None], np.tile(finals, len(pairs)))
  token = lambda q: np.searchsorted(np.cumsum(q), (np.arange(4) + 0.5) / 4)[drafted]
  tokens = np.concatenate([token(q) for _, q in pairs]).astype(np.int32)
  with np.errstate(divide="ignore"):
    p, q = (np.float32(np.log(np.repeat(np.stack(side), rows, axis=0)))[:, None] for side in zip(*pairs))
  tables = () if array is None else jnp.asarray(array)
  if array is not None and array.dtype == np.float32:
    tables = DistanceTable(tables, "codebook", 1)
  draft = jaxspec.Draft.chain(jnp.asarray(tokens[:, None]), jnp.asarray(q), 1, 0)
  verdict = jax.jit(rule)(tables, tape.keys(), draft, jnp.asarray(np.concatenate([p, p], axis=1)))
  emitted = np.where(np.asarray(verdict.num_accepted) > 0, tokens, np.asarray(verdict.next_tokens)[:, 0])
  emitted = emitted.reshape(len(pairs), rows)
  found = (emitted[..., None] == np.arange(3)).mean(axis=1)
  audit = jax.jit(functools.partial(exact_distribution, rule))(
    tables, *(jnp.asarray(np.stack(side), jnp.float32) for side in zip(*pairs))
  )
  audited, lossy = np.asarray(audit.distribution), 0
  for index, (p, q) in enumerate(pairs):
    expected = emitted_distribution(rule, array, p, q)[1]
    np.testing.assert_allclose(found[index], expected, atol=1e-6)
    np.testing.assert_allclose(audited[index], expected, atol=1e-6)
    lossy += np.abs(expected - p).max() > 0.05
  assert lossy > 3


def test_vectors_follow_the_target_under_the_exact_rule():
  """``x_i = 0.8 x_{i-1} + N(0, 0.36)``, drafted with another correlation and scale: every step's noise is standard normal,
  and independent of those before it."""
  target = distribution_params(0.36, coef=0.8, last=0.48)
  draft = distribution_params(0.45, shift=0.1, coef=0.55, last=0.5)
  out, tokens = vector_decode(draft, target, PathCoupling(), rows=4000, length=4, window=2)
  assert 0.2 < np.asarray(out.accepted_mask)[:, 1].mean() < 0.95
  x = np.asarray(tokens, np.float64)
  noise = (x[:, 1:] - 0.8 * x[:, :-1]) / 0.6
  for position in range(3):
    assert_same_cdf(noise[:, position], ndtr)
  assert_same_cdf(x[:, 0] / 0.6, ndtr)
  correlations = np.corrcoef(np.concatenate([x[:, :1], noise], axis=1).T) - np.eye(4)
  assert np.abs(correlations).max() < 4 / len(x) ** 0.5
