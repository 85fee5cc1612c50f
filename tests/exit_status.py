"""Runs commands of modules (`jaxspec.core.command_line.script`) in this process."""

import pytest


def status_of(command, *arguments):
  """The exit status."""
  with pytest.raises(SystemExit) as ended:
    command.main([str(argument) for argument in arguments])
  return ended.value.code
