"""docs/cli.md names exactly the existing commands and options."""

import re
from pathlib import Path

import click

from jaxspec.cli.main import COMMANDS
from jaxspec.core.options import options_of
from jaxspec.methods import METHODS
from jaxspec.run.decode_options import declarations, flag
from jaxspec.sampling import SAMPLING_TYPES
from tests.cli.command_lines import command_of

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
# Of declared options the page explains those of the sampling; `jaxspec methods` explains the others.
KNOWN_BESIDES = {"--help", "--version", "--x", "--no-x"}


def params_of(command: click.Command) -> list[click.Parameter]:
  """Those of the command itself, and of the commands below it; another page has those of ``convert``."""
  below = command.list_commands(None) if isinstance(command, click.Group) and command.name != "convert" else []
  return [*command.params, *(param for name in below for param in params_of(command.get_command(None, name)))]


def own_options() -> dict[str, set[str]]:
  """Flags of every command that are not declared elsewhere."""
  found = {}
  for name in COMMANDS:
    params = params_of(command_of(name))
    found[name] = {
      flag for param in params if isinstance(param, click.Option) for flag in (*param.opts, *param.secondary_opts)
    }
  return found


def test_every_command_and_method_is_there():
  for name in COMMANDS:
    assert f"\n## {name}\n" in PAGE and f"`jaxspec {name}`" in PAGE
  for name in METHODS:
    assert f"| `{name}` |" in PAGE


def test_every_option_is_there():
  whole = PAGE.replace("--resume", "--no-resume")
  for name, flags in own_options().items():
    missing = [flag for flag in flags if flag not in whole and flag != "--resume"]
    assert not missing, (name, missing)
  of_sampling = {flag(name) for cls in SAMPLING_TYPES.values() for name in options_of(cls)}
  assert all(flag in PAGE for flag in of_sampling)


def test_no_option_is_made_up():
  flags = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", PAGE))
  known = KNOWN_BESIDES | set().union(*own_options().values()) | {flag(name) for name in declarations()}
  assert not flags - known, flags - known
