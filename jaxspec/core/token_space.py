"""The tokens of a row as one value of a family, for its decoders and methods."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from jaxspec.core.short_repr import short_repr
from jaxspec.core.token_kinds import DISCRETE, noun
from jaxspec.core.types import Array

# (index of a token in its row, ``[...]`` int32 from 0) -> its legal ids, ``[..., V]`` bool. Hashable, and equal for equal
# rules, as a static argument.
LegalFn = Callable[[Array], Array]


@dataclasses.dataclass(frozen=True)
class TokenSpace:
  """The tokens of a row: their kind, their number, and tables to compare them.

  Tables are functions, so that they are loaded on demand.

  Attributes:
    kind: kind of the tokens (`jaxspec.core.token_kinds`).
    vocab_size: ``V``; None without a vocabulary.
    num_tokens: tokens of a row; None if rows end at an end token, or if the number depends on the sampling settings.
    grid: rows and columns of the tokens of an image; None for others.
    codebook: returns ``[V, C]``, the rows of the image tokenizer; None without one.
    embedding: returns ``[V, D]``, the target's input embedding; None without one.
    legal: legal ids at each index of a row; None: all.
    unit_codes: whether codes are compared at unit length, as in most image tokenizers.
  """

  __repr__ = short_repr

  kind: str = DISCRETE
  vocab_size: int | None = None
  num_tokens: int | None = None
  grid: tuple[int, int] | None = None
  codebook: Callable[[], Array] | None = None
  embedding: Callable[[], Array] | None = None
  legal: LegalFn | None = None
  unit_codes: bool = True

  @property
  def noun(self) -> str:
    """The plural of a token, for messages: "continuous tokens", but "scales"."""
    return noun(self.kind)
