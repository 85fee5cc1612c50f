"""What a user sees when something goes wrong: one line on stderr that says what and how to mend it, and exit code 2.

Ctrl-C is one line and exit code 130, SIGTERM is one and 143: both unwind what runs, so that nothing is left behind. What no
command foresaw is one line and exit code 1. ``JAXSPEC_DEBUG=1`` shows the traceback above the line.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar

import click

from jaxspec.core.error_lines import one_line, show_trace
from jaxspec.serving.wire.cloud import CloudError

Result = TypeVar("Result")
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
UNFORESEEN = 1


class UserError(click.ClickException):
  """A failure the user can mend; the message is one line."""

  exit_code = 2


class Terminated(KeyboardInterrupt):
  """SIGTERM: whatever ends at Ctrl-C ends at it in the same way."""


class Interrupted(KeyboardInterrupt):
  """Ctrl-C or SIGTERM while native code was running in a thread that cannot be stopped."""


def run_group(main: Callable[..., Any], *args, **kwargs) -> None:
  """Runs a click group and leaves the process with its exit code; see the module docstring."""
  _print_anything()
  try:
    with _terminable():
      result = main(*args, standalone_mode=False, **kwargs)
  except click.exceptions.NoArgsIsHelpError as error:
    click.echo(error.ctx.get_help())
    sys.exit(0)
  except (click.Abort, KeyboardInterrupt) as error:
    causes = _causes(error)
    is_told = Terminated in causes
    _say("Terminated" if is_told else "Interrupted", "no file was left half-written")
    status = TERMINATED if is_told else INTERRUPTED
    if Interrupted in causes:
      # A thread is still inside compiled code; waiting for it would make Ctrl-C slow.
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(status)
    sys.exit(status)
  except BrokenPipeError:
    sys.exit(1)
  except Exception as error:
    show_trace()
    sys.exit(_explain(error))
  else:
    sys.exit(result if isinstance(result, int) else 0)


def _explain(error: Exception) -> int:
  """Says in one line what went wrong, and returns the exit code."""
  foreseen = (click.ClickException, ValueError, OSError, ImportError)  # an extra that is missing is an ImportError
  if not isinstance(error, (*foreseen, MemoryError)) and "jax" in sys.modules:
    from jaxspec.core.platform import platform

    try:
      platform()  # a backend that cannot start fails wherever it is asked for first
    except ValueError as cause:
      error = cause
  if isinstance(error, foreseen):
    _say("Error", one_line(error))
  elif isinstance(error, MemoryError):
    _say("Error", f"Out of memory ({one_line(error)}): use a smaller --batch or --dtype bfloat16")
  else:
    _say("Error", f"Unforeseen {type(error).__name__}, {one_line(error)}: JAXSPEC_DEBUG=1 shows where")
    return UNFORESEEN
  return UserError.exit_code


def _print_anything() -> None:
  """Characters that stdout's encoding lacks are escaped: a report is no reason to lose the work that it is about."""
  stream = sys.stdout
  if isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or stream.encoding.lower() != "utf-8"):
    stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
  """Raises `Terminated` on SIGTERM, unless this process has a way of its own already."""

  def terminate(number, frame):
    raise Terminated

  if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
    yield
    return
  signal.signal(signal.SIGTERM, terminate)
  try:
    yield
  finally:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _causes(error: BaseException | None) -> set[type]:
  found = set()
  while error is not None:
    found.add(type(error))
    error = error.__cause__
  return found


def _say(head: str, message: str) -> None:
  click.echo(click.style(f"{head}:", fg="red", bold=True) + f" {message}", err=True)


@contextlib.contextmanager
def reading(path: str | os.PathLike) -> Iterator[None]:
  """Turns whatever a damaged file can cause into a `UserError` that names it."""
  try:
    yield
  except (ValueError, OSError, MemoryError, click.ClickException):
    raise  # these already say what is wrong
  except Exception as error:
    raise UserError(f"Corrupt checkpoint {path}: {type(error).__name__}, {one_line(error)}") from error


def interruptible(function: Callable[..., Result], *args, **kwargs) -> Result:
  """Calls ``function`` in a thread, so that Ctrl-C and SIGTERM end a long stay in compiled code at once.

  Raises:
    Interrupted: on either; the thread is left behind and the process must end.
    UserError: if the accelerator or the host ran out of memory. A server that is full stays a `CloudError`.
  """
  outcome: list[tuple[bool, Any]] = []

  def work():
    try:
      outcome.append((True, function(*args, **kwargs)))
    except BaseException as error:  # handed to the caller's thread
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
  if "RESOURCE_EXHAUSTED" in str(value) and not isinstance(value, CloudError):  # XLA says it too, of memory
    reason = one_line(value)[:160]
    raise UserError(
      f"Out of memory, use a smaller --batch (--max-streams of a server) or --dtype bfloat16 ({reason})"
    ) from value
  raise value


def imported(name: str) -> ModuleType:
  """Imports a module, `interruptible`: native code that is imported ends the process, or loses an exception, where a signal
  raises one inside of it."""
  return interruptible(importlib.import_module, name)
