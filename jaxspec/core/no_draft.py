"""No drafter: the loop is then plain autoregressive decoding."""

from __future__ import annotations

import dataclasses

from jaxspec.core.types import Cursor, Draft, Drafter, Key, PyTree


@dataclasses.dataclass(frozen=True)
class NoDrafter(Drafter):
  """Drafts nothing."""

  window = 0
  calls_per_round = 0

  def draft(self, params: PyTree, keys: Key, state: PyTree, cursor: Cursor) -> tuple[Draft, PyTree, PyTree]:
    return Draft.empty(cursor.last), (), ()


NO_DRAFTER = NoDrafter()
