"""One update, compiled and data-parallel over all local devices.

The state is replicated and the batch is sharded along its first axis on a mesh with the single axis ``data``; the
compiler inserts the reductions. Since the loss is written for the whole batch, the result does not depend on the number
of devices (up to the order of summation).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxspec.core.types import Array, Key, Params, PyTree
from jaxspec.training.train_state import TrainState, step_key

Metrics = dict[str, Array]


class LossFn(Protocol):
  """Objective of a run.

  Args:
    params: parameters.
    extra: mutable state of the run.
    batch: pytree of arrays with the batch axis first.
    key: random key of this step; consumed.
  Returns:
    ``(loss [], (metrics, new extra))``; metrics are scalars by name.
  """

  def __call__(self, params: Params, extra: PyTree, batch: PyTree, key: Key, /) -> tuple[Array, tuple[Metrics, PyTree]]: ...


class AfterUpdateFn(Protocol):
  """Function that changes parameters besides the gradient, for example to restart dead codes.

  Returns the new ``(params, extra)``; ``step [] int32`` is the number of the update just done, counted from 0. The key
  is consumed and is independent of the key of the loss.
  """

  def __call__(self, params: Params, extra: PyTree, step: Array, key: Key, /) -> tuple[Params, PyTree]: ...


class TrainStep(NamedTuple):
  """A compiled update and the sharding of its inputs."""

  update: Callable[[TrainState, PyTree], tuple[TrainState, Metrics]]  # the state is donated
  place_state: Callable[[TrainState], TrainState]
  place_batch: Callable[[PyTree], PyTree]


def ema_update(ema: Params, params: Params, decay: Array) -> Params:
  """``decay ema + (1 - decay) params`` on every leaf."""
  return jax.tree.map(lambda old, new: old + (1 - decay).astype(old.dtype) * (new - old), ema, params)


def make_train_step(
  loss_fn: LossFn,
  optimizer: optax.GradientTransformation,
  *,
  ema_decay: float = 0.0,
  ema_start: int = 0,
  seed: int = 0,
  compute_dtype: str | None = None,
  matmul_precision: str | None = None,
  after_update_fn: AfterUpdateFn | None = None,
  devices: Sequence[jax.Device] | None = None,  # pyright: ignore[reportInvalidTypeForm]  # jax types it as a variable
  frozen: PyTree = None,
) -> TrainStep:
  """Builds the update of a run.

  Args:
    loss_fn: the objective.
    optimizer: an optax transformation.
    ema_decay: decay of the running mean of the parameters; 0 keeps a plain copy.
    ema_start: first step of the mean; before it, the mean is a copy of the parameters.
    seed: the key of every step derives from it.
    compute_dtype: e.g. ``"bfloat16"``: floating parameters and batch leaves are cast before the loss. Parameters,
      gradients, optimiser and running mean stay in float32.
    matmul_precision: e.g. ``"bfloat16"``: products round their inputs, everything else stays in float32. None keeps the
      surrounding ``jax.default_matmul_precision``. On a CPU, XLA ignores it; linear layers and attention of the
      library round by themselves, in both passes (`jaxspec.core.precision`).
    after_update_fn: optional change of the parameters after each update.
    devices: all local devices by default; the batch size must be divisible by their number.
    frozen: arrays that the loss reads as ``extra`` and no update changes, such as the parameters of a target. They are not
      part of the state, so that checkpoints do not hold them.
  """
  if not 0 <= ema_decay < 1:
    raise ValueError(f"Must have an EMA decay in [0, 1), we instead got {ema_decay}")
  mesh = Mesh(np.array(jax.local_devices() if devices is None else devices), ("data",))
  replicated, sharded = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))

  def cast(tree):
    if compute_dtype is None:
      return tree
    return jax.tree.map(lambda x: x.astype(compute_dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)

  def update(state: TrainState, batch: PyTree, frozen: PyTree) -> tuple[TrainState, Metrics]:
    loss_key, update_key = jax.random.split(step_key(seed, state.step))

    def objective(params):
      loss, (metrics, extra) = loss_fn(cast(params), state.extra if frozen is None else frozen, cast(batch), loss_key)
      return loss, (metrics, extra if frozen is None else state.extra)

    with jax.default_matmul_precision(matmul_precision) if matmul_precision else contextlib.nullcontext():
      (loss, (metrics, extra)), grads = jax.value_and_grad(objective, has_aux=True)(state.params)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    if after_update_fn is not None:
      params, extra = after_update_fn(params, extra, state.step, update_key)
    decay = jnp.where(state.step < ema_start, 0.0, ema_decay)
    state = TrainState(state.step + 1, params, opt_state, ema_update(state.ema, params, decay), extra)
    return state, {"loss": loss, "grad_norm": _norm(grads)} | metrics

  shardings = (replicated, sharded, replicated)
  jitted = jax.jit(update, in_shardings=shardings, out_shardings=(replicated, replicated), donate_argnums=0)
  placed = None if frozen is None else jax.device_put(frozen, replicated)
  return TrainStep(
    lambda state, batch: jitted(state, batch, placed),
    lambda state: jax.device_put(state, replicated),
    lambda batch: jax.device_put(batch, sharded),
  )


def _norm(tree: PyTree) -> Array:
  return jnp.sqrt(sum(jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(tree)))
