"""One command line for `jaxspec`, the converters and the experiments: click, with errors of one line.

An error that the user can mend is one line on stderr, which says what and how, and exit status 2. Ctrl-C is one line and
status 130, SIGTERM one line and 143: both unwind what runs, so that nothing is left behind. An unforeseen error is one line
and status 1.
``JAXSPEC_DEBUG=1`` shows the traceback above the line.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from jaxspec.core.error_lines import one_line, show_trace

PATH = click.Path(path_type=Path)
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
UNFORESEEN = 1


class UserError(click.ClickException):
  """A failure that the user can mend; the message is one line."""

  exit_code = 2


class Terminated(KeyboardInterrupt):
  """SIGTERM, which ends everything that Ctrl-C ends."""


class Interrupted(KeyboardInterrupt):
  """Ctrl-C or SIGTERM while native code was running in a thread that cannot be stopped."""


class OneLineErrors(click.Command):
  """A command whose `main` leaves the process with the status that its function returns, 0 for None; errors are one line."""

  def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
    call = super().main
    if not standalone_mode:  # as part of a group, which reports errors itself
      return call(*args, standalone_mode=False, **kwargs)
    exit_with(lambda: call(*args, standalone_mode=False, **kwargs))


class Group(OneLineErrors, click.Group):
  """A group of commands."""


def script(doc: str | None, **settings: Any) -> Callable[[Callable], OneLineErrors]:
  """The command of a module: ``@script(__doc__)``; its help is the module's docstring, line by line as it is written."""
  text = "\b\n" + (doc or "").strip().replace("\n\n", "\n\n\b\n")
  context = {"max_content_width": 110, "show_default": True}
  return click.command(cls=OneLineErrors, help=text, context_settings=context, **settings)


set_option = click.option(
  "--set", "assignments", multiple=True, metavar="NAME=VALUE", help="Another value of a field, such as loop.num_steps=500."
)


def exit_with(call: Callable[[], Any]) -> None:
  """Calls ``call`` and leaves the process with its exit status; see the module's docstring."""
  _print_anything()
  try:
    with _terminable():
      result = call()
  except click.exceptions.NoArgsIsHelpError as error:
    click.echo(error.ctx.get_help())
    sys.exit(0)
  except (click.Abort, KeyboardInterrupt) as error:
    causes = _causes(error)
    by_signal = Terminated in causes
    _say("Terminated" if by_signal else "Interrupted", "no file was left half-written")
    status = TERMINATED if by_signal else INTERRUPTED
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
  """Says in one line what went wrong, and returns the exit status."""
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
