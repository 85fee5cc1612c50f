"""What both ends of a stream agree on, besides their codec."""

from __future__ import annotations

import dataclasses

from jaxspec.core.options import check_length
from jaxspec.serving.wire.cloud import MAX_END_TOKENS


@dataclasses.dataclass(frozen=True)
class Agreement:
  """What the opening of a stream says about its row.

  Attributes:
    max_len: tokens N of the row.
    end_tokens: tokens that end it.
  """

  max_len: int
  end_tokens: tuple[int, ...] = ()

  def __post_init__(self):
    check_length(self.max_len)
    if len(self.end_tokens) > MAX_END_TOKENS:
      raise ValueError(f"Must have at most {MAX_END_TOKENS} end tokens, we instead got {self.end_tokens}")
