"""Overrides of frozen configs from the command line: ``name=value``, dotted for nested configs."""

from __future__ import annotations

import ast
import dataclasses
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
  from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")


def override(config: Config, assignments: Iterable[str]) -> Config:
  """A copy of ``config`` with some fields replaced.

  Args:
    config: a frozen dataclass, possibly with dataclasses as fields.
    assignments: ``"name=value"`` or ``"outer.name=value"``. Values are Python literals; anything else is a string. A string
      field takes any value except None as a string.
  Raises:
    ValueError: for a malformed assignment, an unknown name, or a value of another type than the current one.

  >>> from jaxspec.training.optimizer import OptimizerConfig
  >>> override(OptimizerConfig(), ["learning_rate=3e-4"]).learning_rate
  0.0003
  """
  for assignment in assignments:
    name, sign, text = assignment.partition("=")
    if not sign or not name:
      raise ValueError(f"Must have an override of the form name=value, we instead got {assignment!r}")
    config = _replace(config, name.split("."), literal(text), assignment)
  return config


def override_from_file(config: Config, file: Path) -> Config:
  """A copy of ``config`` with the fields of a TOML file; its tables are nested configs.

  Raises:
    ValueError: one line that names the file, for a file that cannot be read, an unknown name, or a value of another type.
  """
  try:
    document = tomllib.loads(file.read_text(encoding="utf-8"))
  except OSError as error:
    raise ValueError(f"Cannot read settings from {file}: {error.strerror}") from error
  except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
    raise ValueError(f"Cannot read settings from {file}, it is no TOML: {error}") from error
  try:
    for path, value in _leaves(document, ()):
      config = _replace(config, list(path), value, f"{'.'.join(path)}={value}")
  except ValueError as error:
    raise ValueError(f"Corrupt {file}: {error}") from error
  return config


def _leaves(table: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
  for name, value in table.items():
    if isinstance(value, dict):
      yield from _leaves(value, (*path, name))
    else:
      yield (*path, name), value


def differences(default: Config, config: Config) -> list[str]:
  """The assignments with which `override` turns ``default`` into ``config``, in the order of the fields.

  >>> from jaxspec.training.optimizer import OptimizerConfig
  >>> differences(OptimizerConfig(), OptimizerConfig(learning_rate=3e-4, name="muon"))
  ['name=muon', 'learning_rate=0.0003']
  """
  found = []
  for field in dataclasses.fields(config):
    old, new = getattr(default, field.name), getattr(config, field.name)
    if dataclasses.is_dataclass(new) and type(new) is type(old):
      found += [f"{field.name}.{assignment}" for assignment in differences(old, new)]
    elif new != old:
      # Quoted where the text would be read as None, or as quotes around another text.
      plain = isinstance(new, str) and (literal(new) == new or not isinstance(literal(new), str | None))
      found.append(f"{field.name}={new if plain else repr(new)}")
  return found


def literal(text: str) -> Any:
  """A Python literal, or else the text itself."""
  try:
    return ast.literal_eval(text)
  except (ValueError, SyntaxError, TypeError):  # TypeError: a list as a key
    return text


def _replace(config: Any, path: list[str], value: Any, assignment: str) -> Any:
  name, *rest = path
  known = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
  if name not in known:
    raise ValueError(f"Must have a field in {', '.join(known)}, we instead got {assignment!r}")
  old = known[name]
  if rest:
    if not dataclasses.is_dataclass(old):
      raise ValueError(f"Must have a field with fields of its own before the dot, we instead got {assignment!r}")
    return dataclasses.replace(config, **{name: _replace(old, rest, value, assignment)})
  if isinstance(old, tuple) and isinstance(value, list):
    value = tuple(value)
  kinds = _declared(config, name) if old is None else (type(old),)
  if float in kinds and int not in kinds and type(value) is int:
    value = float(value)
  if str in kinds and value is not None and type(value) not in kinds:
    value = assignment.partition("=")[2]  # a number, or several, as text
  if value is None:
    fits = old is None or _may_be_none(config, name)
  else:
    fits = not kinds or type(value) in kinds
  if not fits:
    wanted = " or ".join(kind.__name__ for kind in kinds)
    raise ValueError(f"Must have a value of type {wanted}, we instead got {assignment!r}")
  return dataclasses.replace(config, **{name: value})


def _declared(config: Any, name: str) -> tuple[type, ...]:
  """Types of a field without a value; () if one of them is no bool, int, float or string."""
  simple = {kind.__name__: kind for kind in (bool, int, float, str)}
  words = [word for word in map(str.strip, _type_of(config, name).split("|")) if word != "None"]
  return tuple(simple[word] for word in words) if set(words) <= simple.keys() else ()


def _may_be_none(config: Any, name: str) -> bool:
  return any(word in _type_of(config, name) for word in ("None", "Optional", "Any"))


def _type_of(config: Any, name: str) -> str:
  """The declared type of a field, as text."""
  return next(str(field.type) for field in dataclasses.fields(config) if field.name == name)
