"""The message of an exception as one line."""

from __future__ import annotations


def one_line(error: BaseException) -> str:
  """The message of an exception as one line; exceptions of command lines (``format_message``) say theirs."""
  message = getattr(error, "format_message", error.__str__)()
  return " ".join(message.split()) or type(error).__name__
