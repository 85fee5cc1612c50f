"""Attention of scales against a second implementation, and initial blocks."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.nn.causal import Positions
from jaxspec.models.var.scale_blocks import Modulation, ScaleAttention
from jaxspec.models.var.var import VARConfig

CONFIG = VARConfig(depth=1, dim=8, num_heads=2, vocab_size=5, code_dim=2, num_classes=3, sides=(1, 2))
ALL = Positions(jnp.arange(5)[None], jnp.zeros((1,), jnp.int32), jnp.ones((1, 5), bool), jnp.ones((1, 5, 5), bool), False)


@pytest.mark.parametrize("qk_norm", [True, False])
def test_attention(qk_norm):
  rng = np.random.default_rng(0)
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
  x, weight, q_bias, v_bias, proj, bias = draw(2, 5, 8), draw(24, 8), draw(8), draw(8), draw(8, 8), draw(8)
  params = {"mat_qkv": weight, "q_bias": q_bias, "v_bias": v_bias, "proj": {"weight": proj, "bias": bias}}
  factor = np.float32([1.0, 9.0])  # the second is above the limit ln 100
  if qk_norm:
    params["scale_mul_1H11"] = factor.reshape(1, 2, 1, 1)
  module = ScaleAttention(dataclasses.replace(CONFIG, qk_norm=qk_norm))
  out, cache = jax.jit(lambda params, x: module.apply({"params": params}, x, ALL, None))(params, x)
  q, k, v = (part.reshape(2, 5, 2, 4) for part in np.split(x @ weight.T, 3, axis=-1))
  q, v = q + q_bias.reshape(2, 4), v + v_bias.reshape(2, 4)
  scale = np.ones(2)
  if qk_norm:
    q, k = (y / np.linalg.norm(y, axis=-1, keepdims=True) for y in (q, k))
    scale = np.exp(np.minimum(factor, math.log(100)))
  else:
    scale = scale * 0.25 / math.sqrt(4)
  scores = np.einsum("bthd,bshd->bhts", q, k) * scale[:, None, None]
  weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
  weights /= weights.sum(axis=-1, keepdims=True)
  wanted = np.einsum("bhts,bshd->bthd", weights, v).reshape(2, 5, 8) @ proj.T + bias
  np.testing.assert_allclose(out, wanted, atol=2e-4)
  assert cache is None


def test_gains_of_initial_weights():
  """Rows of factors begin near zero, so that a fresh block is nearly the identity."""
  params = Modulation((1e-5, 0.5), 2.0).init(jax.random.key(0), jnp.ones((1, 64)))["params"]
  factors, shifts = np.split(np.asarray(params["weight"]), 2)
  assert np.std(factors) == pytest.approx(2e-5, rel=0.1) and np.std(shifts) == pytest.approx(1.0, rel=0.1)
  assert not np.any(params["bias"])
