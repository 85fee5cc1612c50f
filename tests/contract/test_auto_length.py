"""Draft lengths chosen before each round: exact by enumeration, and the contract.

Every row of the tape is decoded alone, so that its lengths follow its own past. The table of times is such that the first
verdict decides between a plain round and a draft.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import methods, testing
from jaxspec.core import rng, rounds
from jaxspec.core.constructors import with_draft
from jaxspec.drafters.auto_length import AutoLengthDrafter, AutoLengthParams
from jaxspec.drafters.block_drafter import BlockDrafter
from jaxspec.drafters.eagle_chain import EagleChainDrafter
from jaxspec.drafters.jacobi_drafter import JacobiDrafter
from jaxspec.drafters.spatial_drafter import SpatialDrafter
from jaxspec.models.conditions import ClassLabels
from jaxspec.run.round_times import forced
from jaxspec.testing import Tape, enumerate_outcomes, first_draw, round_draws
from jaxspec.verifiers.target import no_feedback, target_features, target_logits
from tests.contract import networks
from tests.contract.cases import ROWS, Case
from tests.contract.cases import N as LENGTH
from tests.contract.test_enumeration import TABLES, WARP, V, _halves, _head_side, _side
from tests.helpers import slow_but

N, WIDTHS = 5, (0, 1, 2)
HOST, HEAD = networks.history_fns(V, N), networks.history_fns(V, N, head=True)
# Two drafts at first; one after one acceptance; plain rounds after a rejection of the first draft.
TIMES = jnp.asarray([1024, 1394, 1700], jnp.int32)


def _probs(seed):
  return _halves(seed, networks.rows_of_table(V, N))


FAMILIES = {
  "chain": (jaxspec.SmallModelDrafter(HOST, window=2, warp=WARP), no_feedback, lambda seed: _side(_probs(seed + 100))),
  "eagle chain": (
    EagleChainDrafter(HEAD, window=2, warp=WARP), target_features, lambda seed: _head_side(_probs(seed + 100))
  ),
  "block head": (
    BlockDrafter(networks.block_head_fns(V, N), window=2, warp=WARP), target_features,
    lambda seed: _head_side(_probs(seed + 100)),
  ),
  "spatial": (
    SpatialDrafter(networks.spatial_fns(V, N, 2), window=2, columns=2, warp=WARP), target_features,
    lambda seed: _head_side(_probs(seed + 100)),
  ),
  "jacobi": (JacobiDrafter(window=2, vocab_size=V, recycle="fresh"), target_logits, lambda seed: ()),
}  # fmt: skip


@functools.cache
def _alone(drafter, verifier):
  """Decodes every row as a batch of its own, in one program: from parameters and keys ``[R]`` to leaves ``[R, 1, ...]``."""

  def one(params, key):
    condition = ClassLabels(jnp.zeros((1,), jnp.int32))
    return jaxspec.speculate(params, key[None], condition, drafter=drafter, verifier=verifier, max_len=N)

  return jax.jit(jax.vmap(one, in_axes=(None, 0)))


def _tape():
  """Rounds 0 and 1 have at most 2 and 1 drafts, rounds 2 and 3 none."""
  drafted = [(rng.Stream.DRAFT, 0, 0), (rng.Stream.DRAFT, 0, 1), (rng.Stream.DRAFT, 1, 0)]
  judged = [first_draw(), *round_draws(0, tests=2), *round_draws(1, tests=1), *round_draws(2), *round_draws(3)]
  return Tape.all_outcomes(dict.fromkeys([*drafted, *judged], 2))


def _verifier(feedback_fn):
  return jaxspec.TargetVerifier(HOST, jaxspec.lossless, warp=WARP, feedback_fn=feedback_fn, widths=(1, 2))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_outcome_of_a_decode(family):
  inner, feedback_fn, draft_params = FAMILIES[family]
  drafter, tape, verifier = AutoLengthDrafter(inner, WIDTHS), _tape(), _verifier(feedback_fn)
  seen = set()
  for seed in TABLES:
    probs = _probs(seed)
    params = jaxspec.SpecParams(AutoLengthParams(draft_params(seed), TIMES), _side(probs))
    outs = []

    def decode(keys, params=params, outs=outs):
      outs.append(_alone(drafter, verifier)(params, keys))
      return outs[0].tokens[:, 0]

    error = enumerate_outcomes(decode, tape, V) - networks.joint(probs, V, N)
    assert 0.5 * np.abs(error).sum() < 1e-5
    seen |= {tuple(row) for row in np.asarray(outs[0].report.rounds)[:, 0].tolist()}
  # Rounds without drafts, of one and of two, by the verdicts of each row.
  assert {(0, 0, 2), (0, 1, 1), (3, 0, 1)} <= seen


@pytest.mark.slow
def test_a_length_that_follows_the_drafts_shows():
  """The power of the test above: drafts that are cut by their own tokens bias the output."""
  inner, feedback_fn, draft_params = FAMILIES["chain"]

  def draft(params, keys, state, cursor):
    drafted, state, trace = inner.draft(params, keys, state, cursor)
    return drafted._replace(num_drafted=jnp.where(drafted.tokens[:, 0] == 0, 0, 1)), state, trace

  drafter, tv = with_draft(inner, draft), []
  for seed in TABLES:
    params = jaxspec.SpecParams(draft_params(seed), _side(_probs(seed)))
    decode = lambda keys, params=params: _alone(drafter, _verifier(feedback_fn))(params, keys).tokens[:, 0]
    drawn = [(rng.Stream.DRAFT, number, 0) for number in range(3)]
    judged = [first_draw(), *(draw for number in range(4) for draw in round_draws(number, tests=int(number < 3)))]
    tape = Tape.all_outcomes(dict.fromkeys([*drawn, *judged], 2))
    error = enumerate_outcomes(decode, tape, V) - networks.joint(_probs(seed), V, N)
    tv.append(0.5 * np.abs(error).sum())
  assert max(tv) > 1e-2


@pytest.mark.parametrize("family", slow_but(["chain", "eagle chain"], ["chain"]))
def test_tokens_of_plain_rounds_are_read_later(family):
  """A draft network with the target's own table, which depends on all tokens: drafts after plain rounds are all accepted."""
  length, rows = 8, 16
  host, head = networks.history_fns(V, length), networks.history_fns(V, length, head=True)
  probs = np.random.default_rng(0).dirichlet(np.full(V, 0.7), networks.rows_of_table(V, length))
  inner, drafting, feedback_fn = jaxspec.SmallModelDrafter(host, window=2, warp=WARP), _side(probs), no_feedback
  if family == "eagle chain":
    inner, drafting, feedback_fn = EagleChainDrafter(head, window=2, warp=WARP), _head_side(probs), target_features
  verifier = jaxspec.TargetVerifier(host, jaxspec.lossless, warp=WARP, feedback_fn=feedback_fn, widths=(1, 2))
  parts = dict(drafter=AutoLengthDrafter(inner, WIDTHS), verifier=verifier)
  of_length = lambda number: jaxspec.SpecParams(
    AutoLengthParams(drafting, jax.device_put(forced(WIDTHS, number))), _side(probs)
  )  # fmt: skip
  condition = ClassLabels(jnp.zeros((rows,), jnp.int32))
  start = jax.jit(functools.partial(rounds.start, max_len=length, **parts))
  state = start(of_length(0), testing.fast_keys(0, rows), condition)
  step = jax.jit(functools.partial(rounds.decode_round, **parts))
  for number in (0, 0, 0, 2):
    state = step(of_length(number), state)
  counters = state.draft_side.counters
  np.testing.assert_array_equal(counters.drafted, np.full(rows, 2))
  np.testing.assert_array_equal(counters.accepted, np.full(rows, 2))
  np.testing.assert_array_equal(counters.draft_calls, np.full(rows, inner.calls_to_read + 3 + 2))


# Passes of one, two and four inputs; lengths change within a row. Rules do not know the lengths; the outcomes above are also
# those of heads. test_enumeration.py has block verification of rounds of two drafts, one and none.
CHOICE = dict(round_times=("0:1", "1:1.2", "3:1.45"))
CONTRACT = {
  "speculative": Case(methods.Speculative(gamma="auto", **CHOICE), prefix=2),
  "sjd": Case(methods.Sjd(window="auto", initial="left", **CHOICE), prefix=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name):
  case = CONTRACT[name]
  condition = case.condition(ROWS)
  out = testing.check_contract(
    case.parts, condition, max_len=LENGTH, key=testing.fast_keys(2, ROWS), num_alone=1, drivers=name == "speculative"
  )  # fmt: skip
  # Also exact in a batch, whose rows share the lengths.
  samples = np.concatenate([np.asarray(condition.labels)[:, None], out.tokens[:, 1:4]], axis=1)
  testing.assert_same_distribution(samples, case.joint().sum(axis=(1, 5, 6)))
  assert 0 < out.counters.accepted.sum() < out.counters.drafted.sum()
