"""Default acceptance of drafts.

Acceptance depends on both networks, the temperature and the guidance. Measure it with ``jaxspec generate --compare`` or
``--save-acceptance`` if the networks are available.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxspec.methods.method import Method

ASSUMED = 0.7


class Acceptance(NamedTuple):
  """Conditional acceptance probability of a draft whose predecessors were accepted, and its source."""

  value: float
  source: str


def acceptance_of(method: Method, given: float | None = None) -> Acceptance | None:
  """The given acceptance or the default; None for a method without drafts.

  Raises:
    ValueError: for a value outside of [0, 1].
  """
  if given is not None and not 0 <= given <= 1:
    raise ValueError(f"Must have an acceptance from 0 to 1, we instead got {given}")
  if not method.longest_path():
    return None
  return Acceptance(ASSUMED, "assumed") if given is None else Acceptance(given, "given")
