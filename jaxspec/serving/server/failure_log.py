"""Failures in the log: their type and place. Their messages may quote requests, so they are left out."""

from __future__ import annotations

import logging
import traceback


def log_failure(log: logging.Logger, what: str, error: BaseException) -> None:
  """Logs an error by its type and the places that it came through, without its message and those of its causes.

  Args:
    what: one line about what failed.
  """
  places = "".join(traceback.format_tb(error.__traceback__))
  log.error("%s\n%s%s", what, places, type(error).__qualname__)
