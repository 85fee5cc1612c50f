"""Commands with the options of all methods, with a help of one screen.

A command's own options are shown in groups. Declared options (`jaxspec.cli.method_options`) have one line per sampling
setting, and one line per method with the names of its options; ``jaxspec methods NAME`` explains them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click

_INDENT = 2
_COLUMN = 45  # widest first column


class Line(NamedTuple):
  """One line of the help, for related options."""

  names: tuple[str, ...]
  help: str | None = None  # None: that of the only option


class Group(NamedTuple):
  """Lines under a heading."""

  title: str
  lines: tuple[Line, ...]


class MethodCommand(click.Command):
  """A command with its own options, those of all methods, and the sampling settings.

  Args:
    groups: groups of its own options; others are listed one by one.
  """

  def __init__(self, *args: Any, groups: Sequence[Group] = (), **kwargs: Any):
    super().__init__(*args, **kwargs)
    self._groups = tuple(groups)

  def get_params(self, ctx: click.Context) -> list[click.Parameter]:
    from jaxspec.cli import method_options

    own = super().get_params(ctx)
    method_options.check_names(self.name or "", (param.name for param in own))
    return [*own, *method_options.click_options()]

  def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    about_itself = self.get_help_option(ctx) if self._groups else None  # omitted: this is the help itself
    own = [param for param in super().get_params(ctx) if isinstance(param, click.Option) and param is not about_itself]
    options = {param.name: param for param in own}
    grouped = {name for group in self._groups for line in group.lines for name in line.names}
    groups = [(group.title, [_record(ctx, options, line) for line in group.lines]) for group in self._groups]
    rest = [record for name, option in options.items() if name not in grouped and (record := option.get_help_record(ctx))]
    groups += [("Options", rest)] if rest else []
    column = min(max(len(first) for _, records in groups for first, _ in records), _COLUMN)
    for title, records in groups:
      _section(formatter, title, [(first.ljust(column), help) for first, help in records])
    _section(formatter, "Sampling", _sampling())
    title = "Methods, and the options that each of them reads; explained by: jaxspec methods NAME"
    _section(formatter, title, _methods(formatter.width))


def _section(formatter: click.HelpFormatter, title: str, records: list[tuple[str, str]]) -> None:
  with formatter.section(title):
    formatter.write_dl(records, col_max=_COLUMN)


def _record(ctx: click.Context, options: dict[str, click.Option], line: Line) -> tuple[str, str]:
  """The two columns of a line."""
  shown = [options[name] for name in line.names]
  if len(shown) == 1 and line.help is None:
    record = shown[0].get_help_record(ctx)
    assert record is not None  # lines of a group are never hidden
    return record
  metavars = [option.metavar or "" for option in shown]
  typed = []
  for index, (option, metavar) in enumerate(zip(shown, metavars)):
    again = index + 1 < len(shown) and metavars[index + 1] == metavar  # once, after the last of them
    typed.append(option.opts[0] if again or not metavar else f"{option.opts[0]} {metavar}")
  return ", ".join(typed), line.help or ""


def _sampling() -> list[tuple[str, str]]:
  """One line per sampling setting, with its kinds of tokens in brackets if not all have it."""
  from jaxspec.core.options import options_of
  from jaxspec.run.decode_options import flag
  from jaxspec.sampling import SAMPLING_TYPES

  kinds = {kind: options_of(cls) for kind, cls in SAMPLING_TYPES.items()}
  lines = {}
  for options in kinds.values():
    for name, option in options.items():
      having = [kind for kind, other in kinds.items() if name in other]
      only = "" if len(having) == len(kinds) else f" ({', '.join(having)})"
      lines.setdefault(name, (flag(name) + only, option.spec.help))
  return list(lines.values())


def _methods(width: int) -> list[tuple[str, str]]:
  """One line per method; options beyond the width are omitted."""
  from jaxspec.core.options import options_of
  from jaxspec.methods import METHODS
  from jaxspec.run.decode_options import flag

  left = width - _INDENT - max(map(len, METHODS)) - 2
  lines = []
  for name, cls in METHODS.items():
    text = " ".join(map(flag, options_of(cls)))
    if len(text) > left:
      text = text[: text.rindex(" ", 0, left - 3)] + " ..."
    lines.append((name, text or "(none)"))
  return lines
