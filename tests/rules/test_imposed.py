"""Imposed acceptance of chains, trees and drafts with local acceptance."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import methods
from jaxspec.core import constructors
from jaxspec.core.network import Network
from jaxspec.core.state import Origin
from jaxspec.core.types import Cursor, Draft
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.heads import inter_head
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.planning.recorded_acceptance import RecordedAcceptance
from jaxspec.rules.tree_rule import tree_rule
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import ContinuousSampling
from jaxspec.sampling.logit_processing import ModelParams
from jaxspec.testing import fast_keys
from jaxspec.verifiers.imposed import Imposed, ImposedVerifier
from tests.helpers import random_params

ROWS, VOCAB, WINDOW, MAX_LEN = 20_000, 5, 4, 32
TARGET = jnp.log(jnp.arange(1.0, VOCAB + 1))


@functools.cache
def verifier_of(rule):
  """A verifier without a network: equal logits at all positions."""

  def logits(keys, positions):
    return jnp.broadcast_to(TARGET, (len(keys), positions, VOCAB))

  def init(params, keys, condition, max_len, window):
    return rule(params.rule, keys, Draft.empty(jnp.zeros(len(keys), jnp.int32)), logits(keys, 1)), ()

  def verify(params, keys, state, cursor, draft):
    return rule(params.rule, keys, draft, logits(keys, draft.tokens.shape[1] + 1)), state

  return constructors.verifier_of(init, verify)


@functools.partial(jax.jit, static_argnames=("verifier", "rounds"))
def verdicts(params, keys, cursor, draft, *, verifier, rounds):
  _, state = verifier.init(params, keys, (), MAX_LEN, WINDOW)
  found = []
  for number in range(rounds):
    now = jax.vmap(jax.random.fold_in, (0, None))(keys, number)
    verdict, state = verifier.verify(params, now, state, cursor._replace(round=jnp.int32(number)), draft)
    found.append(verdict)
  return found


def judge(acceptance, *, rule=jaxspec.lossless, rounds=1, rows=ROWS, live=None, length=1, **fields):
  """The verdict about random drafts in many rows; for several rounds the accepted drafts ``[rows, rounds]``."""
  fields = {name: jnp.broadcast_to(jnp.asarray(value), (rows, *np.shape(value))) for name, value in fields.items()}
  proposal = jnp.broadcast_to(TARGET, (rows, WINDOW, VOCAB))
  draft = Draft.chain(jnp.zeros((rows, WINDOW), jnp.int32), proposal, WINDOW, 0)._replace(**fields)
  live = jnp.ones((rows,), bool) if live is None else live
  cursor = Cursor(jnp.zeros((rows,), jnp.int32), jnp.full((rows,), length, jnp.int32), live, jnp.int32(0))
  params = ModelParams((), (), acceptance.tables(()))
  verifier = ImposedVerifier(verifier_of(rule), lock_step=acceptance.lock_step)
  keys = jax.random.split(jax.random.key(0), rows)
  found = verdicts(params, keys, cursor, draft, verifier=verifier, rounds=rounds)
  return found[0] if rounds == 1 else np.stack([verdict.num_accepted for verdict in found], axis=1)


def shares(num_accepted, most):
  return np.bincount(np.asarray(num_accepted), minlength=most + 1) / ROWS


@pytest.mark.parametrize(
  "acceptance, num_drafted, expected",
  [
    (0.7, 4, [0.3, 0.21, 0.147, 0.1029, 0.2401]),
    pytest.param(0.7, 2, [0.3, 0.21, 0.49, 0, 0], marks=pytest.mark.slow),
    (0.0, 4, [1, 0, 0, 0, 0]),
    (1.0, 4, [0, 0, 0, 0, 1]),
    pytest.param((0.9, 0.5), 4, [0.1, 0.45, 0.225, 0.1125, 0.1125], marks=pytest.mark.slow),
  ],
)
def test_chains(acceptance, num_drafted, expected):
  found = shares(judge(Imposed(acceptance), num_drafted=num_drafted).num_accepted, WINDOW)
  # Five standard deviations of a share of 20,000 rows.
  np.testing.assert_allclose(found, expected, atol=5 * 0.5 / ROWS**0.5)
  np.testing.assert_array_equal(found == 0, np.asarray(expected) == 0)


@pytest.mark.slow
def test_trees():
  """Paths have the imposed length for any tree of untrained weights: here of one level."""
  asked = dict(rule=tree_rule(max_path=3), num_drafted=1, parents=np.full(WINDOW, -1, np.int32))
  verdict = judge(Imposed(0.6), **asked)
  np.testing.assert_allclose(shares(verdict.num_accepted, 3), [0.4, 0.24, 0.144, 0.216], atol=5 * 0.5 / ROWS**0.5)
  assert (np.asarray(verdict.path) == [0, 1, 2]).all()
  # One position of a row belongs to the target's own token.
  assert np.asarray(judge(Imposed(1.0), length=MAX_LEN - 2, **asked).num_accepted).tolist() == [1] * ROWS


@pytest.mark.slow
def test_recorded_rows_are_followed():
  """A row follows one recorded row for all of its rounds, cyclically."""
  recorded = ((3, 0, 1), (2, 4))
  found = judge(Imposed(lengths=recorded), rows=64, rounds=4).tolist()
  assert {tuple(row) for row in found} == {(3, 0, 1, 3), (2, 4, 2, 4)}
  assert judge(Imposed(lengths=recorded), rows=64, rounds=4, num_drafted=2).max() == 2


@pytest.mark.slow
def test_lock_step_is_the_minimum_of_live_rows():
  live = jnp.arange(64) >= 8
  free = judge(Imposed(0.9), rows=64, rounds=4, live=live)
  waiting = judge(Imposed(0.9, lock_step=True), rows=64, rounds=4, live=live)
  np.testing.assert_array_equal(waiting, np.broadcast_to(free[8:].min(axis=0), waiting.shape))
  assert (free.min(axis=0) < free[8:].min(axis=0)).any() or free.max() > waiting.max()


def test_local_tokens_are_not_judged():
  verdict = judge(Imposed(1.0), rows=4, num_local=1, needs_verify=True)
  assert np.asarray(verdict.num_accepted).tolist() == [WINDOW] * 4
  verdict = judge(Imposed(1.0), rows=4, num_local=1, needs_verify=False)
  assert np.asarray(verdict.num_accepted).tolist() == [1] * 4


CONFIG = LlamaGenConfig(num_layers=1, dim=8, num_heads=1, vocab_size=8, num_tokens=64, num_classes=3, multiple_of=8)


@pytest.mark.slow
def test_a_decode_counts_what_was_imposed():
  """Random networks agree by chance only; all acceptances share a program."""
  fns = llamagen_fns(CONFIG)
  target, draft = (Network(fns, random_params(fns, seed), CONFIG, name=str(seed)) for seed in (0, 1))
  decoder = Decoder(target, methods.Speculative(draft=draft, gamma=3))
  labels = ClassLabels(jnp.zeros((1024,), jnp.int32))
  assert dataclasses.replace(decoder, imposed=0.2).parts.verifier == dataclasses.replace(decoder, imposed=0.9).parts.verifier
  for acceptance in (0.5, 0.9):
    outcome = dataclasses.replace(decoder, imposed=acceptance)(labels, key=jax.random.key(2))
    accepted, rejected = int(outcome.counters.accepted.sum()), int((outcome.origin == Origin.REPLACED).sum())
    assert accepted / (accepted + rejected) == pytest.approx(acceptance, rel=0.01)
  # Recorded decodes are repeated round by round: each row follows one of them to its end.
  recorded = RecordedAcceptance.of(dataclasses.replace(decoder, imposed=0.5), jax.tree.map(lambda x: x[:4], outcome))
  again = dataclasses.replace(decoder, imposed=recorded.imposed)
  followed = RecordedAcceptance.of(again, again(labels, key=jax.random.key(3)))
  assert set(followed.lengths) == set(recorded.lengths)
  waiting = dataclasses.replace(decoder, imposed=Imposed(0.5, lock_step=True))
  rounds = waiting(ClassLabels(jnp.zeros((16,), jnp.int32)), key=jax.random.key(2)).counters.rounds
  assert int(rounds.min()) == int(rounds.max()) >= 60


def edge_and_cloud(**options):
  """A decoder of random networks whose edge has a head of intervals."""
  edge = inter_head.InterHeadConfig(CONFIG)
  networks = (llamagen_fns(CONFIG), CONFIG), (inter_head.inter_head_fns(edge), edge)
  target, draft = (Network(fns, random_params(fns, seed), config) for seed, (fns, config) in enumerate(networks))
  return Decoder(target, methods.Ciar(draft=draft, tau=0.0, **options))


ROWS_OF_CALLS = 2048


@functools.cache
def imposed_calls(imposed, rows=ROWS_OF_CALLS, **options):
  decoder = dataclasses.replace(edge_and_cloud(**options), imposed=imposed)
  return decoder, decoder(ClassLabels(jnp.zeros((rows,), jnp.int32)), key=fast_keys(5, rows))


@pytest.mark.slow
@pytest.mark.long_runs
@pytest.mark.parametrize(
  ("calls", "acceptance", "options"),
  [(0.1, 0.9, {}), (0.3, 0.7, {"early_close": True}), (0.4, 0.5, {"target_prefix": 0.2, "gamma": 2})],
)
def test_a_decode_calls_as_often_as_imposed(calls, acceptance, options):
  """Calls per token and acceptance of windows within 1 %, over rows of 64 tokens."""
  _, outcome = imposed_calls(Imposed(acceptance, calls=calls), **options)
  asked = int(outcome.counters.target_calls.sum())
  assert asked / outcome.tokens.size == pytest.approx(calls, rel=0.01)
  accepted, rejected = int(outcome.counters.accepted.sum()), int((outcome.origin == Origin.REPLACED).sum())
  assert accepted / (accepted + rejected) == pytest.approx(acceptance, rel=0.01)


@pytest.mark.slow
def test_recorded_calls_are_repeated():
  """Each row asks at the positions of one recorded row, with its accepted drafts."""
  decoder, outcome = imposed_calls(Imposed(0.6, calls=0.25), rows=64)
  recorded = RecordedAcceptance.of(decoder, jax.tree.map(lambda leaf: leaf[:4], outcome))
  again, found = imposed_calls(recorded.imposed, rows=64)
  followed = RecordedAcceptance.of(again, found)
  assert set(zip(followed.called_at, followed.lengths)) == set(zip(recorded.called_at, recorded.lengths))
  # An imposed acceptance changes the windows, and the edge calls at the same positions.
  again, found = imposed_calls(Imposed(0.1, called_at=recorded.called_at, tokens=recorded.tokens), rows=64)
  followed = RecordedAcceptance.of(again, found)
  assert all(any({*row} <= {*theirs} for theirs in recorded.called_at) for row in followed.called_at)


def test_calls_that_cannot_be_reached():
  with pytest.raises(ValueError, match="calls from 0 to 0.3.* we instead got 0.9"):
    _ = dataclasses.replace(edge_and_cloud(), imposed=Imposed(0.7, calls=0.9)).parts
  with pytest.raises(ValueError, match="calls from 0.203 to .* we instead got 0.1"):
    _ = dataclasses.replace(edge_and_cloud(target_prefix=0.21), imposed=Imposed(0.7, calls=0.1)).parts


def test_what_cannot_be_imposed():
  fns = llamagen_fns(CONFIG)
  network = Network(fns, {}, CONFIG)
  for wrong in (1.5, -0.1, (), (0.5, 2.0)):
    with pytest.raises(ValueError, match="an imposed acceptance from 0 to 1"):
      Decoder(network, methods.Sjd(), imposed=wrong)
  for wrong in (dict(), dict(probability=0.5, lengths=((1,),))):
    with pytest.raises(ValueError, match="either a probability or lengths to impose"):
      Imposed(**wrong)
  for wrong in (dict(calls=0.0), dict(calls=1.5), dict(calls=0.5, called_at=((1,),), tokens=(2,))):
    with pytest.raises(ValueError, match="imposed calls above 0"):
      Imposed(0.5, **wrong)
  for asked, tokens in ((((1,),), ()), (((2,),), (2,)), (((1, 0),), (4,)), (((-1,),), (4,))):
    with pytest.raises(ValueError, match="ascending positions of calls below the tokens"):
      Imposed(0.5, called_at=asked, tokens=tokens)
  with pytest.raises(ValueError, match=r"accepts single tokens \(ciar\) to impose its calls"):
    _ = Decoder(network, methods.Sjd(), imposed=Imposed(0.5, calls=0.3)).parts
  for wrong in (((),), ((1,), (-1,))):
    with pytest.raises(ValueError, match="at least one round, none below 0"):
      Imposed(lengths=wrong)
  with pytest.raises(ValueError, match="a method for discrete tokens to impose its acceptance, we instead got cspd"):
    Decoder(network, methods.Cspd(draft=network), sampling=ContinuousSampling(steps="10"), imposed=0.5)
