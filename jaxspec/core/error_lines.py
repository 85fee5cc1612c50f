"""Exceptions as users see them: one line, and the traceback where it is asked for."""

from __future__ import annotations

import os
import traceback


def one_line(error: BaseException) -> str:
  """The message of an exception as one line; exceptions of command lines (``format_message``) say theirs."""
  message = getattr(error, "format_message", error.__str__)()
  return " ".join(message.split()) or type(error).__name__


def show_trace() -> None:
  """Prints the traceback of the exception that is being handled, where ``JAXSPEC_DEBUG`` asks for it."""
  if os.environ.get("JAXSPEC_DEBUG"):
    traceback.print_exc()
