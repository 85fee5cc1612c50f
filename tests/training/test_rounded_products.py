"""Products of an update that read bfloat16 and add in float32: which are rounded, and that nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxspec.training import train_state
from jaxspec.training.rounded_products import with_rounded_products
from jaxspec.training.step import make_train_step

LEFT, RIGHT = jax.random.normal(jax.random.key(0), (5, 40)), jax.random.normal(jax.random.key(1), (40, 7))


def _rounded(x):
  return x.astype(jnp.bfloat16).astype(jnp.float32)


def _exact(left, right):
  return np.asarray(left, np.float64) @ np.asarray(right, np.float64)


def test_a_product_reads_bfloat16_and_adds_in_float32():
  product = jax.jit(with_rounded_products(jnp.matmul))(LEFT, RIGHT)
  assert product.dtype == jnp.float32
  np.testing.assert_allclose(product, _exact(_rounded(LEFT), _rounded(RIGHT)), rtol=1e-5, atol=1e-5)
  assert np.max(np.abs(product - _exact(LEFT, RIGHT))) > 1e-3  # the operands were rounded


@jax.custom_jvp
def _twice(x):
  return 2 * x


_twice.defjvp(lambda primals, tangents: (_twice(*primals), 2 * tangents[0]))


def _chain(matrix, rows):
  def step(carry, row):
    carry = jnp.tanh(carry @ matrix) + row
    return carry, carry.sum()

  carry, sums = jax.lax.scan(step, jnp.zeros_like(rows[0]), rows)
  return jax.nn.relu(_twice(jax.checkpoint(jax.jit(jnp.matmul))(carry, matrix))).sum() + sums.sum()


def _chain_by_hand(matrix, rows):
  carry, total = jnp.zeros_like(rows[0]), 0.0
  for row in rows:
    carry = jnp.tanh(_rounded(carry) @ _rounded(matrix)) + row
    total += carry.sum()
  return jax.nn.relu(2 * (_rounded(carry) @ _rounded(matrix))).sum() + total


def test_products_inside_scans_and_calls_are_rounded():
  matrix, rows = jax.random.normal(jax.random.key(2), (6, 6)), jax.random.normal(jax.random.key(3), (4, 6))
  found = jax.jit(with_rounded_products(_chain))(matrix, rows)
  np.testing.assert_allclose(found, _chain_by_hand(matrix, rows), rtol=1e-5)
  assert abs(found - _chain(matrix, rows)) > 1e-4


def test_gradients_are_those_of_float32_within_the_rounding():
  matrix, rows = jax.random.normal(jax.random.key(2), (6, 6)) / 3, jax.random.normal(jax.random.key(3), (4, 6))
  exact, found = jax.grad(_chain)(matrix, rows), jax.jit(with_rounded_products(jax.grad(_chain)))(matrix, rows)
  error = jnp.linalg.norm(found - exact) / jnp.linalg.norm(exact)
  assert 0 < error < 0.02


def test_what_has_no_product_is_unchanged():
  def fn(tree):
    state = jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, tree["x"]))
    return {"loop": state[1], "branch": jax.lax.cond(tree["n"] > 1, jnp.cos, jnp.exp, tree["x"]), "one": 1.0}

  tree = {"x": LEFT, "n": jnp.int32(2)}
  found, expected = jax.jit(with_rounded_products(fn))(tree), jax.jit(fn)(tree)
  jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_products_of_other_dtypes_are_unchanged():
  left, right = jnp.arange(6).reshape(2, 3), jnp.arange(12).reshape(3, 4)
  np.testing.assert_array_equal(with_rounded_products(jnp.matmul)(left, right), left @ right)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="accelerators round by themselves")
@pytest.mark.parametrize("precision", [None, "bfloat16"])
def test_an_update_that_rounds_keeps_float32(precision):
  def loss_fn(params, extra, batch, key):
    return jnp.mean(jnp.square(batch["x"] @ params["w"] - batch["y"])), ({}, extra)

  optimizer = optax.adam(0.1)
  step = make_train_step(loss_fn, optimizer, matmul_precision=precision)
  state = step.place_state(train_state.create({"w": jnp.ones((40, 7))}, optimizer))
  batch = {"x": LEFT, "y": LEFT @ RIGHT}
  state, first = step.update(state, step.place_batch(batch))
  exact = jnp.mean(jnp.square(LEFT @ jnp.ones((40, 7)) - batch["y"]))
  assert (abs(first["loss"] - exact) > 1e-6) == (precision is not None)
  for _ in range(200):
    state, last = step.update(state, step.place_batch(batch))
  assert last["loss"] < 0.1 * first["loss"]
  assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {jnp.dtype("float32")}
