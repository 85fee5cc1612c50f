"""`repr` of values with arrays: dtypes and shapes, on one readable line."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax

_LONGEST = 60  # characters of one value


def short_repr(self: Any) -> str:
  """A ``__repr__`` of dataclasses and named tuples: ``Name(field=value, ...)``, without fields at their defaults."""
  if dataclasses.is_dataclass(self):
    fields = {field.name: field.default for field in dataclasses.fields(self) if field.repr}
  else:
    fields = {name: self._field_defaults.get(name, dataclasses.MISSING) for name in self._fields}
  values = {name: getattr(self, name) for name, default in fields.items() if getattr(self, name) is not default}
  return f"{type(self).__name__}({', '.join(f'{name}={_shown(value)}' for name, value in values.items())})"


def _shown(value: Any) -> str:
  if _is_array(value):
    return f"{value.dtype}{list(value.shape)}"
  if isinstance(value, Mapping) and (arrays := list(filter(_is_array, jax.tree.leaves(value)))):
    return f"{{{len(arrays)} arrays, {_count(arrays):,} numbers}}"
  if hasattr(value, "_fields") and any(map(callable, value)) and all(map(_is_function, value)):
    return repr(value)  # a network of functions has its own repr
  is_dataclass = hasattr(value, "__dataclass_fields__") and hasattr(value, "__dict__")
  if is_dataclass or hasattr(value, "_fields"):
    fields = vars(value).values() if is_dataclass else value
    return short_repr(value) if any(_is_array(field) or callable(field) for field in fields) else repr(value)
  if callable(value) and hasattr(value, "__name__"):
    return value.__name__
  text = repr(value)
  return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _is_function(value: Any) -> bool:
  """Whether a field of a network is a function, a tuple of them, a flag, or missing."""
  return value is None or callable(value) or isinstance(value, bool) or hasattr(value, "_fields")


def _is_array(value: Any) -> bool:
  """Whether a value is an array, or the shape of one."""
  return hasattr(value, "shape") and hasattr(value, "dtype")


def _count(arrays: list[Any]) -> int:
  """Total size of arrays."""
  return sum(math.prod(array.shape) for array in arrays)
