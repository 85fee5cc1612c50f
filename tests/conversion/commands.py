"""Runs converters as commands, and writes their inputs."""

import json

from click.testing import CliRunner


def run(command, *args):
  """click's result."""
  return CliRunner().invoke(command, [str(arg) for arg in args])


def works(command, *args):
  """Runs a command that must succeed; returns its output."""
  result = run(command, *args)
  assert result.exit_code == 0, (result.output, result.exception)
  return result.stdout


def fails(command, *args):
  """Runs a command that must fail as a user error; returns its one line."""
  result = run(command, *args)
  assert result.exit_code == 2, (result.output, result.exception)
  assert result.stdout == "" and result.stderr.endswith("\n")
  (line,) = result.stderr.splitlines()
  assert line.startswith("Error: ")
  return line


def write_fields(folder, fields):
  """A file for ``--config``: JSON of the fields, or a given text."""
  path = folder / "fields.json"
  path.write_text(fields if isinstance(fields, str) else json.dumps(fields))
  return path
