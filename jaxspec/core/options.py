"""Options: dataclass fields with help and range.

A frozen dataclass declares an option once, with `option`: its default, its help, its bounds. Checks of values, options of
the command line, the JSON of a bundle's defaults and sweeps of an audit derive from these declarations. Methods
(`jaxspec.methods`) and sampling settings (`jaxspec.sampling`) are such dataclasses.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import types
import typing
from collections.abc import Iterable
from typing import Any, NamedTuple

from jaxspec.errors import OptionError

LARGEST_INT = 2**31 - 1  # of counts in programs
MAX_SEED = 2**32 - 1  # of the seeds of commands
MAX_PIPELINE = 8  # drafts of a row that may wait for their replies
LARGEST = 1_000_000  # of scales: products with logits stay within float32


@dataclasses.dataclass(frozen=True)
class OptionSpec:
  """The declaration of one option.

  Attributes:
    help: one sentence for the command line.
    ge, gt, le, lt: bounds of a number, None for none. Numbers must be finite unless ``infinite``.
    choices: the allowed values, None for any.
    words: values of a number that are words, for ``int | str``.
    infinite: whether a number may be infinite.
  """

  help: str
  ge: float | None = None
  gt: float | None = None
  le: float | None = None
  lt: float | None = None
  choices: tuple[str, ...] | None = None
  infinite: bool = False
  words: tuple[str, ...] = ()

  def check(self, name: str, value: Any) -> None:
    """Raises a ValueError for an undeclared value; None is valid if the field allows it."""
    if value is None:
      return
    if self.choices is not None and value not in self.choices:
      raise OptionError(f"Must have {name} in {', '.join(self.choices)}, we instead got {value!r}")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
      return
    if math.isnan(value):
      raise OptionError(f"Must have a number as {name}, we instead got nan")
    if not self.infinite and not math.isfinite(value):
      raise OptionError(f"Must have a finite {name}, we instead got {value}")
    bounds = (
      (self.ge, "of at least", lambda bound: value >= bound),
      (self.gt, "above", lambda bound: value > bound),
      (self.le, "of at most", lambda bound: value <= bound),
      (self.lt, "below", lambda bound: value < bound),
    )
    for bound, words, holds in bounds:
      if bound is not None and not holds(bound):
        shown = f"{value:g}" if float(f"{value:g}") == value else repr(value)
        raise OptionError(f"Must have {name} {words} {bound:,}, we instead got {shown}")


def suggestion(name: str, known: Iterable[str]) -> str:
  """Suggestion at the end of a message about an unknown name, or ""."""
  known = list(known)
  close = [each for each in known if name and each.startswith(name.lower())]
  close = close or difflib.get_close_matches(name.lower(), known, n=1)
  return f": did you mean {' or '.join(close)}?" if close else ""


def option(default: Any, help: str, **spec: Any) -> Any:
  """A dataclass field that is an option; ``spec`` are the other fields of `OptionSpec`."""
  return dataclasses.field(default=default, metadata={"option": OptionSpec(help, **spec)})


class Option(NamedTuple):
  """One declared option of a class, for the command line and JSON readers."""

  name: str
  kind: type  # int, float, str or bool; of a tuple that of its items
  optional: bool  # None is allowed
  default: Any
  spec: OptionSpec
  also: tuple[type, ...] = ()  # other types of values: int if the kind is str, for ``int | str``
  many: bool = False  # the value is a tuple of any length; JSON has a list, a command line items with commas between

  def check(self, value: Any) -> None:
    """Raises a ValueError of one line if the value has another type or is outside of the declared range."""
    if (value is None and self.optional) or (isinstance(value, str) and value in self.spec.words):
      return
    if self.many:
      if not isinstance(value, (tuple, list)):
        raise OptionError(f"Must have a tuple of {self.kind.__name__} as {self.name}, we instead got {value!r}")
      for item in value:
        self._replace(many=False, optional=False).check(item)
      return
    accepted = (self.kind, *self.also, *((int,) if self.kind is float else ()))
    if not isinstance(value, accepted) or (isinstance(value, bool) and self.kind is not bool):
      article, words = "an" if self.kind is int else "a", "".join(f" or {word}" for word in self.spec.words)
      raise OptionError(f"Must have {article} {self.kind.__name__}{words} as {self.name}, we instead got {value!r}")
    self.spec.check(self.name, value)


@functools.cache
def _declared(cls: type) -> tuple[Option, ...]:
  hints = typing.get_type_hints(cls)
  found = []
  for field in dataclasses.fields(cls):
    if (spec := field.metadata.get("option")) is not None:
      hint = hints[field.name]
      kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
      plain = [kind for kind in kinds if kind is not type(None)]
      if many := typing.get_origin(plain[0]) is tuple:
        plain = list(dict.fromkeys(kind for kind in typing.get_args(plain[0]) if kind is not Ellipsis))
      if spec.words:
        plain = [kind for kind in plain if kind is not str]
      kind = str if str in plain else float if float in plain else plain[0]
      also = tuple(other for other in plain if other is not kind)
      found.append(Option(field.name, kind, type(None) in kinds, field.default, spec, also, many))
  return tuple(found)


def options_of(cls: type) -> dict[str, Option]:
  """The declared options of a dataclass, by name, in the order of declaration."""
  return {declared.name: declared for declared in _declared(cls)}


def check_options(value: Any) -> None:
  """Checks every declared option of a dataclass instance, type and range; array scalars become Python numbers.

  Raises:
    OptionError: naming the first invalid option.
  """
  for declared in _declared(type(value)):
    given = plain(getattr(value, declared.name))  # of a sweep; hashes as Python's number
    object.__setattr__(value, declared.name, given)
    if declared.many and isinstance(given, list):  # of JSON
      object.__setattr__(value, declared.name, given := tuple(given))
    declared.check(given)


def plain(value: Any) -> Any:
  """Scalars of NumPy, JAX or PyTorch as Python numbers; other values are unchanged."""
  if getattr(value, "ndim", None) != 0 or not hasattr(value, "item"):
    return value
  try:
    return value.item()
  except TypeError:  # traced: it has no value yet
    return value


def check_length(max_len: Any) -> int:
  """``max_len`` as a plain integer.

  Raises:
    OptionError: unless it is a whole number from 1 to `LARGEST_INT`.
  """
  found = plain(max_len)
  if not isinstance(found, int) or isinstance(found, bool) or found < 1:
    raise OptionError(f"Must have a whole number of at least 1 as max_len, we instead got {max_len!r}")
  if found > LARGEST_INT:
    raise OptionError(f"Must have max_len of at most {LARGEST_INT:,}, we instead got {max_len:,}")
  return found


def values_of(value: Any) -> dict[str, Any]:
  """The declared options of a dataclass instance and their values, as JSON values."""
  return {declared.name: getattr(value, declared.name) for declared in _declared(type(value))}
