"""Calls a method of a Flax module on parameters."""

from __future__ import annotations

from typing import Any

import flax.linen as nn

from jaxspec.core.types import Params


def call(module: nn.Module, params: Params, *args: Any, method: str | None = None, rngs: Any = None) -> Any:
  """What a method of a module returns, ``__call__`` by default.

  The type of ``nn.Module.apply`` is a union, for calls that return changed collections too. No network here changes any.

  Args:
    rngs: random keys by stream, for methods that consume some (dropout).
  """
  return module.apply({"params": params}, *args, method=method, rngs=rngs)
