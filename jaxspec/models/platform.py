"""The platform that a program is traced for: that of this process, or another one that it is lowered or planned for.

A few functions choose their formulation by it (`linear`, the types of a cache, the rounding of products). Everything else is
the same program on every platform.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import jax

_OTHER: contextvars.ContextVar[str | None] = contextvars.ContextVar("platform", default=None)


def platform() -> str:
  """``cpu``, ``gpu`` or ``tpu``."""
  return _OTHER.get() or jax.default_backend()


@contextlib.contextmanager
def tracing_for(name: str) -> Iterator[None]:
  """Functions that are traced inside of the block are those of another platform.

  A jitted function keeps what it traced before, whatever it was traced for: call `jax.clear_caches` where the same one was
  traced for two platforms.
  """
  token = _OTHER.set(name)
  try:
    yield
  finally:
    _OTHER.reset(token)
