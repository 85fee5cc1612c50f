"""Command lines of the documentation, given to the parser of the command without running anything."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import click

from jaxspec.cli import method_options as declared
from jaxspec.cli.main import COMMANDS
from jaxspec.run.decode_options import DecodeOptions


def command_of(name: str) -> click.Command:
  module, _, attribute = COMMANDS[name].target.partition(":")
  return getattr(importlib.import_module(module), attribute)


def lines_of(page: Path) -> list[list[str]]:
  """The words of every command in the shell blocks of a page, without redirections."""
  blocks = re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
  lines = [line for block in blocks for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
  parts = [part.partition(" > ")[0] for line in lines for part in line.split(" && ")]
  return [words for part in parts if (words := shlex.split(part, comments=True))]


def mentions_of(page: Path) -> list[list[str]]:
  """The words of every ``jaxspec`` command in a sentence; values may be omitted there."""
  spans = re.findall(r"`(jaxspec [^`]*)`", page.read_text(encoding="utf-8"))
  return [shlex.split(span) for span in spans]


def subcommand(words: list[str]) -> tuple[click.Command, list[str]]:
  """The command that the words after ``jaxspec`` begin with, and the words after its name."""
  name, *args = words
  command = command_of(name)
  while isinstance(command, click.Group) and args and not args[0].startswith("-"):
    name, *args = args
    command = command.get_command(None, name)
    assert command is not None, words
  return command, args


def parse(words: list[str]) -> None:
  """Parses the words after ``jaxspec``: options that the command takes, and values that they allow.

  Raises:
    click.UsageError: as the command would raise.
    ValueError: as the declaration of an option would raise.
  """
  command, args = subcommand(words)
  context = command.make_context(command.name, args)
  DecodeOptions.of(context.params).check()


def flags_of(command: click.Command) -> set[str]:
  """All flags of a command, those of methods and sampling settings included."""
  options = [param for param in (*command.params, *declared.click_options()) if isinstance(param, click.Option)]
  return {"--help", *(flag for option in options for flag in (*option.opts, *option.secondary_opts))}
