"""The tools themselves: tapes give their values, tests reject wrong distributions, and the contract names errors."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from jaxspec import testing
from jaxspec.core import rng
from jaxspec.core.constructors import with_verify
from jaxspec.core.state import SpecParams
from jaxspec.methods import Speculative
from jaxspec.methods.method import Parts
from jaxspec.models.conditions import ClassLabels
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.testing import FINAL, Tape, assert_same_cdf, assert_same_distribution, check_contract, round_draws
from jaxspec.testing.tape import _code
from tests.contract.cases import CASES
from tests.serving.edge.pairs import CLASSES, case_named


def test_tapes_draw_what_they_hold():
  """Through the functions of `jaxspec.core.rng`, by stream, round and offset; other draws are pseudo-random."""
  tape = Tape.all_outcomes(
    {(rng.Stream.VERIFY, 0, 1): 4, (rng.Stream.VERIFY, 0, FINAL): 3, (rng.Stream.DRAFT, 1, 0): 2},
    {(rng.Stream.DRAFT, 1, 2): 5},
  )
  assert tape.num_rows == 4 * 3 * 2 * 5

  @jax.jit
  def draw(keys):
    verify = [rng.stream_keys(keys, rng.Stream.VERIFY, round_) for round_ in (0, 1)]
    draft = rng.stream_keys(keys, rng.Stream.DRAFT, jnp.int32(1))
    below = jnp.full(keys.shape, 5, jnp.int32)
    uniforms = [rng.uniforms(key, 3) for key in map(jax.random.clone, verify)]
    return uniforms, rng.final_uniform(verify[0]), rng.uniform(jax.random.clone(draft), 0), rng.integer(draft, 2, below)

  uniforms, final, drafted, integers = jax.tree.map(np.asarray, draw(tape.keys()))
  np.testing.assert_allclose(uniforms[0][:, 1], tape.values[rng.Stream.VERIFY, 0, 1], atol=1e-6)
  np.testing.assert_allclose(final, tape.values[rng.Stream.VERIFY, 0, FINAL], atol=1e-6)
  np.testing.assert_allclose(drafted, tape.values[rng.Stream.DRAFT, 1, 0], atol=1e-6)
  np.testing.assert_array_equal(integers, tape.values[rng.Stream.DRAFT, 1, 2])
  rest = np.concatenate([uniforms[0][:, [0, 2]].ravel(), uniforms[1].ravel()])
  assert len(np.unique(rest)) == len(rest) and stats.kstest(rest, "uniform").pvalue > 0.01


def test_a_tape_of_a_rule():
  tests = np.array([[0.25, 0.75], [0.5, 0.125]])
  keys = Tape.of_rule(tests, 0.375).keys()
  uniforms, final = jax.jit(lambda keys: (rng.uniforms(jax.random.clone(keys), 2), rng.final_uniform(keys)))(keys)
  np.testing.assert_allclose(uniforms, tests, atol=1e-6)
  np.testing.assert_allclose(final, 0.375, atol=1e-6)


def test_fast_keys_are_random():
  """Uniform, and independent between rows, streams, rounds and offsets."""
  streams = [(stream, r) for stream in (rng.Stream.DRAFT, rng.Stream.VERIFY) for r in (0, 1)]

  @jax.jit
  def draw(keys):
    return [rng.uniforms(rng.stream_keys(jax.random.clone(keys), stream, jnp.int32(r)), 4) for stream, r in streams]

  draws = np.concatenate(draw(testing.fast_keys(0, 500)), axis=1)  # [500, 16]
  assert stats.kstest(draws.ravel(), "uniform").pvalue > 0.01
  assert np.abs(np.corrcoef(draws.T) - np.eye(16)).max() < 4.5 / 500**0.5
  assert np.abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 4 / draws.size**0.5
  normals = np.asarray(jax.jit(jax.vmap(lambda key: jax.random.normal(key, (20,))))(testing.fast_keys(1, 500)))
  assert_same_cdf(normals, ndtr)


def test_chi_square_knows_right_from_wrong():
  generator = np.random.default_rng(0)
  probs = generator.dirichlet(np.ones(30)).reshape(5, 6)
  samples = np.stack(np.unravel_index(generator.choice(30, size=4000, p=probs.ravel()), (5, 6)), axis=1)
  p_value = assert_same_distribution(samples, probs)
  expected, observed = probs.ravel() * 4000, np.bincount(samples[:, 0] * 6 + samples[:, 1], minlength=30)
  large = expected >= 5
  merge = lambda x: np.append(x[large], x[~large].sum())
  if expected[~large].sum() >= 5:
    assert p_value == pytest.approx(stats.chisquare(merge(observed), merge(expected)).pvalue, rel=1e-6)
  # A wrong joint distribution with correct margins is rejected.
  wrong = probs.sum(1, keepdims=True) * probs.sum(0, keepdims=True)
  with pytest.raises(AssertionError, match="^same distribution: Must have a p-value above 0.01"):
    assert_same_distribution(samples, wrong)
  with pytest.raises(AssertionError, match="no sample of probability 0"):
    assert_same_distribution(np.array([0, 1, 2] * 9), np.array([0.5, 0.5, 0.0]))
  with pytest.raises(ValueError, match="2 axes"):
    assert_same_distribution(samples, probs.ravel())
  with pytest.raises(ValueError, match="at least two cells"):
    assert_same_distribution(np.array([0, 1]), np.array([0.5, 0.5]))


def test_kolmogorov_smirnov_knows_right_from_wrong():
  samples = np.random.default_rng(0).normal(size=2000)
  assert assert_same_cdf(samples, ndtr) > 0.05
  with pytest.raises(AssertionError, match="p-value above"):
    assert_same_cdf(samples + 0.1, ndtr)


def _check(parts, **kwargs):
  return check_contract(parts, CASES["ar"].condition(8), max_len=3, key=testing.fast_keys(1, 8), num_alone=0, **kwargs)


def test_the_contract_names_rows_that_see_each_other():
  """Tokens drawn with the neighbour's keys are exact, but rows depend on their batch."""
  parts = CASES["ar"].parts()
  verify = lambda params, keys, *rest: parts.verifier.verify(params, jnp.roll(keys, 1), *rest)
  with pytest.raises(AssertionError, match="^rows: Must have .* for all rows as in another order, we instead got"):
    _check(parts._replace(verifier=with_verify(parts.verifier, verify)), drivers=False)


