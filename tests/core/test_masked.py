"""Masked generation: the compiled program against a plain Python one, and its contracts."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core import orders, rng
from jaxspec.diffusion import ddpm
from jaxspec.diffusion.ddpm import TokenNoise
from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.methods import masked_decode
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.mar.mar import MARConfig, mar_fns
from jaxspec.sampling import unmasking
from tests.helpers import random_params

CONFIG = MARConfig(
  num_tokens=9, latent_channels=3, num_classes=3, buffer_size=2, encoder_dim=8, encoder_depth=1, encoder_heads=2,
  decoder_dim=12, decoder_depth=1, decoder_heads=2, diffloss_width=8, diffloss_depth=1,
)  # fmt: skip
FNS = mar_fns(CONFIG)
STEPS = "6"
CONDITION = ClassLabels(jnp.asarray([0, 2, 1]))
KEY = jax.random.key(7)
KWARGS = dict(num_iter=4, num_steps=STEPS, scale=1.7, temperature=0.9, num_buckets=2)


@functools.cache
def _params():
  with jax.ensure_compile_time_eval():
    return random_params(FNS, 0, scale=0.3)


@pytest.fixture(scope="module")
def program():
  """A guided generation in two buckets, with drawn orders and noise."""
  return masked_decode.generate_masked(FNS, _params(), KEY, CONDITION, **KWARGS)


@jax.jit
def _plain_conditions(tokens, mask, condition):
  """Conditions of all positions at once; the encoder has all slots, with a mask of the unknown ones."""
  order = jnp.argsort(mask.astype(jnp.int32), axis=1, stable=True)  # the known positions come first
  known = jnp.sum(mask == 0, axis=1)
  z = FNS.condition(_params(), orders.to_generation_order(tokens, order), order, known, condition)
  return orders.to_raster(z, order)


@jax.jit
def _plain_sample(cond, uncond, noise, scale):
  tables = diffusion_tables(STEPS)
  predict_fn = ddpm.guided(FNS.predictor(_params(), jnp.concatenate([cond, uncond]), tables.timesteps), scale)
  return ddpm.sample(predict_fn, tables, noise, jnp.float32(0.9)).token


def _reference(order, noise):
  """The plain scheme in raster order with masks. Every iteration samples all positions and uses those it predicts."""
  rows, length = order.shape
  null = FNS.null_condition(_params(), CONDITION)
  tokens, mask, left = np.zeros((rows, length, CONFIG.token_dim), np.float32), np.ones((rows, length), bool), length
  for k in range(KWARGS["num_iter"]):
    left = max(1, min(left - 1, int(np.floor(length * np.cos(np.pi / 2 * (k + 1) / KWARGS["num_iter"])))))
    after = np.zeros_like(mask)
    for row in range(rows):  # the official order starts at the other end
      after[row, order[row][::-1][:left]] = True
    predicted = mask if k == KWARGS["num_iter"] - 1 else mask ^ after
    scale = 1 + (KWARGS["scale"] - 1) * (length - left) / length
    given = jnp.asarray(tokens), jnp.asarray(mask)
    drawn = _plain_sample(_plain_conditions(*given, CONDITION), _plain_conditions(*given, null), noise, jnp.float32(scale))
    tokens, mask = np.where(predicted[..., None], drawn, tokens), after
  return tokens


@pytest.mark.slow
def test_equal_to_the_plain_scheme(program):
  positions = jnp.broadcast_to(jnp.arange(9)[None], (3, 9))
  noise = masked_decode.token_noise(rng.row_keys(KEY, 3), positions, 6, CONFIG.token_dim)
  expected = _reference(np.asarray(program.report.order), noise)
  np.testing.assert_allclose(orders.to_raster(program.tokens, program.report.order), expected, rtol=2e-4, atol=2e-4)
  # With noise and orders as arguments instead of drawn ones, the tokens are the same bit for bit.
  given = masked_decode.generate_masked(
    FNS, _params(), jax.random.key(0), CONDITION, order=program.report.order, noise=noise, **KWARGS
  )
  np.testing.assert_array_equal(given.tokens, program.tokens)


@pytest.mark.slow
def test_rows_are_independent(program):
  keys = rng.row_keys(KEY, 3)
  one = masked_decode.generate_masked(FNS, _params(), keys[1:2], ClassLabels(jnp.asarray([2])), **KWARGS)
  np.testing.assert_array_equal(one.report.order[0], program.report.order[1])
  np.testing.assert_allclose(one.tokens[0], program.tokens[1], rtol=2e-4, atol=2e-4)
  assert np.unique(np.asarray(program.tokens)).size == program.tokens.size


@pytest.mark.slow
def test_settings_do_not_compile_again(program):
  programs = masked_decode._generate._cache_size()  # that of the fixture among them
  for scale, temperature, seed in ((1.7, 0.9, 0), (3.0, 1.0, 1)):
    settings = KWARGS | dict(scale=scale, temperature=temperature)
    out = masked_decode.generate_masked(FNS, _params(), jax.random.key(seed), CONDITION, **settings)
    assert np.any(np.asarray(out.tokens) != np.asarray(program.tokens))
  assert masked_decode._generate._cache_size() == programs


@pytest.mark.slow
@pytest.mark.parametrize("num_iter, buckets", [(4, (1, 4)), (14, (1, 3)), (1, (1, 2))])
def test_buckets_do_not_change_tokens(program, num_iter, buckets):
  """Any number of buckets, also with more iterations than tokens."""
  kwargs = KWARGS | dict(num_iter=num_iter)
  decode = lambda number: masked_decode.generate_masked(FNS, _params(), KEY, CONDITION, **kwargs | dict(num_buckets=number))
  first, *others = map(decode, buckets)
  for other in (*others, *([program] if num_iter == KWARGS["num_iter"] else [])):
    np.testing.assert_allclose(first.tokens, other.tokens, rtol=2e-4, atol=2e-4)


@pytest.mark.slow
def test_a_scale_of_one_equals_no_guidance():
  plain, guided = (
    masked_decode.generate_masked(FNS, _params(), KEY, CONDITION, **KWARGS | dict(scale=s)) for s in (None, 1.0)
  )
  np.testing.assert_allclose(plain.tokens, guided.tokens, rtol=2e-4, atol=2e-4)


@pytest.mark.slow
def test_rows_may_stand_at_different_positions():
  """Each row has its own number of known tokens and its own window, as with ragged acceptance."""
  tables, order = diffusion_tables(STEPS), orders.random_order(rng.row_keys(KEY, 3), 9)
  tokens = jax.random.normal(jax.random.key(1), (3, 9, 3))
  keys = rng.row_keys(KEY, 3)
  known, count = jnp.asarray([0, 5, 8]), jnp.asarray([2, 1, 1])
  run = jax.jit(
    lambda tokens, order, known, count, labels, keys: masked_decode.generation_step(
      FNS, _params(), tables, tokens, order, known, count, ClassLabels(labels), keys, slots=8, width=2, record=True
    )
  )
  out, chain = run(tokens, order, known, count, CONDITION.labels, keys)
  out, tokens = np.asarray(out), np.asarray(tokens)
  chex.assert_shape(chain.states, (6, 3, 2, 3))
  for row in range(3):
    part = slice(row, row + 1)
    alone, _ = run(tokens[part], order[part], known[part], count[part], CONDITION.labels[part], keys[part])
    np.testing.assert_allclose(alone[0], out[row], rtol=1e-4, atol=1e-5)
    slot = np.arange(9)
    kept = (slot < known[row]) | (slot >= known[row] + count[row])
    np.testing.assert_array_equal(out[row][kept], tokens[row][kept])
    assert np.all(np.any((out[row] != tokens[row])[~kept], axis=-1))


def test_noise_depends_on_key_round_and_position():
  """Equal keys, rounds and positions have equal noise; other rounds have fresh noise."""
  draw = jax.jit(masked_decode.token_noise, static_argnums=(2, 3))
  keys = rng.row_keys(KEY, 2)
  a = draw(keys, jnp.asarray([[4, 1, 7], [0, 1, 2]]), 5, 2, 0)
  b = draw(keys, jnp.asarray([[7, 4, 3], [5, 6, 1]]), 5, 2, 0)
  np.testing.assert_array_equal(a.steps[0, 0], b.steps[0, 1])
  np.testing.assert_array_equal(a.initial[0, 2], b.initial[0, 0])
  np.testing.assert_array_equal(a.steps[1, 1], b.steps[1, 2])
  fresh = draw(keys, jnp.asarray([[4, 1, 7], [0, 1, 2]]), 5, 2, 1)
  assert not np.any(np.isclose(a.steps, fresh.steps)) and not np.any(np.isclose(a.initial, fresh.initial))
  assert np.unique(np.concatenate([np.ravel(a.initial), np.ravel(a.steps)])).size == 2 * 3 * 2 * 6


@pytest.mark.parametrize(
  "kwargs, message",
  [
    (dict(order=jnp.zeros((3, 4), jnp.int32)), "order of shape"),
    (dict(noise=TokenNoise(jnp.zeros((3, 9, 3)), jnp.zeros((3, 9, 5, 3)))), "noise of shapes"),
    (dict(num_iter=0), "at least one iteration"),
    (dict(num_steps="many"), "step counts"),
    (dict(num_buckets=0), "at least one bucket"),
  ],
)
def test_bad_arguments_are_errors(kwargs, message):
  with pytest.raises(ValueError, match=message):
    masked_decode.generate_masked(FNS, _params(), KEY, CONDITION, **KWARGS | kwargs)


def test_schedule_is_shared_by_equal_calls():
  schedule = unmasking.iterations(9, 4)
  first, second = (unmasking.buckets(schedule, 2, masked_decode._cost_fn(FNS, 6)) for _ in range(2))
  assert first is second
