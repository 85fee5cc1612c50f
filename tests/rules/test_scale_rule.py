"""Rules for scales agree with formulas in float64: the acceptance of a scale, and the replacement of a rejected one."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core.payloads import DraftedScale
from jaxspec.rules.scale_rule import PlaceRule, ScaleRule
from jaxspec.testing import Tape, assert_same_distribution, fast_keys
from jaxspec.testing.tape import FINAL

GOLDEN = Path(__file__).parents[1] / "golden" / "var" / "var_scale_rule.npz"
CASES = ["c0", "c1", "c2", "c3", "c4"]


@functools.cache
def case(name):
  with np.load(GOLDEN) as archive:
    return {key.removeprefix(f"{name}_").removesuffix("_f64"): archive[key] for key in archive if key.startswith(name)}


@functools.partial(jax.jit, static_argnums=0)
def _accepts(rule, keys, drafted):
  return rule.accepts(keys, drafted)


def _drafted(stored, tokens):

  def logits(probs):
    with np.errstate(divide="ignore"):
      return jnp.asarray(np.tile(np.log(np.float32(probs)), (len(tokens), *[1] * probs.ndim)))

  return DraftedScale(jnp.asarray(tokens, jnp.int32), logits(stored["q"]), logits(stored["p"]))


@pytest.mark.parametrize("name", CASES)
def test_probability_of_a_map(name):
  stored = case(name)
  for shift in (-1e-5, 1e-5):  # a test passes just below its probability, and fails just above it
    uniform = np.clip(stored["map_accept"] + shift, 0, 1 - 2**-23)
    found = _accepts(ScaleRule(), Tape({(FINAL,): uniform}).keys(), _drafted(stored, stored["drafts"]))
    np.testing.assert_array_equal(found, uniform < stored["map_accept"])


@pytest.mark.parametrize("name", CASES)
def test_probability_of_each_place(name):
  stored = case(name)
  drafted, accept = _drafted(stored, stored["drafts"]), stored["place_accept"]
  places = accept.shape[1]
  for place in range(places):
    sure = {(other,): np.zeros(len(accept)) for other in range(places)}
    others = np.delete(accept, place, axis=1).min(axis=1, initial=1.0) > 0
    for shift in (-1e-5, 1e-5):
      uniform = np.clip(accept[:, place] + shift, 0, 1 - 2**-23)
      found = np.asarray(_accepts(PlaceRule(), Tape(sure | {(place,): uniform}).keys(), drafted))
      np.testing.assert_array_equal(found, others & (uniform < accept[:, place]))


def _follows(samples, law):
  """Samples follow a distribution; values of probability 0 do not occur."""
  if np.count_nonzero(law) == 1:
    samples = np.asarray(samples).reshape(len(samples), -1)
    assert (np.ravel_multi_index(tuple(samples.T), law.shape) == np.argmax(law)).all()
  else:
    assert_same_distribution(samples, law)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_stands_for_a_rejected_map(name):
  """Samples of the residual over scales; of each position separately for the other rule."""
  stored, rows = case(name), 2000
  drafted = _drafted(stored, np.zeros((rows, len(stored["p"])), np.int32))
  replaced = jax.jit(ScaleRule().replace)(fast_keys(1, rows), drafted, jnp.ones((rows,), bool))
  assert not np.any(replaced.fallback) and np.min(replaced.tries) == 1
  _follows(replaced.tokens, stored["map_residual"])
  distance = 1 - stored["stats"][0]  # proposals are geometric: their mean is 1 / TV, its error (1 - TV)^0.5 / TV / rows^0.5
  error = np.sqrt(1 - distance) / distance / np.sqrt(rows)
  assert abs(np.mean(replaced.tries) - 1 / distance) < 4 * error

  found = jax.jit(PlaceRule().replace)(fast_keys(2, rows), drafted, jnp.ones((rows,), bool)).tokens
  for place in np.flatnonzero(stored["q"][:, 0]):  # elsewhere token 0 is never drafted
    kept = min(1, stored["p"][place, 0] / stored["q"][place, 0])
    law = (1 - kept) * stored["place_residual"][place]
    law[0] += kept
    _follows(np.asarray(found)[:, place], law)


def test_cap():
  """If no proposal is accepted, the last one is used, and reported."""
  logits = jnp.zeros((3, 2, 4))
  same = DraftedScale(jnp.zeros((3, 2), jnp.int32), logits, logits)
  found = ScaleRule(max_tries=5).replace(fast_keys(0, 3), same, jnp.array([True, False, True]))
  assert found.tries.tolist() == [5, 0, 5] and found.fallback.tolist() == [True, False, True]
