"""Row-parallel decoding: the target draws tokens of several rows of an image in one pass."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.expected_tokens import expected_tokens
from jaxspec.core.network import Network
from jaxspec.core.state import SpecParams
from jaxspec.drafters.row_windows import RowWindows
from jaxspec.methods.common import of_ids
from jaxspec.methods.method import BuildContext, Method, Parts, need, option
from jaxspec.methods.row_decode import RowDecode
from jaxspec.sampling.row_schedule import num_groups, num_passes

# By default rows have this share before the next one starts: 16 of 48 columns, as published.
_SHARE = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows(Method):
  """Rows of an image in parallel: a row stays ``width`` tokens behind the row above; not exact.

  A token is drawn without the tokens of the rows above it that are not drawn yet. Without drafts, an image of R rows and C
  columns takes ``C + width (R - 1)`` passes. With a ``row_window`` above 1 each row has Jacobi drafts (as `Sjd`), and a pass
  commits several tokens of it. With a width of all columns the images follow the target exactly; without drafts the tokens
  are those of plain decoding. An audit estimates the KL divergence of the images from the target without bias, or a bound of
  it with drafts (`jaxspec.methods.row_decode`).
  """

  width: int | None = option(
    None, "Tokens by which a row stays behind the row above; a third of the columns by default.", ge=1
  )
  row_window: int = option(1, "Tokens of each row per pass: its newest one and Jacobi drafts; 1: no drafts.", ge=1)

  name: ClassVar[str] = "rows"
  title: ClassVar[str] = "several rows of an image at once"
  source: ClassVar[str] = "He et al. 2024 (ZipAR), arXiv 2412.04062, section 3"
  needs_grid: ClassVar[bool] = True

  def drafts_per_round(self) -> int:
    """Drafts of one row."""
    return self.row_window - 1

  def tokens_per_pass(self, acceptance: float, num_tokens: int) -> float:
    """The mean number of tokens of a pass for a square image, if every row advances by the mean of a window."""
    rows = max(round(math.sqrt(num_tokens)), 1)
    columns, each = num_tokens // rows, expected_tokens(acceptance, self.drafts_per_round())
    return num_tokens / num_passes((rows, columns), self._of_columns(columns), each)

  def resolved(self, context: BuildContext) -> Self:
    """See `Method.resolved`; fills in ``width``."""
    return dataclasses.replace(self, width=self._of_columns(self._grid(context)[1]))

  def build(self, target: Network, draft: Network | None, context: BuildContext) -> Parts:
    """See `Method.build`; ``draft`` is not read."""
    sampling = of_ids(self, context)
    grid = self._grid(context)
    width = self._of_columns(grid[1])
    groups = num_groups(grid, width)
    fns, side = sampling.side(target)
    windows = None
    if self.row_window > grid[1]:
      raise ValueError(
        f"Must have row_window of at most the {grid[1]} columns of the image, we instead got {self.row_window}"
      )
    if drafts := self.drafts_per_round():
      windows = RowWindows(drafts, grid[1], groups, context.space.legal)
    decode = RowDecode(fns, context.warp(), grid, width, windows, _known_ends(context, grid), context.audit)
    if decode.moves_entries and fns.compact is None:
      raise ValueError(
        "Must have a network that can compact its cache for the row_window of method rows, we instead got none"
      )
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
