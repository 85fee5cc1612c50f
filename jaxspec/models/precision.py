"""Matrix products of bfloat16 roundings with float32 sums: when they are used, and which processors gain by them.

``jax.default_matmul_precision("bfloat16")`` gives such products on a TPU. XLA ignores it on a CPU, so they are written
out here; everything else stays in float32. On a CPU with bfloat16 instructions they nearly double the speed of training,
and a decode reads half as many bytes of weights per pass.
"""

from __future__ import annotations

import functools
from pathlib import Path

import jax
import jax.numpy as jnp

from jaxspec.models.platform import platform
from jaxspec.types import Array

PRECISIONS = ("float32", "bfloat16")


def halves_products(dtype) -> bool:
  """Whether float32 products are to be computed from bfloat16 inputs here."""
  return (
    platform() == "cpu"
    and dtype == jnp.float32
    and jax.config.jax_default_matmul_precision in ("bfloat16", "BF16_BF16_F32", jax.lax.DotAlgorithmPreset.BF16_BF16_F32)
  )


def dot_bf16(x: Array, y: Array, contract: tuple[int, int], num_batch: int = 0) -> Array:
  """Product of bfloat16 roundings with float32 sums; contracts axis ``contract[0]`` of x with ``contract[1]`` of y."""
  batch = tuple(range(num_batch))
  dims = (((contract[0],), (contract[1],)), (batch, batch))
  return jax.lax.dot_general(x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), dims, preferred_element_type=jnp.float32)


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
