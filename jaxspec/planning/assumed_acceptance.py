"""How often drafts are accepted where nobody says.

Acceptance depends on the two networks, on the temperature and on the guidance, so there is no figure for all of them: it is
stated here and given wherever it is known. Measure it with ``jaxspec generate --compare`` or ``--save-acceptance`` where the
networks are there.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxspec.methods.method import Method

ASSUMED = 0.7


class Acceptance(NamedTuple):
  """Probability that a draft is accepted if those before it are, and where that is from."""

  value: float
  source: str


def acceptance_of(method: Method, given: float | None = None) -> Acceptance | None:
  """What to reckon with; None for a method without drafts.

  Raises:
    ValueError: for a given value that is no probability.
  """
  if given is not None and not 0 <= given <= 1:
    raise ValueError(f"Must have an acceptance from 0 to 1, we instead got {given}")
  if not method.longest_path():
    return None
  return Acceptance(ASSUMED, "assumed") if given is None else Acceptance(given, "given")
