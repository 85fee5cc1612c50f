"""The update: running mean, hooks, precision, data parallelism."""

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxspec.models.nn.linear import linear
from jaxspec.training import train_state
from jaxspec.training.train_step import ema_update, make_train_step


def _loss(params, extra, batch, key):
  noise = 0.1 * jax.random.normal(key, batch["x"].shape, batch["x"].dtype)
  error = (batch["x"] + noise) @ params["w"] - batch["y"]
  return jnp.mean(jnp.square(error)), ({"size": jnp.mean(jnp.abs(error))}, extra + 1)


def _batch(step, rows=8):
  generator = np.random.default_rng(step)
  return {"x": generator.normal(size=(rows, 3)).astype("f"), "y": generator.normal(size=(rows, 2)).astype("f")}


def _state(optimizer):
  return train_state.create({"w": jnp.ones((3, 2))}, optimizer, jnp.zeros((), jnp.int32))


def test_update_equals_the_formula():
  optimizer = optax.sgd(0.1)
  step = make_train_step(_loss, optimizer, ema_decay=0.9, ema_start=1, seed=7)
  state = step.place_state(_state(optimizer))
  w = ema = jnp.ones((3, 2))
  loss_and_grad = jax.jit(jax.value_and_grad(_loss, has_aux=True))
  for i in range(3):
    key, _ = jax.random.split(train_state.step_key(7, i))
    (loss, (metrics, _)), grad = loss_and_grad({"w": w}, 0, _batch(i), key)
    w = w - 0.1 * grad["w"]
    ema = w if i < 1 else 0.9 * ema + 0.1 * w
    state, measured = step.update(state, step.place_batch(_batch(i)))
    np.testing.assert_allclose(measured["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(measured["size"], metrics["size"], rtol=1e-5)
    np.testing.assert_allclose(measured["grad_norm"], jnp.linalg.norm(grad["w"]), rtol=1e-5)
  np.testing.assert_allclose(state.params["w"], w, rtol=1e-5)
  np.testing.assert_allclose(state.ema["w"], ema, rtol=1e-5)
  assert int(state.step) == 3
  assert int(state.extra) == 3


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="accelerators round by themselves")
@pytest.mark.parametrize("precision", [None, "bfloat16"])
def test_an_update_that_rounds_keeps_float32(precision):
  x, true = (np.random.default_rng(rows).normal(size=(rows, 40)).astype(np.float32) for rows in (5, 7))

  def loss_fn(params, extra, batch, key):
    return jnp.mean(jnp.square(linear(batch["x"], params["w"]) - batch["y"])), ({}, extra)

  optimizer = optax.adam(0.1)
  step = make_train_step(loss_fn, optimizer, matmul_precision=precision)
  state = step.place_state(train_state.create({"w": jnp.ones((7, 40))}, optimizer))
  batch = {"x": x, "y": x @ true.T}
  exact, grad = jax.jit(jax.value_and_grad(lambda w: loss_fn({"w": w}, (), batch, None)[0]))(jnp.ones((7, 40)))
  state, first = step.update(state, step.place_batch(batch))
  assert (abs(first["loss"] / exact - 1) > 1e-5) == (precision is not None)
  assert (abs(first["grad_norm"] / jnp.linalg.norm(grad) - 1) > 1e-5) == (precision is not None)
  for _ in range(200):
    state, last = step.update(state, step.place_batch(batch))
  assert last["loss"] < 0.1 * first["loss"]
  assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {jnp.dtype("float32")}


def test_ema_of_a_constant_and_of_a_ramp():
  constant = {"a": jnp.full((2,), 3.0)}
  assert jnp.all(ema_update(constant, constant, jnp.float32(0.9))["a"] == 3)
  ema = jnp.zeros(())
  for i in range(200):
    ema = ema_update(ema, jnp.float32(i), jnp.float32(0.9))
  np.testing.assert_allclose(ema, 199 - 0.9 / 0.1, rtol=1e-4)  # lags by d / (1 - d)


def test_after_update_changes_parameters():
  optimizer = optax.sgd(0.0)
  hook = lambda params, extra, step, key: ({"w": params["w"] + step.astype(jnp.float32)}, -extra)
  step = make_train_step(_loss, optimizer, after_update_fn=hook)
  state = step.place_state(_state(optimizer))
  for i in range(3):
    state, _ = step.update(state, step.place_batch(_batch(i)))
  np.testing.assert_array_equal(state.params["w"], 1 + 0 + 1 + 2)
  np.testing.assert_array_equal(state.ema["w"], state.params["w"])  # the mean is a copy when it is off
  assert int(state.extra) == -1


def test_bfloat16_compute_keeps_float32_state():
  seen = []

  def loss_fn(params, extra, batch, key):
    seen.append((params["w"].dtype, batch["x"].dtype))
    return _loss(params, extra, batch, key)

  optimizer = optax.adam(1e-2)
  step = make_train_step(loss_fn, optimizer, compute_dtype="bfloat16")
  state, metrics = step.update(step.place_state(_state(optimizer)), step.place_batch(_batch(0)))
  assert seen[0] == (jnp.bfloat16, jnp.bfloat16)
  assert {leaf.dtype for leaf in jax.tree.leaves((state.params, state.ema))} == {jnp.dtype("float32")}
  assert np.isfinite(metrics["loss"])


def test_a_bad_ema_decay_is_an_error():
  with pytest.raises(ValueError, match="EMA decay"):
    make_train_step(_loss, optax.sgd(0.1), ema_decay=1.0)


_TWO_DEVICES = """
  import jax, numpy as np, optax
  jax.config.update("jax_default_matmul_precision", "highest")
  from tests.training.test_step import _batch, _loss, _state
  from jaxspec.training.train_step import make_train_step
  optimizer = optax.adam(1e-2)
  assert jax.local_device_count() == 2
  results = []
  for devices in (None, jax.local_devices()[:1]):
    step = make_train_step(_loss, optimizer, ema_decay=0.5, devices=devices)
    state, losses = step.place_state(_state(optimizer)), []
    for i in range(4):
      batch = step.place_batch(_batch(i))
      state, metrics = step.update(state, batch)
      losses.append(float(metrics["loss"]))
    assert len(batch["x"].sharding.device_set) == (2 if devices is None else 1)
    results.append((losses, np.asarray(state.params["w"]), np.asarray(state.ema["w"])))
  for a, b in zip(*results):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
"""


@pytest.mark.slow
def test_two_devices_equal_one():
  root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
  env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
  env["PYTHONPATH"] = os.pathsep.join([root, env.get("PYTHONPATH", "")])
  result = subprocess.run(
    [sys.executable, "-c", textwrap.dedent(_TWO_DEVICES)], env=env, capture_output=True, text=True, timeout=300
  )
  assert result.returncode == 0, result.stderr
