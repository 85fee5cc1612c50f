"""One command line for `jaxspec`, the converters and the experiments: click, with errors of one line.

A user error is one line on stderr that names cause and remedy, with exit status 2. Ctrl-C is one line and status 130,
SIGTERM one line and 143: both unwind the stack, so that context managers clean up. An unexpected error is one line and
status 1. ``JAXSPEC_DEBUG=1`` shows the traceback above the line.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from jaxspec.core.error_lines import one_line, show_trace
from jaxspec.errors import LinkError

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
UNFORESEEN = 1


class UserError(click.ClickException):
  """A user error with a message of one line."""

  exit_code = 2


class _Path(click.Path):
  """A path; the empty text of an unset variable would be the current folder."""

  def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
    if value == "":
      self.fail("it is empty, give a name", param, ctx)
    return super().convert(value, param, ctx)


PATH = _Path(path_type=Path)


class Terminated(KeyboardInterrupt):
  """SIGTERM, handled like Ctrl-C."""


class Interrupted(KeyboardInterrupt):
  """Ctrl-C or SIGTERM during native code in a thread that cannot be stopped."""


class OneLineErrors(click.Command):
  """A command whose `main` exits with the status returned by its function, 0 for None; errors are one line."""

  def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
    call = super().main
    if not standalone_mode:  # as part of a group, which reports errors itself
      return call(*args, standalone_mode=False, **kwargs)
    exit_with(lambda: call(*args, standalone_mode=False, **kwargs))


class Group(OneLineErrors, click.Group):
  """A group of commands."""


def script(doc: str | None, **settings: Any) -> Callable[[Callable[..., Any]], OneLineErrors]:
  """The command of a module: ``@script(__doc__)``; its help is the module's docstring, lists and code line by line."""
  blocks = (doc or "").strip().replace("::\n", ":\n").replace("`", "").split("\n\n")
  text = "\n\n".join(f"\b\n{block}" if block.startswith((" ", "* ", "1. ")) else block for block in blocks)
  context = {"max_content_width": 110, "show_default": True}
  return click.command(cls=OneLineErrors, help=text, context_settings=context, **settings)


set_option = click.option(
  "--set", "assignments", multiple=True, metavar="NAME=VALUE",
  help="Value of a config field; dots lead to nested fields. May be repeated.",
)  # fmt: skip


def exit_with(call: Callable[[], Any]) -> None:
  """Calls ``call`` and exits with its status; see the module's docstring."""
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
      # A thread may still run compiled code; waiting for it would delay Ctrl-C.
      for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):  # None if it is closed; or its disk is full
          stream.flush()
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
  """Prints an error as one line, and returns the exit status."""
  foreseen = (click.ClickException, ValueError, LinkError, OSError, ImportError)  # a missing extra is an ImportError
  if not isinstance(error, (*foreseen, MemoryError)) and "jax" in sys.modules:
    from jaxspec.core.platform import platform

    try:
      platform()  # a broken backend fails at its first use
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
  """Escapes characters outside of stdout's encoding, and drops a width of 0, so that a report is printed in any case."""
  if os.environ.get("COLUMNS") == "0":  # of a terminal that knows no width; rich would print empty lines
    del os.environ["COLUMNS"]
  stream = sys.stdout
  if isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or stream.encoding.lower() != "utf-8"):
    stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _terminable() -> Generator[None, None, None]:
  """Raises `Terminated` on SIGTERM, unless this process has its own handler."""

  def terminate(number: int, frame: FrameType | None) -> NoReturn:
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
