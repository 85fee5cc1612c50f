"""The state of a training run: everything that a resumed run needs, and nothing else."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax

from jaxspec.core.types import Array, Key, Params, PyTree


@flax.struct.dataclass
class TrainState:
  """One point of a training run.

  Random keys are not part of it: the key of a step is a function of the run's seed and the step number (`step_key`), and
  so is the order of the data. A run restored from a checkpoint therefore goes on exactly as if it had never stopped.
  """

  step: Array  # [] int32 updates done
  params: Params
  opt_state: PyTree
  ema: Params  # running mean of params, same tree
  extra: Any  # mutable state that is no parameter, e.g. code usage


def create(params: Params, optimizer: optax.GradientTransformation, extra: PyTree = ()) -> TrainState:
  """State before the first update."""
  return TrainState(
    step=jnp.zeros((), jnp.int32),
    params=params,
    opt_state=optimizer.init(params),
    ema=jax.tree.map(jnp.copy, params),
    extra=extra,
  )


def step_key(seed: int, step: Array | int) -> Key:
  """The random key of update number ``step``: ``fold_in(key(seed), step)``."""
  return jax.random.fold_in(jax.random.key(seed), step)
