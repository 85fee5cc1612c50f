"""The images of ``jaxspec generate --show``, in half blocks: a character has one pixel above another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image
from rich.color import Color
from rich.console import Console, Group
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from jaxspec.cli.summary import printable
from jaxspec.render.image_sheet import Cell

_GAP = 2  # characters between panels
_NARROW, _WIDE = 32, 64  # characters of a panel: side by side if they fit; at most
_LINES_BESIDE = 4  # of the window, for the title, the caption and the prompt of the shell
_FEWEST_LINES = 8  # of a panel in a low window


def why_not(console: Console) -> str | None:
  """The reason why stdout's terminal cannot show images; None if it can."""
  if not console.is_terminal:
    return "stdout is not a terminal; FORCE_COLOR=1 writes them there"
  return "the terminal has no colours (TERM, NO_COLOR)" if console.no_color or console.color_system is None else None


def show_images(console: Console, cells: Sequence[Cell], *, captions: bool = True) -> None:
  """Prints all cells, side by side as they fit.

  Args:
    console: the console of stdout.
    cells: with panels at their own size.
    captions: whether to print captions.
  """
  panels, first = max(len(cell.panels) for cell in cells), cells[0].panels[0]
  window = max(console.height - _LINES_BESIDE, _FEWEST_LINES)
  columns, width = grid(console.width, len(cells), panels, min(first.width, _WIDE, 2 * window * first.width // first.height))
  lines = max(1, round(width * first.height / first.width / 2))
  for start in range(0, len(cells), columns):
    row = _row(columns, panels * (width + _GAP) - _GAP)
    row.add_row(*(_drawn(cell, width, lines, captions) for cell in cells[start : start + columns]))
    console.print()
    console.print(row)


def grid(width: int, num: int, panels: int, most: int) -> tuple[int, int]:
  """Number of cells in a row, and the width of a panel.

  Args:
    width: width of the terminal.
    num: number of cells.
    panels: panels per cell.
    most: largest width of a panel.
  Returns:
    At least one cell, in panels of at least one character; panels are narrower than `_NARROW` only if a row of one cell is.
  """
  least = min(_NARROW, most)
  columns = max(1, min(num, (width + _GAP) // (panels * (least + _GAP))))
  return columns, max(1, min(most, (width + _GAP) // (columns * panels) - _GAP))


def _row(columns: int, width: int) -> Table:
  row = Table.grid(padding=(0, _GAP, 0, 0))
  for _ in range(columns):
    row.add_column(width=width, justify="center", overflow="fold")
  return row


def _drawn(cell: Cell, width: int, lines: int, captions: bool) -> Group:
  """Panels side by side with a given width, between titles and caption."""
  panels = _row(len(cell.panels), width)
  if cell.titles:
    panels.add_row(*(Text(printable(title), style="dim") for title in cell.titles))
  panels.add_row(*(_HalfBlocks(panel.resize((width, 2 * lines), Image.Resampling.LANCZOS)) for panel in cell.panels))
  return Group(panels, *[Text(printable(cell.caption), justify="center", overflow="fold")] * captions)


class _HalfBlocks:
  """An image of an even height, for rich; equal neighbours share a style."""

  def __init__(self, image: Image.Image):
    self._pixels = np.asarray(image.convert("RGB")).tolist()

  def __rich_console__(self, console: Console, options: object) -> Iterator[Segment]:
    colour = lambda pixel: Color.from_rgb(*pixel)
    for upper, lower in zip(self._pixels[::2], self._pixels[1::2]):
      for (above, below), same in itertools.groupby(zip(upper, lower)):
        yield Segment("▀" * len(list(same)), Style(color=colour(above), bgcolor=colour(below)))
      yield Segment.line()
