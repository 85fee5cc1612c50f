"""How often drafts are accepted where nobody says: as measured on the shipped images, else a value that is stated here.

Acceptance depends on the two networks and on the temperature. Measure it with ``jaxspec generate --compare`` or ``jaxspec
audit`` wherever the networks are there.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxspec.acceptance import acceptance_for
from jaxspec.methods.base import Method

# Method: drafts of a round that can be accepted, tokens for each call of the target. The table is
# experiments/results/speed_methods.md, the rows of batch 1 (emoji64, 256 tokens, guidance 2.5, temperature 0.7).
MEASURED: dict[str, tuple[int, float]] = {
  "speculative": (3, 2.395),
  "sjd": (7, 2.077),
  "gsd": (7, 2.092),
  "lantern": (3, 2.566),
  "eagle-chain": (3, 2.868),
  "eagle": (3, 2.742),
  "eagle-lantern": (3, 3.380),
}
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
  if given is not None:
    return Acceptance(given, "given")
  if method.name in MEASURED:
    drafts, tokens = MEASURED[method.name]
    return Acceptance(acceptance_for(tokens, drafts), "measured on emoji64, speed_methods.md")
  return Acceptance(ASSUMED, "assumed")
