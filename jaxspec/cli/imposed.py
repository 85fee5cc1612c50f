"""Options of imposed acceptance and calls: numbers, or files of ``jaxspec generate --save-acceptance``."""

from __future__ import annotations

from jaxspec.core.command_line import UserError
from jaxspec.methods import Method
from jaxspec.planning.recorded_acceptance import RecordedAcceptance

Given = float | RecordedAcceptance


def read(text: str, noun: str) -> Given:
  """A number from 0 to 1, or the content of a file.

  Args:
    noun: of the option, with its article.
  Raises:
    ValueError: for other texts.
  """
  try:
    value = float(text)
  except ValueError:
    return RecordedAcceptance.read(text)
  if not 0 <= value <= 1:
    raise UserError(f"Must have {noun} from 0 to 1, or a file, we instead got {text}")
  return value


def shares(acceptance: str | None, calls: str | None, method: Method) -> tuple[float | None, float | None]:
  """Acceptance and calls of a plan, None if they are not given; a recording of calls has an acceptance too.

  Raises:
    ValueError: for other texts, or a recording that does not fit the method.
  """
  given = None if acceptance is None else read(acceptance, "an acceptance")
  called = None if calls is None else read(calls, "calls")
  for found in (given, called):
    if isinstance(found, RecordedAcceptance):
      found.check_fits(method)
  given = called if given is None and isinstance(called, RecordedAcceptance) else given
  if isinstance(called, RecordedAcceptance) and called.calls is None:
    raise UserError(f"Must have recorded calls in {calls}, it is a recording of {called.method}")
  return (
    given.acceptance if isinstance(given, RecordedAcceptance) else given,
    called.calls if isinstance(called, RecordedAcceptance) else called,
  )
