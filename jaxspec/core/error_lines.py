"""Exceptions for users: one line, and the traceback on request."""

from __future__ import annotations

import os
import traceback


def one_line(error: BaseException) -> str:
  """The message of an exception as one line; exceptions of command lines have their own (``format_message``)."""
  message = getattr(error, "format_message", error.__str__)()
  if isinstance(error, OSError):
    message = message.removeprefix(f"[Errno {error.errno}] ")
  return " ".join(message.split()) or type(error).__name__


def show_trace() -> None:
  """Prints the traceback of the handled exception if ``JAXSPEC_DEBUG`` is set, to another value than 0."""
  if os.environ.get("JAXSPEC_DEBUG", "") not in ("", "0"):
    traceback.print_exc()
