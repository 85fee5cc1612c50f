"""Row-parallel decoding: the target draws tokens of several rows of an image in one pass."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.methods.common import of_ids
from jaxspec.methods.method import BuildContext, Expected, Method, Parts, need, option
from jaxspec.methods.row_decode import RowDecode
from jaxspec.sampling.row_schedule import num_passes, row_schedule

# By default rows have this share before the next one starts: 16 of 48 columns, as published.
_SHARE = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows(Method):
  """Rows of an image in parallel: a row starts when the row above has ``width`` tokens; not exact.

  A token is drawn without the tokens of the rows above it that are not drawn yet. An image of R rows and C columns takes
  ``C + width (R - 1)`` passes. With a width of all columns it is plain decoding, with the same tokens. An audit estimates
  the KL divergence of the images from the target without bias (`jaxspec.methods.row_decode`).
  """

  width: int | None = option(None, "Tokens of a row before the next row starts; a third of the columns by default.", ge=1)

  name: ClassVar[str] = "rows"
  title: ClassVar[str] = "several rows of an image at once"
  source: ClassVar[str] = "He et al. 2024 (ZipAR), arXiv 2412.04062, section 3"

  def expected(self, acceptance: float, num_tokens: int, calls: float | None = None) -> Expected:
    """The mean number of tokens of a pass for a square image; there are no drafts."""
    side = max(round(math.sqrt(num_tokens)), 1)
    return Expected(num_tokens / num_passes((side, num_tokens // side), self._of_columns(num_tokens // side)))

  def resolved(self, context: BuildContext) -> Self:
    """See `Method.resolved`; fills in ``width``."""
    return dataclasses.replace(self, width=self._of_columns(self._grid(context)[1]))

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`; ``draft`` is not read."""
    sampling = of_ids(self, context)
    grid = self._grid(context)
    width = self._of_columns(grid[1])
    row_schedule(grid, width)  # refuses a width
    fns, side = sampling.side(target)
    known = _known_ends(context, grid)
    decode = RowDecode(fns, context.warp(), grid, width, known, context.audit)
    return Parts(SpecParams((), side), None, None, decode=decode)

  def _grid(self, context: BuildContext) -> tuple[int, int]:
    return need(context.space.grid, "images with a grid of tokens", self.name)

  def _of_columns(self, columns: int) -> int:
    return -(-columns // _SHARE) if self.width is None else self.width


def _known_ends(context: BuildContext, grid: tuple[int, int]) -> tuple[int, ...]:
  """The only legal id of the last token of each row, as of row ends; -1 if several are legal."""
  rows, columns = grid
  if context.space.legal is None:
    return (-1,) * rows
  with jax.ensure_compile_time_eval():  # a plan builds methods of shapes
    legal = np.asarray(context.space.legal(columns * jnp.arange(1, rows + 1) - 1))  # [R, V]
  return tuple(int(ids.argmax()) if ids.sum() == 1 else -1 for ids in legal)
