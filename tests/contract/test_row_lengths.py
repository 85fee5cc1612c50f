"""Draft lengths that each row of `sqs` chooses from its past: exact by enumeration, and a length that reads its drafts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import methods, testing
from jaxspec.codecs.codec import topk_lattice
from jaxspec.core import rng, rounds
from jaxspec.drafters.sqs_drafter import SqsDrafter, SqsParams
from jaxspec.models.conditions import ClassLabels
from jaxspec.rules.lossless_sparse import lossless_sparse
from jaxspec.run.round_times import forced
from jaxspec.testing import Tape, enumerate_outcomes, first_draw, round_draws
from tests.contract import networks
from tests.contract.cases import ROWS, Case
from tests.contract.cases import N as LENGTH
from tests.contract.test_enumeration import TABLES, TOP, WARP, V, _halves, _side

N, WINDOW = 4, 2
HOST, SIZE = networks.history_fns(V, N), networks.rows_of_table(V, N)
LENGTHS = tuple(range(WINDOW + 1))
FORCED = jnp.asarray([forced(LENGTHS, length) for length in LENGTHS])
# Two drafts at first; one after one acceptance; none after a rejection of the first draft.
TIMES = jnp.asarray([1024, 1394, 1700], jnp.int32)


def _parts(bonus=True):
  drafter = SqsDrafter(HOST, topk_lattice(V, 2, ell=2), window=WINDOW, warp=WARP, chooses_length=True, bonus=bonus)
  return dict(drafter=drafter, verifier=jaxspec.TargetVerifier(HOST, lossless_sparse, warp=WARP, bonus=bonus))


def _params(seed, times=TIMES):
  draft = np.random.default_rng(seed + 100).dirichlet(np.full(V, 0.7), SIZE)
  return jaxspec.SpecParams(SqsParams(_side(draft), TOP, jnp.float32(1e6), times), _side(_halves(seed, SIZE)))


def _tape():
  """Rounds 0 and 1 have at most 2 and 1 drafts, round 2 none."""
  drafted = [(rng.Stream.DRAFT, 0, 0), (rng.Stream.DRAFT, 0, 1), (rng.Stream.DRAFT, 1, 0)]
  judged = [first_draw(), *round_draws(0, tests=2), *round_draws(1, tests=1), *round_draws(2)]
  return Tape.all_outcomes(dict.fromkeys(judged, 2), dict.fromkeys(drafted, 2))


def _error(decode, seed):
  """Distance of the joint distribution of all tokens from the target's."""
  return 0.5 * np.abs(enumerate_outcomes(decode, _tape(), V) - networks.joint(_halves(seed, SIZE), V, N)).sum()


@functools.cache
def _steps():
  parts = _parts()
  start = jax.jit(functools.partial(rounds.start, max_len=N, **parts))
  draft = jax.jit(functools.partial(rounds.draft_round, drafter=parts["drafter"]))
  return start, draft, jax.jit(functools.partial(rounds.decode_round, **parts))


def _by_hand(keys, seed, length_of):
  """A decode whose lengths are those of ``length_of(number of the round, tokens so far [R, N], drafts [R, K])``."""
  start, draft, step = _steps()
  rows = keys.shape[0]
  tables = lambda lengths: _params(seed, FORCED[jnp.broadcast_to(lengths, (rows,))])
  state = start(tables(0), keys, ClassLabels(jnp.zeros((rows,), jnp.int32)))
  for number in range(N - 1):
    side = state.draft_side
    drafts = draft(tables(WINDOW).draft, side).draft.tokens
    state = step(tables(length_of(number, side.tokens, drafts)), state)
  return state.draft_side.tokens


@pytest.mark.slow
@pytest.mark.parametrize("bonus", [True, False])
def test_every_outcome_of_a_decode(bonus):
  """Without a bonus token a single draft does not pay, so lengths are 2 and 0."""
  seen = set()
  for seed in TABLES:
    outs = []

    def decode(keys, outs=outs, seed=seed):
      condition = ClassLabels(jnp.zeros((keys.shape[0],), jnp.int32))
      outs.append(jaxspec.speculate(_params(seed), keys, condition, max_len=N, **_parts(bonus)))
      return outs[0].tokens

    assert _error(decode, seed) < 1e-6
    seen |= {tuple(row) for row in np.asarray(outs[0].report.rounds).tolist()}
  assert seen >= ({(0, 0, 1), (0, 1, 1), (2, 0, 1)} if bonus else {(0, 0, 2), (2, 0, 1)})


@pytest.mark.slow
def test_lengths_that_follow_the_past_in_any_way():
  """Such as measured seconds, which may depend on all that was committed and sent."""
  rules = [
    lambda number, tokens, drafts: jnp.sum(tokens * jnp.arange(2, N + 2)[None], axis=1) % 3,
    lambda number, tokens, drafts: jnp.where(tokens[:, number] == 1, 0, WINDOW - number % 2),
  ]
  for seed, rule in zip(TABLES, rules * 2):
    assert _error(lambda keys, seed=seed, rule=rule: _by_hand(keys, seed, rule), seed) < 1e-6


@pytest.mark.slow
def test_a_length_that_reads_its_drafts_shows():
  """The power of the tests above."""
  reads = lambda number, tokens, drafts: jnp.where(drafts[:, 0] == 0, 0, WINDOW)
  assert max(_error(lambda keys, seed=seed: _by_hand(keys, seed, reads), seed) for seed in TABLES) > 1e-2


@pytest.mark.slow
def test_recorded_lengths_give_the_same_tokens():
  """A decode that chooses, and one whose rounds have the lengths that it chose, over every outcome of the draws."""
  tape, found = _tape(), []
  rows = tape.num_rows
  condition = ClassLabels(jnp.zeros((rows,), jnp.int32))
  out = jaxspec.speculate(_params(3), tape.keys(), condition, max_len=N, **_parts())
  start, _, step = _steps()
  chooses = _params(3, jnp.asarray(np.tile(TIMES, (rows, 1))))  # the shapes of forced lengths: the same programs
  state, counted = start(chooses, tape.keys(), condition), np.zeros((rows, len(LENGTHS)), np.int32)
  for _ in range(N - 1):
    state = step(chooses, state)
    now = np.asarray(state.draft_side.drafter.choice.rounds[:, 0])
    found.append((now - counted).argmax(axis=1))
    counted = now
  recorded = lambda number, tokens, drafts: jnp.asarray(found[number])
  np.testing.assert_array_equal(_by_hand(tape.keys(), 3, recorded), out.tokens)
  assert len({tuple(row) for row in np.stack(found, axis=1)}) > 1


@pytest.mark.slow
def test_contract():
  """Rows have the same tokens alone and in a batch; one program serves all lengths."""
  case = Case(methods.Sqs(max_drafts=3, ell=8, beta1=0.2, eta=0.3, alpha=0.1, length="delay"), prefix=2)
  condition = case.condition(ROWS)
  out = testing.check_contract(
    case.parts, condition, max_len=LENGTH, key=testing.fast_keys(2, ROWS), num_alone=1, history_free=False,
  )  # fmt: skip
  samples = np.concatenate([np.asarray(condition.labels)[:, None], out.tokens[:, :4]], axis=1)
  testing.assert_same_distribution(samples, case.joint().sum(axis=(5, 6)))
  assert len(np.unique(np.asarray(out.report.rounds).argmax(axis=1))) > 1
