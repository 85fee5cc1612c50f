"""Eager operations that only move, copy or convert data, computed by the host in tests.

JAX compiles a program for each of these operations, outside of programs, at every new shape: thousands of them in the suite.
The host gives the same bits. Programs under `jax.jit` do not change.
"""

import jax
import numpy as np
from jax._src.lax import lax as jax_lax
from jax.extend.core import primitives

STAGE = getattr(jax_lax, "stage_p", None)  # of jax 0.10 to 0.12: the copy that `jax.numpy.asarray` makes


def _stage(value):
  return value.copy()


def _convert(value, *, new_dtype, weak_type, sharding):
  with np.errstate(over="ignore"):  # infinity, as in JAX
    return value.astype(new_dtype)


def _broadcast(value, *, shape, broadcast_dimensions, sharding):
  sizes = [1] * len(shape)
  for axis, size in zip(broadcast_dimensions, value.shape):
    sizes[axis] = size
  return np.broadcast_to(value.reshape(sizes), shape)


def _iota(*, dtype, shape, dimension, sharding):
  sizes = [1] * len(shape)
  sizes[dimension] = shape[dimension]
  return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(sizes), shape)


def _dynamic_slice(value, *start, slice_sizes):
  first = [min(max(int(at), 0), size - part) for at, size, part in zip(start, value.shape, slice_sizes)]
  return value[tuple(slice(at, at + part) for at, part in zip(first, slice_sizes))]


def _slice(value, *, start_indices, limit_indices, strides):
  steps = strides or [1] * value.ndim
  return value[tuple(map(slice, start_indices, limit_indices, steps))]


ON_HOST = {
  primitives.broadcast_in_dim_p: _broadcast,
  primitives.convert_element_type_p: _convert,
  primitives.concatenate_p: lambda *values, dimension: np.concatenate(values, dimension),
  primitives.dynamic_slice_p: _dynamic_slice,
  primitives.iota_p: _iota,
  primitives.reshape_p: lambda value, *, new_sizes, dimensions, sharding: value.reshape(new_sizes),
  primitives.slice_p: _slice,
  primitives.squeeze_p: lambda value, *, dimensions: np.squeeze(value, dimensions),
  primitives.transpose_p: lambda value, *, permutation: np.transpose(value, permutation),
} | ({STAGE: _stage} if STAGE else {})
COMPILED = {primitive: primitive.impl for primitive in ON_HOST}


def _is_simple(value) -> bool:
  """Whether an operand is of the default device and of a dtype of NumPy, and keeps no weak type."""
  if isinstance(value, np.ndarray):
    return True
  return (
    isinstance(value, jax.Array)
    and not jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended)
    and not (value.committed or value.weak_type)
  )


def _is_special(operands, settings) -> bool:
  """Whether NumPy may give another array: one that is divided, of a weak type, or of floats rounded to integers."""
  if settings.get("sharding") is not None or settings.get("dimensions") is not None and "new_sizes" in settings:
    return True
  if "new_dtype" not in settings:
    return False
  rounds = [jax.numpy.issubdtype(dtype, jax.numpy.inexact) for dtype in (operands[0].dtype, settings["new_dtype"])]
  return settings["weak_type"] or rounds == [True, False]


def _implementation(primitive):
  def run(*operands, **settings):
    if _is_special(operands, settings) or not all(map(_is_simple, operands)):
      return COMPILED[primitive](*operands, **settings)
    moved = ON_HOST[primitive](*map(np.asarray, operands), **settings)
    return jax.device_put(np.array(moved))  # a copy: the result must not change with an operand

  return run


def install() -> None:
  """From here on the host computes these operations."""
  for primitive in ON_HOST:
    primitive.def_impl(_implementation(primitive))


def uninstall() -> None:
  """From here on JAX compiles them, as outside of tests."""
  for primitive, compiled in COMPILED.items():
    primitive.def_impl(compiled)
