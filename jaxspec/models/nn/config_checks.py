"""What the configs of networks check alike when they are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def check_whole(config: Any) -> None:
  """Checks the fields of a dataclass that are declared ``int``.

  Raises:
    ValueError: unless each is an integer of at least 1.
  """
  for name in (field.name for field in dataclasses.fields(config) if field.type == "int"):
    value = getattr(config, name)
    if type(value) is not int or value < 1:
      raise ValueError(f"Must have {name} as an integer of at least 1, we instead got {value!r}")


def published(table: Mapping[str, T], name: str, what: str = "a size") -> T:
  """What a table of published sizes says about one of them.

  Raises:
    ValueError: for a name that is not in the table; says which are.
  """
  if name not in table:
    raise ValueError(f"Must have {what} in {', '.join(table)}, we instead got {name!r}")
  return table[name]


def config_of(config_class: type, name: str, fields: dict[str, Any]) -> Any:
  """A config from plain fields, such as those of a JSON file.

  Raises:
    ValueError: for an unknown field or one that does not fit, naming it.
  """
  known = {f.name for f in dataclasses.fields(config_class)}
  if unknown := sorted(set(fields) - known):
    raise ValueError(f"Must have fields known to {name}, we instead got {', '.join(unknown)}")
  fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
  try:
    return config_class(**fields)
  except (TypeError, ArithmeticError) as error:
    # A damaged file can hold any JSON where a number belongs.
    raise ValueError(f"Must have a config that fits {name}, we instead got {fields}: {error}") from error
