"""Guards of commands: damaged files, signals during compiled code, and exhausted memory."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar

import click

from jaxspec.core.command_line import Interrupted, UserError
from jaxspec.core.error_lines import one_line
from jaxspec.errors import LinkError, OutOfMemory

EXHAUSTED = "RESOURCE_EXHAUSTED"

Result = TypeVar("Result")


@contextlib.contextmanager
def reading(path: str | os.PathLike) -> Iterator[None]:
  """Turns any exception from a damaged file into a `UserError` that names it."""
  try:
    yield
  except (ValueError, LinkError, OSError, ImportError, MemoryError, click.ClickException):
    raise  # these already have a message for users
  except Exception as error:
    raise UserError(f"Corrupt checkpoint {path}: {type(error).__name__}, {one_line(error)}") from error


def interruptible(function: Callable[..., Result], *args, **kwargs) -> Result:
  """Calls ``function`` in a thread, so that Ctrl-C and SIGTERM end compiled code at once.

  Raises:
    Interrupted: on either signal; the thread keeps running and the process must end.
    UserError: if the accelerator or the host ran out of memory. A server that is full stays a `LinkError`.
  """
  outcome: list[tuple[bool, Any]] = []

  def work():
    try:
      outcome.append((True, function(*args, **kwargs)))
    except BaseException as error:  # raised in the caller's thread
      outcome.append((False, error))

  thread = threading.Thread(target=work, daemon=True)
  thread.start()
  try:
    while thread.is_alive():
      thread.join(0.1)
  except KeyboardInterrupt as error:
    raise Interrupted from error
  succeeded, value = outcome[0]
  if succeeded:
    return value
  cause = value.__cause__ if isinstance(value, OutOfMemory) else value  # None: a message of the library's own
  if cause is not None and (cause is not value or EXHAUSTED in str(value)) and not isinstance(value, LinkError):
    reason = one_line(cause)[:160]
    raise UserError(
      f"Out of memory, use a smaller --batch (--max-streams of a server) or --dtype bfloat16 ({reason})"
    ) from value
  raise value


def imported(name: str) -> ModuleType:
  """Imports a module, `interruptible`: native code that is imported ends the process, or loses an exception, where a signal
  raises one inside of it."""
  return interruptible(importlib.import_module, name)
