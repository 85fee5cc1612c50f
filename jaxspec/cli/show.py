"""The images of ``jaxspec generate --show``: rows of a grid that fits the terminal, with titles above and captions below."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxspec.cli import terminal_images
from jaxspec.cli.summary import printable
from jaxspec.cli.terminal import Screen
from jaxspec.render.image_sheet import Cell

_GAP = 2  # characters between panels
_NARROW = 32  # characters of a panel that stands beside others, where they fit
_WIDE = {"blocks": 64, "kitty": 32, "iterm2": 32, "sixel": 32}  # characters of a panel, at most
_LINES_BESIDE = 4  # of the window, for the title, the caption and the prompt of the shell
_FEWEST_LINES = 8  # of a panel in a low window


def show_images(console: Console, screen: Screen, cells: Sequence[Cell], *, captions: bool = True) -> None:
  """Prints all cells, as many of them in a row as fit.

  Args:
    console: of stdout.
    cells: with panels at their own size.
    captions: whether they are printed.
  """
  panels, first = max(len(cell.panels) for cell in cells), cells[0].panels[0]
  cell_w, cell_h = (1, 2) if screen.protocol == "blocks" else screen.cell  # a half block is taken for a square
  lines_of = lambda width: max(1, round(width * cell_w * first.height / (first.width * cell_h)))
  most = first.width if screen.protocol == "blocks" else _WIDE[screen.protocol]
  most = min(most, _WIDE[screen.protocol])
  if console.is_terminal:
    window = max(console.height - _LINES_BESIDE, _FEWEST_LINES)
    most = next((width for width in range(most, 1, -1) if lines_of(width) <= window), 1)
  columns, width = grid(console.width, len(cells), panels, most)
  lines = lines_of(width)
  console.print()
  for start in range(0, len(cells), columns):
    row = cells[start : start + columns]
    flat = [panel for cell in row for panel in cell.panels]
    titles = [title for cell in row for title in cell.titles]
    if titles:
      _print_texts(console, titles, width, style="dim")
    console.file.write(_drawn(screen, flat, width, lines))
    console.file.flush()
    if captions:
      _print_texts(console, [cell.caption for cell in row], panels * (width + _GAP) - _GAP)
    if start + columns < len(cells):
      console.print()


def grid(width: int, num: int, panels: int, most: int) -> tuple[int, int]:
  """How many cells stand in a row, and how wide a panel is.

  Args:
    width: of the terminal.
    num: cells.
    panels: of a cell.
    most: characters of a panel at most.
  Returns:
    At least one cell, in panels of at least one character; panels are narrower than `_NARROW` only if a row of one cell is.
  """
  least = min(_NARROW, most)
  columns = max(1, min(num, (width + _GAP) // (panels * (least + _GAP))))
  return columns, max(1, min(most, (width + _GAP) // (columns * panels) - _GAP))


def _drawn(screen: Screen, panels: Sequence[Image.Image], width: int, lines: int) -> str:
  """Panels side by side, each of so many characters; ends below them, at the left."""
  if screen.protocol == "blocks":
    drawn = [terminal_images.half_blocks(_resized(panel, width, 2 * lines), screen.colours) for panel in panels]
    return "".join((" " * _GAP).join(parts) + "\n" for parts in zip(*drawn))
  cell_w, cell_h = screen.cell
  columns, box = len(panels) * (width + _GAP) - _GAP, (width * cell_w, lines * cell_h)
  strip = Image.new("RGBA", (columns * cell_w, lines * cell_h))
  for number, panel in enumerate(panels):
    scale = min(box[0] / panel.width, box[1] / panel.height)
    panel = _resized(panel, *(max(1, round(side * scale)) for side in panel.size))
    left, top = ((whole - side) // 2 for whole, side in zip(box, panel.size))
    strip.paste(panel, (number * (width + _GAP) * cell_w + left, top))
  if screen.protocol == "sixel":
    drawn = terminal_images.sixel(strip)
  else:
    drawn = getattr(terminal_images, screen.protocol)(strip, columns, lines)
  # Where the cursor is after an image differs between terminals: make room, go back, draw, and go below by ourselves.
  return "\n" * lines + f"\x1b[{lines}A\x1b7{drawn}\x1b8\x1b[{lines}B\r"


def _resized(image: Image.Image, width: int, height: int) -> Image.Image:
  return image if image.size == (width, height) else image.resize((width, height), Image.Resampling.LANCZOS)


def _print_texts(console: Console, texts: Sequence[str], width: int, style: str = "") -> None:
  """Texts in the middle of columns of this width, broken where they are longer."""
  table = Table.grid(padding=(0, _GAP, 0, 0))
  for _ in texts:
    table.add_column(width=width, justify="center", overflow="fold")
  table.add_row(*(Text(printable(text), style=style) for text in texts))
  console.print(table)
