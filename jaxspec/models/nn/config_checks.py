"""What the configs of networks have and check alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def check_whole(config: Any, ids: Collection[str] = ()) -> None:
  """Checks the fields of a dataclass that are declared ``int``.

  Args:
    ids: names of those that may be 0.
  Raises:
    ValueError: unless each of the others is an integer of at least 1.
  """
  for name in (field.name for field in dataclasses.fields(config) if field.type == "int"):
    value, least = getattr(config, name), 0 if name in ids else 1
    if type(value) is not int or value < least:
      raise ValueError(f"Must have {name} as an integer of at least {least}, we instead got {value!r}")


class HeadSizes:
  """A base of dataclasses with the fields ``dim`` and ``num_heads``, and perhaps ``num_kv_heads`` and ``head_size``.

  Attributes:
    num_kv_heads: number of key/value heads; None is one for every query head.
    head_size: None is ``dim / num_heads``.
  """

  dim: int
  num_heads: int
  num_kv_heads: int | None = None
  head_size: int | None = None

  @property
  def head_dim(self) -> int:
    return self.head_size or self.dim // self.num_heads

  @property
  def kv_heads(self) -> int:
    return self.num_kv_heads or self.num_heads

  def check_heads(self, divisor: int = 1) -> None:
    """Checks the fields of the heads.

    Args:
      divisor: of the head size.
    Raises:
      ValueError: in one line.
    """
    dim, heads = self.dim, self.num_heads
    if self.head_size is None and dim % heads:
      raise ValueError(f"Must have a width divisible by the heads, we instead got width {dim} over {heads} heads")
    if self.head_dim % divisor:
      raise ValueError(f"Must have a head size divisible by {divisor}, we instead got width {dim} over {heads} heads")
    if heads % self.kv_heads:
      raise ValueError(f"Must have heads divisible by kv heads, we instead got {heads} and {self.kv_heads}")


def published(table: Mapping[str, T], name: str, what: str = "a size") -> T:
  """Entry of a table of published sizes.

  Raises:
    ValueError: for a name that is not in the table; it lists the names.
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
