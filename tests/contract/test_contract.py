"""One contract for all methods, and the joint distribution of neighbouring tokens of all exact ones."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import methods, testing
from jaxspec.core.no_draft import NO_DRAFTER
from jaxspec.core.state import Origin
from jaxspec.methods import METHODS, Parts
from tests.contract import networks
from tests.contract.blocks import block_target, pausing, without_bonus
from tests.contract.cases import CASES, LOGITS, MORE, NOISE, ROWS, Case, N, V
from tests.helpers import side, slow_but


def _check(case: Case, **kwargs):
  """The contract; for an exact method also tokens 1 to 3 of every class, committed by two rounds."""
  rows = ROWS if case.draws_ids else 12 if case.method.tokens in (methods.SCALES, methods.DENOISING_STEPS) else 3
  condition, length = case.condition(rows), case.decoder.context.space.num_tokens
  out = testing.check_contract(
    case.parts, condition, max_len=length, history_free=case.history_free, **({"key": testing.fast_keys(1, rows)} | kwargs)
  )
  if case.draws_ids and case.method.is_exact:
    samples = np.concatenate([np.asarray(condition.labels)[:, None], out.tokens[:, 1:4]], axis=1)
    testing.assert_same_distribution(samples, case.joint().sum(axis=(1, 5, 6)))
  if case.method.longest_path():
    accepted, drafted = out.counters.accepted.sum(), out.counters.drafted.sum()
    assert 0 < accepted < drafted  # some drafts are accepted and some rejected
  return out


def test_every_method_has_a_case():
  assert {case.method.name for case in CASES.values()} == set(METHODS)
  # Every drafter reads a prefix in some case.
  prefixed = {case.method.name for case in CASES.values() if case.target_prefix >= 2}
  wanted = {"speculative", "sqs", "sjd", "eagle", "eagle-chain", "block-head", "spatial", "ciar", "cspd"}
  assert prefixed >= wanted


# One case of each kind of draft and of verifier; others have a drafter that test_enumeration.py enumerates, or differ from
# one of these in their rule or their prefix alone. Rows are enumerated in tests/methods/test_row_windows.py; parallel
# decoding has no rounds (tests/core/test_masked.py).
FAST = {"ar", "speculative", "sqs", "lantern", "eagle", "eagle-chain", "block-head", "ciar after a prefix", "cspd"}
# Scales and steps are in `test_whole_contract`, after a prefix; tests/core has them without one.
NAMES = [name for name, case in CASES.items() if case.method.tokens not in (methods.SCALES, methods.DENOISING_STEPS)]


@pytest.mark.parametrize("name", slow_but(NAMES, FAST))
def test_contract(name):
  case = CASES[name]
  assert case.parts().target_prefix == case.target_prefix
  out = _check(case, num_alone=case.num_alone, drivers=name == "speculative")
  if case.acceptance is not None:
    accepted, drafted = out.counters.accepted.sum(), out.counters.drafted.sum()
    assert accepted / drafted == pytest.approx(case.acceptance, abs=0.02)
  if name == "sqs":
    np.testing.assert_allclose(out.report.sparsifier.value, _thresholds(case.method, out, case.target_prefix), atol=1e-5)
  if name == "ciar":
    assert set(np.unique(out.origin)) >= {Origin.FIRST, Origin.LOCAL, Origin.DRAFT, Origin.REPLACED, Origin.BONUS}


def _thresholds(method, out, prefix) -> np.ndarray:
  """The last thresholds of C-SQS, from the committed tokens alone: each counts once, by the draft's distribution at its
  position."""
  base = V + 1
  names = (np.arange(ROWS) % networks.CLASSES) * base ** (N - 1)
  beta = np.full(ROWS, method.beta1)
  for index in range(N):
    if index >= prefix:
      q = networks.softmax(LOGITS + NOISE)[names]
      kept = np.where(q >= beta[:, None], q, 0).sum(1)
      beta = beta - method.eta * (np.where(kept > 0, 1 - kept, 1.0) - method.alpha)
      beta = np.maximum(beta, -method.eta * (1 - method.alpha))
    names = names + (out.tokens[:, index] + 1) * base**index
  return beta


def _blocks(drafts: bool) -> Parts:
  model = networks.history_fns(V, N)
  sides = [side({"output": jnp.asarray(logits, jnp.float32)}) for logits in (LOGITS + NOISE, LOGITS)]
  drafter = jaxspec.SmallModelDrafter(model, window=2, warp=jaxspec.Warp()) if drafts else NO_DRAFTER
  params = jaxspec.SpecParams(sides[0] if drafts else (), sides[1])
  return Parts(params, drafter, block_target(model, size=2 if drafts else 3))


@pytest.mark.parametrize("drafts", slow_but([False, True], [False]))
def test_a_verifier_may_commit_blocks(drafts):
  """Several tokens of the target in one round, including end tokens in the middle of a block."""
  condition = Case(CASES["ar"].method).condition(ROWS)
  out = testing.check_contract(
    lambda: _blocks(drafts), condition, max_len=N, key=testing.fast_keys(3, ROWS), num_alone=1, drivers=False
  )
  samples = np.concatenate([np.asarray(condition.labels)[:, None], out.tokens[:, 1:4]], axis=1)
  testing.assert_same_distribution(samples, CASES["ar"].joint().sum(axis=(1, 5, 6)))
  own = np.isin(out.origin, (Origin.REPLACED, Origin.BONUS))
  most = max((own & (out.commit_round == number)).sum(1).max() for number in range(1, N))
  assert most == (2 if drafts else 3)
  assert out.counters.rounds.min() < N - 1


# SQS is in `test_whole_contract`.
NO_BONUS = slow_but(["speculative", "eagle-chain", "block-head", "sjd", "eagle", "ciar"], ["speculative"])


@pytest.mark.parametrize("name", NO_BONUS)
def test_a_verifier_may_add_nothing(name):
  """Fully accepted drafts are committed alone; every drafter reads on from there, and the tokens follow the target."""
  case = CASES[name]
  parts = lambda: (found := case.parts())._replace(verifier=without_bonus(found.verifier))
  condition = case.condition(ROWS)
  out = testing.check_contract(
    parts, condition, max_len=N, key=testing.fast_keys(4, ROWS), num_alone=2, history_free=case.history_free, drivers=False
  )
  if case.method.is_exact:
    samples = np.concatenate([np.asarray(condition.labels)[:, None], out.tokens[:, 1:4]], axis=1)
    testing.assert_same_distribution(samples, case.joint().sum(axis=(1, 5, 6)))
  # No bonus token comes after a draft in its round.
  follows = (out.origin[:, 1:] == Origin.BONUS) & (out.origin[:, :-1] == Origin.DRAFT)
  in_round = out.commit_round[:, 1:] == out.commit_round[:, :-1]
  assert (follows & in_round).any() == (name == "eagle")  # a path may end at a leaf of a shallow branch
  assert (out.origin == Origin.DRAFT).any()


@pytest.mark.parametrize("name", slow_but(["speculative", "eagle-chain", "block-head"], ["eagle-chain"]))
def test_a_round_may_commit_nothing(name):
  """The next one begins where it began, with other random numbers."""
  case = CASES[name]
  parts, condition = case.parts(), case.condition(ROWS)
  drafter, verifier = parts.pair()
  sizes = dict(drafter=drafter, verifier=pausing(verifier), max_len=N, target_prefix=parts.target_prefix)
  rounds = jaxspec.iterate(parts.params, testing.fast_keys(5, ROWS), condition, **sizes)
  sides = [
    jax.tree.map(np.asarray, dataclasses.replace(side, drafter=side.drafter._replace(cache=()), keys=())) for side in rounds
  ]
  out, states = sides[-1], [(side.cursor, side.drafter) for side in sides]
  assert (out.cursor.length == N).all()
  pauses = 0
  for (before, old), (after, new) in itertools.pairwise(states):
    still = before.live & (before.length == after.length)
    pauses += still.sum()
    for held, now in zip(jax.tree.leaves(old), jax.tree.leaves(new)):
      np.testing.assert_array_equal(held[still] if held.ndim else held, now[still] if now.ndim else now)
  assert pauses > ROWS // 4
  drafted = np.asarray(out.commit_round)[:, max(parts.target_prefix, 1) :]
  assert (drafted % 2 == 1).all() and (out.counters.rounds > drafted.shape[1] // 2).all()
  samples = np.concatenate([np.asarray(condition.labels)[:, None], out.tokens[:, 1:4]], axis=1)
  testing.assert_same_distribution(samples, case.joint().sum(axis=(1, 5, 6)))


# Their drafters read a prefix in the cases of the methods that differ in the rule alone; plain decoding has no drafter, and
# `parallel` no prefix.
NO_OTHER_PREFIX = {"lantern", "gsd", "scaled", "eagle-lantern", "ar", "ar of vectors", "parallel", "cspd, blocks"}


@pytest.mark.slow
@pytest.mark.parametrize(
  "name", [*(name for name, case in CASES.items() if not case.target_prefix and name not in NO_OTHER_PREFIX), *MORE]
)
def test_whole_contract(name):
  """After a prefix for the cases without one, and for more settings; CIAR with JAX's own keys.

  Drivers run the same rounds whatever the method: `test_contract` and tests/core compare them.
  """
  case = (CASES | MORE)[name]
  case = dataclasses.replace(case, prefix=min(2, case.decoder.context.space.num_tokens - 2))  # some tokens remain to draft
  out = _check(case, num_alone=1, drivers=False, **({"key": jax.random.key(5)} if name == "ciar" else {}))
  if name == "sqs, no bonus":
    np.testing.assert_allclose(out.report.sparsifier.value, _thresholds(case.method, out, case.prefix), atol=1e-5)
