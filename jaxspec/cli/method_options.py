"""Options that methods and sampling settings declare, as options of a command.

Flags, types and choices derive from the declarations (`jaxspec.core.options`), so registered methods are in every command.
The declarations check the values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import click

from jaxspec.core.options import Option, options_of
from jaxspec.run.decode_options import declarations, flag


def check_names(command: str, own: Iterable[str]) -> None:
  """Raises a ValueError if a declared option has the name of a command's own option."""
  if taken := sorted(declarations().keys() & set(own)):
    raise ValueError(f"Must have another name for a declared option, {flag(taken[0])} belongs to jaxspec {command}")


def click_options() -> tuple[click.Option, ...]:
  """One hidden click option for every declared name; `jaxspec.cli.option_help` shows them."""
  return _click_options(tuple((name, tuple(found)) for name, found in declarations().items()))


@functools.cache  # click compares parameters by identity
def _click_options(found: tuple[tuple[str, tuple[Option, ...]], ...]) -> tuple[click.Option, ...]:
  return tuple(_click_option(name, options) for name, options in found)


def _click_option(name: str, options: tuple[Option, ...]) -> click.Option:
  help = options[0].spec.help
  if {option.kind for option in options} == {bool}:
    return click.Option([f"{flag(name)}/--no-{name.replace('_', '-')}"], default=None, hidden=True, help=help)
  return click.Option([flag(name)], type=value_type(options), default=None, hidden=True, help=help)


def options_for(cls: type, *names: str) -> Callable[[Callable], Callable]:
  """Adds some options of a class to a command, visible in its help."""

  def add(function: Callable) -> Callable:
    for name in reversed(names):
      option = options_of(cls)[name]
      metavar = {int: "N", float: "X"}.get(option.kind)
      function = click.option(flag(name), type=value_type((option,)), metavar=metavar, help=option.spec.help)(function)
    return function

  return add


class IntOrWord(click.ParamType):
  """A whole number, or one of a few words."""

  name = "integer"

  def __init__(self, words: tuple[str, ...]):
    self._words = words

  def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
    if value in self._words:
      return str(value)
    return click.INT.convert(value, param, ctx)


def value_type(options: Iterable[Option]) -> click.ParamType:
  """The click type of an option, the most general of its declarations."""
  if any(option.many for option in options):
    return click.STRING
  kinds = {option.kind for option in options}
  if kinds == {int} and (words := {word: None for option in options for word in option.spec.words}):
    return IntOrWord(tuple(words))
  choices = [option.spec.choices for option in options]
  if kinds == {str} and None not in choices:
    return click.Choice(list(dict.fromkeys(choice for each in choices for choice in each or ())))
  if kinds == {int}:
    return click.INT
  if kinds == {bool}:
    return click.BOOL
  return click.FLOAT if kinds <= {int, float} else click.STRING
