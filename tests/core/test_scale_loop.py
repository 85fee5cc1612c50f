"""Speculation on scales in the shared loop: exact by enumeration and by chi-square, and rows of equal length."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec.core import rng
from jaxspec.core.state import Origin, SpecParams
from jaxspec.drafters.scale_model import ScaleModelDrafter
from jaxspec.models.conditions import ClassLabels
from jaxspec.rules.scale_rule import PlaceRule, ScaleRule
from jaxspec.testing import Tape, assert_same_distribution, fast_keys
from jaxspec.verifiers.scale_target import ScaleVerifier
from tests.helpers import slow_but
from tests.scale_toy import ToyScales, places

TOY = ToyScales((1, 2, 1, 2), 2)
LARGE = ToyScales((1, 2, 1, 2), 6)
SMALL = ToyScales((1, 1, 2, 1), 2)
RULES = {"map": ScaleRule(), "place": PlaceRule()}


def _any(seed, toy=TOY):
  generator = np.random.default_rng(seed)
  return toy.tables(lambda num: generator.dirichlet(np.full(toy.vocab_size, 1.0), num))


def _halves(seed, toy=SMALL):
  generator = np.random.default_rng(seed)
  return toy.tables(
    lambda num: np.asarray([[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])[generator.choice(3, num, p=[0.5, 0.25, 0.25])]
  )


@functools.cache
def _parts(toy, rule, window, bonus):
  """Parts made once, so that calls of one shape share a trace."""
  return dict(drafter=ScaleModelDrafter(toy, window=window), verifier=ScaleVerifier(toy, rule, bonus=bonus))


def _decode(params, keys, rule, window, *, toy=TOY, bonus=True, **kwargs):
  parts = _parts(toy, rule, window, bonus)
  return jaxspec.speculate(params, keys, ClassLabels(jnp.zeros(len(keys), jnp.int32)), **parts, max_len=4, **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "window"), [("map", 3), ("place", 1)])
def test_distribution(rule, window):
  """Chi-square over all scales jointly, of batches whose rows stop each other."""
  params = SpecParams(_any(1), _any(2))
  out = jax.jit(jax.vmap(lambda keys: _decode(params, keys, RULES[rule], window)))(fast_keys(3, 6000).reshape(-1, 4))
  tokens = places(out.tokens.reshape(-1, 4, 2), TOY.sizes)
  assert_same_distribution(tokens, TOY.joint(params.target))
  assert not np.any(out.metrics.fallback)
  calls = np.asarray(out.counters.target_calls)
  assert (calls == calls[:, :1]).all() and 1 < calls.mean() < 4


def _tape(rule, window):
  """All outcomes of every relevant draw: at most one proposal for a rejected scale."""
  first, draft = (rng.Stream.FIRST, 0), (rng.Stream.OPEN, 0)
  cells = {(*first, 0, 0): 2, (*first, 3, 0): 2}
  cells |= {(*draft, 1, 0): 2} | {(*draft, 2, place): 2 for place in range(2)}
  if rule == "map":
    cells |= {(*first, 1, rng._FINAL): 2, (*first, 2, rng._FINAL): 4}
    cells |= {(*first, 1, rng._PROPOSAL, 0): 2, (*first, 1, rng._PROPOSAL, 1): 2}
    cells |= {(*first, 2, rng._PROPOSAL, 0): 2, (*first, 2, rng._PROPOSAL, 1): 2, (*first, 2, rng._PROPOSAL, 2): 4}
  else:
    cells[(*first, 1, 0)] = 2
  if window == 1 or rule == "place":  # the target's own scale 2, and tests of its positions
    cells |= {(*first, 2, place): 2 for place in range(2)}
  return Tape.all_outcomes(cells)


def _weights(out, params, tokens):
  """A rejected scale whose only proposal is not accepted has weight 0; proposals are independent, so the others represent
  it."""
  weights = 1.0 - np.asarray(out.metrics.fallback).any(axis=1)
  joint = {side: SMALL.laws(getattr(params, side)) for side in ("target", "draft")}
  for scale, start in ((1, 1), (2, 2)):
    replaced = np.asarray(out.origin)[:, scale] == int(Origin.REPLACED)
    past = np.ravel_multi_index(tuple(tokens[:, :start].T), (2,) * start)
    distance = 0.5 * np.abs(joint["target"][scale] - joint["draft"][scale]).sum(axis=1)  # TV of every past
    weights[replaced] /= distance[past[replaced]]
  return weights


@pytest.mark.parametrize("rule", slow_but(RULES, ["map"]))
def test_enumeration(rule):
  """The exact distribution of decodes, with one row per outcome in one batch."""
  _enumerates(0, rule, 2, in_step=True)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_enumeration_of_more(rule):
  """Other probabilities, a window of one scale, and every outcome alone, so that rows do not stop each other."""
  _enumerates(1, rule, 1, in_step=True)
  _enumerates(2, rule, 2, in_step=False)


def _enumerates(seed, rule, window, *, in_step):
  params = SpecParams(_halves(seed), _halves(seed + 100))
  judge = ScaleRule(max_tries=1) if rule == "map" else PlaceRule()
  keys = _tape(rule, window).keys()
  decode = lambda keys: _decode(params, keys, judge, window, toy=SMALL)
  out = (
    jax.jit(decode)(keys)
    if in_step
    else jax.jit(jax.vmap(lambda key: jax.tree.map(lambda x: x[0], decode(key[None]))))(keys)
  )
  tokens = places(out.tokens, SMALL.sizes)
  weights = _weights(out, params, tokens) if rule == "map" else np.ones(len(tokens))
  found = np.zeros((2,) * tokens.shape[1])
  np.add.at(found, tuple(tokens.T), weights / len(tokens))
  np.testing.assert_allclose(found, SMALL.joint(params.target), atol=1e-6)
  assert 0 < np.mean(np.asarray(out.origin) == int(Origin.DRAFT)) < 1


def test_rows_alone_and_in_a_batch():
  """Without a bonus scale, a row has the same scales in any batch, fused and in Python. In a batch of its copies no other
  row stops it, and the program is that of all rows."""
  params, keys = SpecParams(_any(5, LARGE), _any(6, LARGE)), fast_keys(7, 12)
  kwargs = dict(rule=RULES["map"], window=2, bonus=False, toy=LARGE)
  together = _decode(params, keys, **kwargs)
  alone = [_decode(params, keys[np.full(12, row)], **kwargs) for row in range(12)]
  np.testing.assert_array_equal(together.tokens, [out.tokens[0] for out in alone])
  rounds = [int(out.counters.rounds[0]) for out in alone]
  assert len(set(rounds)) > 1 and int(together.counters.rounds[0]) >= max(rounds)
  on_host = _decode(params, keys, **kwargs, loop="host")
  jax.tree.map(np.testing.assert_array_equal, together, on_host)


def test_counters_and_the_target_s_own_maps():
  """Scales of a prefix are the target's; every scale has one origin, and the counts add up."""
  params, keys = SpecParams(_any(5), _any(5)), fast_keys(7, 5)  # equal networks: everything is accepted
  out = _decode(params, keys, RULES["map"], 2, target_prefix=2)
  assert out.origin.tolist() == [[Origin.FIRST, Origin.BONUS, Origin.DRAFT, Origin.BONUS]] * 5
  counters = [np.asarray(leaf).tolist() for leaf in (out.counters.drafted, out.counters.accepted, out.counters.target_calls)]
  assert counters == [[1] * 5, [1] * 5, [3] * 5]
  plain = jaxspec.autoregress(
    params, keys, ClassLabels(jnp.zeros(5, jnp.int32)), verifier=ScaleVerifier(TOY, RULES["map"]), max_len=4
  )
  np.testing.assert_array_equal(plain.tokens[:, :2], out.tokens[:, :2])
  assert plain.counters.target_calls.tolist() == [4] * 5


def test_parts_without_a_length():
  drafter, verifier = ScaleModelDrafter(TOY, window=1), ScaleVerifier(TOY, RULES["map"])
  for call in (drafter.draft, drafter.read, verifier.verify):
    with pytest.raises(ValueError, match=r"rows of one known length here: ask the part for it with at\(length, max_len\)"):
      call(*[()] * (len(inspect.signature(call).parameters)))
  with pytest.raises(ValueError, match="at most the 4 scales of an image, we instead got 5"):
    jaxspec.autoregress(
      SpecParams((), _any(1)), fast_keys(0, 1), ClassLabels(jnp.zeros(1, jnp.int32)), verifier=verifier, max_len=5
    )
  with pytest.raises(ValueError, match="window of at least 1"):
    ScaleModelDrafter(TOY, window=0)
  with pytest.raises(ValueError, match="max_tries of at least 1"):
    ScaleRule(max_tries=0)
