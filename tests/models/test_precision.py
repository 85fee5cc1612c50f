"""Matrix products of bfloat16 roundings: their value, where they apply, and their gradient."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.core import precision
from jaxspec.models.nn.attention import attend
from jaxspec.models.nn.linear import linear

on_cpu = pytest.mark.skipif(jax.default_backend() != "cpu", reason="other devices round by themselves")


def normal(seed, *shape):
  """Standard normal numbers in float32."""
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def rounded(x):
  return np.asarray(x).astype(jnp.bfloat16).astype(np.float32)


def gradients(function, x, y, grad):
  """Gradients of both inputs, in one program."""
  return jax.jit(lambda x, y, grad: jax.vjp(function, x, y)[1](grad))(x, y, grad)


@on_cpu
@pytest.mark.parametrize("rows", [1, 2, 8, 65])
def test_linear_rounds_its_inputs_and_sums_in_float32(rows):
  x = normal(0, rows, 48)
  weight = normal(1, 32, 48)
  with jax.default_matmul_precision("bfloat16"):
    out = jax.jit(linear)(x, weight)
  assert out.dtype == jnp.float32
  np.testing.assert_allclose(out, rounded(x) @ rounded(weight).T, atol=1e-4)
  # The rounding must change the result for the test to be meaningful.
  assert np.abs(np.asarray(out) - np.asarray(x) @ np.asarray(weight).T).max() > 1e-3


@on_cpu
def test_other_precisions_do_not_round():
  x, weight = normal(0, 4, 48), normal(1, 32, 48)
  for name in ("float32", "highest"):
    with jax.default_matmul_precision(name):
      np.testing.assert_allclose(jax.jit(linear)(x, weight), np.asarray(x) @ np.asarray(weight).T, atol=1e-4)
      assert not precision.halves_products(jnp.float32)
  with jax.default_matmul_precision("bfloat16"):
    assert precision.halves_products(jnp.float32) and not precision.halves_products(jnp.bfloat16)


@on_cpu
def test_gradient_is_that_of_the_rounded_product():
  x, weight = normal(0, 3, 5, 16), normal(1, 8, 16)
  grad = normal(2, 3, 5, 8)
  with jax.default_matmul_precision("bfloat16"):
    dx, dw = gradients(linear, x, weight, grad)
  chex.assert_shape([dx, dw], [x.shape, weight.shape])
  np.testing.assert_allclose(dx, rounded(grad) @ rounded(weight), atol=1e-4)
  np.testing.assert_allclose(dw, rounded(grad).reshape(-1, 8).T @ rounded(x).reshape(-1, 16), atol=1e-4)


@pytest.mark.parametrize("contract", [(2, 2), (2, 1), (1, 2), (1, 1)])
def test_gradients_of_batched_products_are_products_of_roundings(contract):
  shapes = [(2, free, 7) if axis == 2 else (2, 7, free) for axis, free in zip(contract, (5, 3))]
  x, y, grad = (normal(i, *shape) for i, shape in enumerate([*shapes, (2, 5, 3)]))
  found = gradients(lambda x, y: precision.dot_bf16(x, y, contract, 1), x, y, grad)
  names = "b" + ("xk" if contract[0] == 2 else "kx"), "b" + ("yk" if contract[1] == 2 else "ky")
  expected = [
    np.einsum(f"bxy,{names[1]}->{names[0]}", rounded(grad), rounded(y)),
    np.einsum(f"bxy,{names[0]}->{names[1]}", rounded(grad), rounded(x)),
  ]
  unrounded = gradients(lambda x, y: jnp.einsum(f"{names[0]},{names[1]}->bxy", x, y), x, y, grad)
  for one, want, exact in zip(found, expected, unrounded):
    np.testing.assert_allclose(one, want, atol=1e-5)
    assert np.abs(want - exact).max() > 1e-3  # the operands were rounded


@on_cpu
def test_attention_stays_close_to_float32():
  q, k, v = normal(0, 2, 4, 8, 16), normal(1, 8, 8, 16), normal(2, 8, 8, 16)
  mask = np.tril(np.ones((1, 8, 8), bool))
  exact = jax.jit(attend)(q, k, v, mask)
  with jax.default_matmul_precision("bfloat16"):
    halved = jax.jit(attend)(q, k, v, mask)
  np.testing.assert_allclose(halved, exact, atol=0.03)
  assert np.abs(np.asarray(halved) - np.asarray(exact)).max() > 0


def test_preferred_precision_is_one_of_the_choices():
  assert precision.preferred("bfloat16") == "bfloat16"
  assert precision.preferred("float32") in precision.PRECISIONS
