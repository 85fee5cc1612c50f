"""Speculative decoding with copied tokens: no draft network, and no wide pass where nothing is found."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxspec.core.constructors import from_history
from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.drafters.ngram_drafter import NgramLookup, RowAbove
from jaxspec.methods.common import check_chain, of_ids, target_side
from jaxspec.methods.method import BuildContext, Method, Parts, need, option
from jaxspec.rules.lossless import lossless

COPIES = ("auto", "ngram", "above")
_MOST = 64  # of ``longest``: the program grows with it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ngram(Method):
  """Speculative decoding with drafts copied from known tokens; exact.

  ``ngram`` finds the newest tokens earlier in the row or in the prompt of a text, and drafts what followed there. ``above``
  drafts the tokens one row higher in an image. A copied draft x is certain, so it is accepted with probability p(x).
  """

  window: int = option(7, "Most copied tokens per round.", ge=1)
  copy: str = option("auto", "What is copied; auto: the row above in an image, else an n-gram.", choices=COPIES)
  longest: int = option(8, "Most tokens that an n-gram compares.", ge=1, le=_MOST)
  shortest: int = option(2, "Fewest equal tokens of an n-gram.", ge=1)

  name: ClassVar[str] = "ngram"
  title: ClassVar[str] = "speculative decoding with copied tokens"
  source: ClassVar[str] = "Saxena 2023 (prompt lookup decoding); Oliaro et al. 2024, arXiv 2411.04975 (suffix decoding)"
  exact: ClassVar[bool] = True

  def check(self) -> None:
    """See `Method.check`."""
    if self.shortest > self.longest:
      raise ValueError(f"Must have shortest of at most longest, {self.longest}, we instead got {self.shortest}")

  def drafts_per_round(self) -> int:
    """The window."""
    return self.window

  def check_length(self, num_tokens: int) -> None:
    """See `Method.check_length`."""
    check_chain("window", self.window, num_tokens, whole=True)

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`; ``draft`` is not read."""
    of_ids(self, context)
    vocab_size, grid = need(context.space.vocab_size, "vocab_size", self.name), context.space.grid
    if self.copy == "above" or (self.copy == "auto" and grid is not None):
      columns = need(grid, "a grid (to copy the row above)", self.name)[1]
      copies = RowAbove(self.window, vocab_size, columns)
    else:
      copies = NgramLookup(self.window, vocab_size, self.longest, self.shortest, reads_prompt=grid is None)
    side, verifier = target_side(target, lossless, context, widths=(1,))
    return Parts(SpecParams((), side), from_history(copies, window=self.window), verifier)
