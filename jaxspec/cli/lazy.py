"""A click group that imports commands on demand, so that ``--help`` is fast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from jaxspec.cli.guards import imported
from jaxspec.core.command_line import Group, UserError
from jaxspec.core.options import suggestion

if TYPE_CHECKING:
  from jaxspec.io.converters import Converter


class LazyCommand(NamedTuple):
  """Location of a command, and its line in the overview."""

  target: str  # "module:attribute"
  summary: str


class LazyGroup(Group):
  """Group over a table of `LazyCommand`."""

  def __init__(self, *args, lazy_commands: Mapping[str, LazyCommand | Converter], **kwargs):
    super().__init__(*args, **kwargs)
    self._lazy_commands = lazy_commands

  def list_commands(self, ctx: click.Context) -> list[str]:
    return list(self._lazy_commands)

  def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
    if cmd_name not in self._lazy_commands:
      return None
    module, _, attribute = self._lazy_commands[cmd_name].target.partition(":")
    try:
      return getattr(imported(module), attribute)
    except (ImportError, AttributeError) as error:
      raise UserError(f"The command {cmd_name!r} is not part of this installation ({error})") from error

  def resolve_command(self, ctx: click.Context, args: list[str]):
    if args and not args[0].startswith("-") and args[0] not in self._lazy_commands:
      known, hint = ", ".join(self._lazy_commands), suggestion(args[0], self._lazy_commands)
      raise UserError(f"Must have a command in {known}, we instead got {args[0]!r}{hint}")
    return super().resolve_command(ctx, args)

  def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    with formatter.section("Commands"):
      formatter.write_dl([(name, command.summary) for name, command in self._lazy_commands.items()])
