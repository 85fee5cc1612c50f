"""The platform of a traced program: that of this process, or another one for lowering and plans; settings of JAX.

A few functions select their formulation by it (`linear`, the types of a cache, the rounding of products). All other code is
the same on every platform.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from typing import Any

import jax

_FRAMES = "jax_traceback_in_locations_limit"
_OTHER = jax.make_user_context(default_value=None)  # jax caches traces separately for each value


def platform() -> str:
  """``cpu``, ``gpu`` or ``tpu``.

  Raises:
    ValueError: if JAX cannot start the selected backend.
  """
  try:
    return _OTHER.value or jax.default_backend()
  except Exception as error:  # a RuntimeError, or an AssertionError without a message
    wanted, reason = jax_setting("jax_platforms"), " ".join(str(error).split()).partition(" (set JAX_PLATFORMS")[0]
    said = f"JAX cannot start the backend {wanted!r} here" if wanted else "JAX cannot start a backend here"
    raise ValueError(f"{said} (JAX_PLATFORMS): {reason or 'no device or no plugin of it is there'}") from error


def jax_setting(name: str) -> Any:
  """The value of ``jax.config.name``. JAX adds these attributes at run time, so type checkers do not know them."""
  return getattr(jax.config, name)


def without_stack_frames() -> None:
  """Compiles programs of this process without stack frames of Python, unless the user's environment sets their number.

  XLA of jax 0.10 can follow the frames of nested calls in a circle (``StackFrames::IsPrefix``), so that a compilation never
  ends. The setting of JAX is one of the process: it has no public context.
  """
  if _FRAMES.upper() not in os.environ and getattr(jax.config, _FRAMES, 0):
    jax.config.update(_FRAMES, 0)


@contextlib.contextmanager
def tracing_for(name: str) -> Generator[None, None, None]:
  """Functions traced inside of the block are for another platform."""
  with _OTHER(name):
    yield
