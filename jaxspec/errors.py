"""Errors that a program can tell apart: by what it does about them.

All other user errors are plain ``ValueError``. Every message is one line that names cause and remedy.

| class | a program then |
|---|---|
| `CheckpointError` | takes other files |
| `OptionError` | changes a setting |
| `PromptError` | leaves out a prompt |
| `LinkError` | tries again later |
| `OutOfMemory` | takes a smaller batch |
| `Cancelled` | goes on: it raised the error itself |
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

__all__ = ["Cancelled", "CheckpointError", "LinkError", "OptionError", "OutOfMemory", "PromptError"]


class CheckpointError(ValueError):
  """Files of networks are missing, damaged, of an unknown family, or do not fit together."""


class OptionError(ValueError):
  """A method, an option of it, or a sampling setting is unknown, out of range, or does not fit the networks."""


class PromptError(ValueError):
  """A prompt does not fit the networks."""


class LinkError(RuntimeError):
  """A server or the hub cannot be reached, or refuses; no setting of the decode is wrong."""


class OutOfMemory(ValueError, RuntimeError):
  """A batch does not fit into the memory of the device or of the host."""


class Cancelled(RuntimeError):
  """Raised by the callback of a decode, to end it with the tokens committed so far."""


_KINDS = (CheckpointError, OptionError, PromptError, OutOfMemory)


@contextlib.contextmanager
def values_as(kind: type[ValueError]) -> Generator[None, None, None]:
  """Raises a plain ``ValueError`` of a block, or of a decorated function, as ``kind``; classes of this module stay."""
  try:
    yield
  except _KINDS:
    raise
  except ValueError as error:
    raise kind(str(error)) from error