@pytest.mark.parametrize("parts", [Speculative(), Speculative])
def test_the_contract_takes_parts(parts):
  with pytest.raises(
    ValueError, match="Must have Parts or a function that builds them, .* we instead got an object of type Spec"
  ):
    _check(parts)


def test_the_contract_names_parts_that_compile_again():
  def others():
    built = CASES["ar"].parts()
    return built._replace(verifier=with_verify(built.verifier, lambda *args: built.verifier.verify(*args)))

  with pytest.raises(AssertionError, match="^equal parts: Must have"):
    _check(others)

  def numbers():
    built = CASES["ar"].parts()
    target = built.params.target
    return built._replace(params=SpecParams((), target._replace(sampling=target.sampling._replace(temperature=1.0))))

  with pytest.raises(AssertionError, match="^one trace: Must have no new trace .*Python numbers"):
    _check(numbers, drivers=False)


def test_addresses_have_codes_of_their_own():
  """All draws of 40 rounds, with entries of arrays and with the children of split keys."""
  addresses = [draw for number in range(40) for draw in round_draws(number, drafts=20, tests=20)]
  addresses += [(*address, entry) for address in addresses for entry in (*range(8), 1 << 31, (1 << 31) + 1)]
  assert len({_code(address) for address in addresses}) == len(addresses)


def test_tapes_are_checked():
  with pytest.raises(ValueError, match="one number of rows"):
    Tape({(0,): np.zeros(2), (1,): np.zeros(3)})
  assert round_draws(2, drafts=1, tests=2) == [(1, 2, 0), (2, 2, 0), (2, 2, 1), (2, 2, FINAL)]


def _check_frames(case, codec):
  """The contract of parts whose rounds cross as frames."""
  parts = Parts(case.params, case.drafter, case.verifier, target_prefix=1)
  kwargs = dict(max_len=10, num_alone=2, history_free=False, drivers=False, codec=codec)
  return check_contract(parts, ClassLabels(jnp.arange(4, dtype=jnp.int32) % CLASSES), **kwargs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["markov:sqs-lazy", "transformer:ciar-features"])
def test_the_contract_of_parts_whose_rounds_cross_as_frames(name):
  """Rows that end, requested distributions, pending tokens, and interval features."""
  case = case_named(name)
  assert _check_frames(case, case.codec).counters.accepted.any()


@pytest.mark.slow
def test_the_contract_names_frames_that_say_something_else():
  case = case_named("markov:sqs-lazy")

  class Forgetful(type(case.codec)):
    def encode_reply(self, round_, num_accepted, next_token, *kind):
      return super().encode_reply(round_, max(num_accepted - 1, 0), next_token, *kind)

  fields = {field.name: getattr(case.codec, field.name) for field in dataclasses.fields(case.codec)}
  with pytest.raises((AssertionError, MessageError), match="codec|range|order"):
    _check_frames(case, Forgetful(**fields))
