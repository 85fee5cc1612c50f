"""Precision of a decode: 32 bits, and optional matrix products of bfloat16 inputs with float32 sums.

``jax.default_matmul_precision("bfloat16")`` gives such products on a TPU. XLA ignores it on a CPU, so they are implemented
here; other operations stay in float32. On a CPU with bfloat16 instructions they nearly double the speed of training, and a
pass of a decode reads half of the bytes of weights.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp

from jaxspec.core.platform import jax_setting, platform, without_stack_frames
from jaxspec.core.types import Array

PRECISIONS = ("float32", "bfloat16")
_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")
_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


@contextlib.contextmanager
def precision_context(matmul_precision: str | None = None) -> Generator[None, None, None]:
  """The context to compile and run decodes: 32 bits, and a precision of products (None: JAX's setting).

  With ``jax_enable_x64``, index arithmetic would be 64 bits wide, and random numbers, and with them tokens, would differ.
  With this context, tokens do not depend on it. Programs get no stack frames (`without_stack_frames`).
  """
  without_stack_frames()
  with contextlib.ExitStack() as stack:
    if jax_setting("jax_enable_x64"):
      stack.enter_context(jax.enable_x64(False))
    if matmul_precision is not None:
      stack.enter_context(jax.default_matmul_precision(matmul_precision))
    yield


def in_32_bits(fn: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
  """The function traced in `precision_context`; 64-bit arguments are cast to 32 bits."""

  @functools.wraps(fn)
  def narrowed(*args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
    if not jax_setting("jax_enable_x64"):
      return fn(*args, **kwargs)
    args, kwargs = narrow((args, kwargs))
    with precision_context():
      return fn(*args, **kwargs)

  return narrowed


def narrow(tree: Any) -> Any:
  """Casts 64-bit arrays of a pytree to 32 bits; call it outside of `precision_context`, or JAX warns."""

  def cast(leaf: Any) -> Any:
    dtype = _NARROW.get(leaf.dtype.name) if isinstance(leaf, jax.Array) else None
    return leaf if dtype is None else leaf.astype(dtype)

  return jax.tree.map(cast, tree)


def halves_products(dtype: Any) -> bool:
  """Whether float32 products use bfloat16 inputs here."""
  halving = ("bfloat16", "BF16_BF16_F32", jax.lax.DotAlgorithmPreset.BF16_BF16_F32)
  return platform() == "cpu" and dtype == jnp.float32 and jax_setting("jax_default_matmul_precision") in halving


@functools.partial(jax.custom_vjp[Array], nondiff_argnums=(2, 3))
def dot_bf16(x: Array, y: Array, contract: tuple[int, int], num_batch: int = 0) -> Array:
  """Product of bfloat16 roundings with float32 sums; contracts axis ``contract[0]`` of x with ``contract[1]`` of y.

  Its gradient consists of products of the same kind. JAX's own rule would multiply the float32 gradient with a bfloat16
  matrix, which XLA computes in float32 on a CPU.

  Args:
    x: ``[*batch, ...]``; besides the ``num_batch`` leading axes, one free axis and the contracted one.
    y: likewise.
  Returns:
    ``[*batch, free axis of x, free axis of y]`` float32.
  """
  batch = tuple(range(num_batch))
  dims = (((contract[0],), (contract[1],)), (batch, batch))
  return jax.lax.dot_general(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), dims, preferred_element_type=jnp.float32)


def _dot_fwd(x: Array, y: Array, contract: tuple[int, int], num_batch: int) -> tuple[Array, tuple[Array, Array]]:
  return dot_bf16(x, y, contract, num_batch), (x, y)


def _dot_bwd(contract: tuple[int, int], num_batch: int, residuals: tuple[Array, Array], grad: Array) -> tuple[Array, Array]:
  def of(axis: int, other: Array, other_contract: int, grad_contract: int, like: Array) -> Array:
    free = 2 * num_batch + 1 - other_contract  # the other of the two axes that follow the batch
    product: Array = dot_bf16(grad, other, (grad_contract, free), num_batch)  # [*batch, free, contracted]
    return (product if axis == num_batch + 1 else product.swapaxes(-1, -2)).astype(like.dtype)

  x, y = residuals
  return of(contract[0], y, contract[1], num_batch + 1, x), of(contract[1], x, contract[0], num_batch, y)


dot_bf16.defvjp(_dot_fwd, _dot_bwd)


def of_user() -> str | None:
  """JAX's setting (``JAX_DEFAULT_MATMUL_PRECISION``, `jax.config`), by its name in `PRECISIONS` if it has one; else None."""
  said = jax_setting("jax_default_matmul_precision")
  return "float32" if said == "highest" else said  # JAX knows both names for one precision


def preferred(dtype: str) -> str:
  """The best precision of products, one of `PRECISIONS`, on this machine for networks of a dtype."""
  return "bfloat16" if dtype == "bfloat16" or _has_bfloat16_instructions() else "float32"


@functools.cache
def _has_bfloat16_instructions() -> bool:
  """Whether the CPU has AVX512-BF16 or AMX, according to Linux."""
  if jax.default_backend() != "cpu":
    return False
  try:
    flags = set(Path("/proc/cpuinfo").read_text().split())
  except OSError:
    return False
  return bool({"avx512_bf16", "amx_bf16"} & flags)
