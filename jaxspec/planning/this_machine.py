"""The device of this process for a plan, with measured bandwidth and arithmetic."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

from jaxspec.planning.devices import Device, Slice
from jaxspec.run import measure

NAME = "this machine"
_MEMORY = 1e15  # arrays that do not fit fail when they are made
_READ_MB = {"cpu": 512}  # other platforms: 4096
_SIDE = {"cpu": 1536}  # side of the multiplied matrices; other platforms: 8192


@functools.cache
def this_machine(dtype: str) -> Slice:
  """The first device of this process, measured now; its memory counts as a petabyte, its links as infinite.

  Args:
    dtype: dtype of the measured products.
  """
  platform = jax.default_backend()
  read = bandwidth(_READ_MB.get(platform, 4096))
  peak = arithmetic(dtype, _SIDE.get(platform, 8192))
  device = Device(_MEMORY, read, peak, peak, math.inf, platform, 0, 0, "measured")
  return Slice(NAME, platform, device, 1, (1,))


def bandwidth(megabytes: int) -> float:
  """Bytes per second of reading memory: the sum of a large array, fastest of five."""
  data = jnp.ones((megabytes * 2**18,), jnp.float32)
  add = jax.jit(lambda x: jnp.sum(x.reshape(64, -1), axis=1))
  return data.nbytes / min(measure.alternate({"read": lambda: add(data)}, 5)["read"])


def arithmetic(dtype: str, side: int) -> float:
  """Operations per second of a product of two square matrices, fastest of five."""
  one, other = (jnp.full((side, side), value, dtype) for value in (0.5, 0.25))
  multiply = jax.jit(lambda a, b: a @ b)
  return 2.0 * side**3 / min(measure.alternate({"product": lambda: multiply(one, other)}, 5)["product"])
