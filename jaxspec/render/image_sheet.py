"""Draws images with their captions into one image."""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

PANEL = 192  # smaller images are enlarged to this side
_MARGIN, _GAP, _PANEL_GAP = 24, 24, 8
_CAPTION_SIZE, _TITLE_SIZE = 17, 13
_MAX_LINES = 6
_INK, _QUIET, _FRAME, _PAPER = (32, 33, 36), (105, 110, 118), (218, 220, 224), (255, 255, 255)
_LINE, _LEGEND_LINE, _SWATCH = 22, 26, 14


class Cell(NamedTuple):
  """Panels side by side with a caption below."""

  panels: list[Image.Image]
  titles: list[str]  # one per panel, or empty
  caption: str


class Swatch(NamedTuple):
  """One entry of a legend."""

  colour: tuple[int, int, int]
  label: str


def rgb(colour: np.ndarray) -> tuple[int, int, int]:
  """A colour ``[3]`` uint8 in the form of a `Swatch`."""
  red, green, blue = map(int, colour)
  return red, green, blue


class Legend(NamedTuple):
  """A titled row of swatches."""

  title: str
  swatches: list[Swatch]


@functools.cache
def font(size: int) -> ImageFont.FreeTypeFont:
  """Pillow's built-in font; the basic layout spaces words equally on every machine."""
  built_in = ImageFont.load_default(size)
  assert isinstance(built_in, ImageFont.FreeTypeFont)
  return built_in.font_variant(layout_engine=ImageFont.Layout.BASIC)


def enlarge(pixels: np.ndarray, side: int = PANEL) -> Image.Image:
  """An image ``[H, W, 3]`` uint8, smoothly enlarged if smaller than ``side``."""
  image = Image.fromarray(pixels)
  if max(image.size) >= side:
    return image
  scale = side / max(image.size)
  return image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)


def drawable(text: str) -> str:
  """The text in characters of the built-in font: without accents, others as question marks."""
  text = unicodedata.normalize("NFKD", " ".join(text.split()))
  text = "".join(c for c in text if not unicodedata.combining(c))
  return "".join(c if _has_glyph(c) else "?" for c in text)


@functools.cache
def _has_glyph(character: str) -> bool:
  if character == " ":
    return True

  def draw(c: str) -> tuple[tuple[int, int], bytes]:
    mask = font(_CAPTION_SIZE).getmask(c)
    return mask.size, bytes(mask)  # pyright: ignore[reportArgumentType]  # Pillow's stub does not say that it is a sequence

  return draw(character) != draw("\uffff")


def wrap(text: str, width: int, text_font: ImageFont.FreeTypeFont, max_lines: int = _MAX_LINES) -> list[str]:
  """Breaks a text into lines of at most ``width`` pixels; the rest becomes an ellipsis."""
  lines, line = [], ""
  for word in text.split():
    if len(lines) > max_lines:
      break  # the rest of a very long text never shows
    longer = f"{line} {word}".strip()
    if text_font.getlength(longer) <= width:
      line = longer
      continue
    if line:
      lines.append(line)
    while len(lines) <= max_lines and text_font.getlength(word) > width:  # a word wider than the column
      narrow = range(min(len(word) - 1, width), 0, -1)  # every character is at least a pixel wide
      cut = next(n for n in narrow if n == 1 or text_font.getlength(word[:n]) <= width)
      lines.append(word[:cut])
      word = word[cut:]
    line = word
  lines = lines + [line] if line else lines
  if len(lines) > max_lines:
    last = lines[max_lines - 1]
    while last and text_font.getlength(last + "…") > width:
      last = last[:-1]
    lines = [*lines[: max_lines - 1], last.rstrip() + "…"]
  return lines


def columns_for(num_cells: int, samples: int = 1, panels: int = 1) -> int:
  """Number of columns of a balanced grid; the samples of a prompt stay in one row if they fit."""
  most = max(1, 8 // panels)
  if 1 < samples <= most:
    return samples * max(1, min(most // samples, round((1.5 * num_cells / panels) ** 0.5 / samples)))
  columns = max(1, min(num_cells, most if num_cells <= 4 else max(1, round((1.5 * num_cells / panels) ** 0.5))))
  rows = -(-num_cells // columns)
  return -(-num_cells // rows)


def draw_grid(cells: list[Cell], columns: int, legends: Sequence[Legend] = ()) -> Image.Image:
  """All cells, row by row, with the legends below."""
  panel_w = max(panel.width for cell in cells for panel in cell.panels)
  panel_h = max(panel.height for cell in cells for panel in cell.panels)
  num_panels = max(len(cell.panels) for cell in cells)
  cell_w = num_panels * panel_w + (num_panels - 1) * _PANEL_GAP
  title_h = _TITLE_SIZE + 8 if any(cell.titles for cell in cells) else 0
  captions = [wrap(drawable(cell.caption), cell_w, font(_CAPTION_SIZE)) for cell in cells]
  rows = [range(start, min(start + columns, len(cells))) for start in range(0, len(cells), columns)]
  row_h = [title_h + panel_h + 10 + _LINE * max(len(captions[i]) for i in row) for row in rows]
  grid_w = columns * cell_w + (columns - 1) * _GAP
  legend_lines = [line for legend in legends for line in _legend_lines(legend, grid_w)]
  legend_h = _GAP - 12 + _LEGEND_LINE * len(legend_lines) if legend_lines else 0
  height = 2 * _MARGIN + sum(row_h) + _GAP * (len(rows) - 1) + legend_h
  sheet = Image.new("RGB", (2 * _MARGIN + grid_w, height), _PAPER)
  draw = ImageDraw.Draw(sheet)

  top = _MARGIN
  for row, used_h in zip(rows, row_h):
    for column, index in enumerate(row):
      left = _MARGIN + column * (cell_w + _GAP)
      _draw_cell(sheet, draw, cells[index], captions[index], left, top, panel_w, panel_h, title_h, cell_w)
    top += used_h + _GAP
  for line in legend_lines:
    _draw_legend_line(draw, line, _MARGIN, top)
    top += _LEGEND_LINE
  return sheet


def _draw_cell(sheet, draw, cell, caption, left, top, panel_w, panel_h, title_h, cell_w) -> None:
  for i, panel in enumerate(cell.panels):
    x, y = left + i * (panel_w + _PANEL_GAP), top + title_h
    if cell.titles:
      middle = x + panel_w / 2
      draw.text((middle, top), drawable(cell.titles[i]), font=font(_TITLE_SIZE), fill=_QUIET, anchor="ma")
    sheet.paste(panel, (x + (panel_w - panel.width) // 2, y + (panel_h - panel.height) // 2))
    draw.rectangle((x - 1, y - 1, x + panel_w, y + panel_h), outline=_FRAME)
  for number, line in enumerate(caption):
    y = top + title_h + panel_h + 10 + number * _LINE
    draw.text((left + cell_w / 2, y), line, font=font(_CAPTION_SIZE), fill=_INK, anchor="ma")


def _legend_lines(legend: Legend, width: int) -> list[list[tuple[int, Swatch | str]]]:
  """Positions a title and swatches from left to right, with line breaks: ``[(x, entry)]`` each."""
  text_font = font(_TITLE_SIZE)
  indent = round(text_font.getlength(legend.title)) + 16
  lines: list[list[tuple[int, Swatch | str]]] = [[(0, legend.title)]]
  x = indent
  for swatch in legend.swatches:
    needed = 20 + round(text_font.getlength(swatch.label)) + 16
    if x + needed - 16 > width and lines[-1]:
      lines.append([])
      x = indent
    lines[-1].append((x, swatch))
    x += needed
  return lines


def _draw_legend_line(draw: ImageDraw.ImageDraw, line: list[tuple[int, Swatch | str]], left: int, top: int) -> None:
  for x, entry in line:
    if isinstance(entry, str):
      draw.text((left + x, top + 8), entry, font=font(_TITLE_SIZE), fill=_QUIET, anchor="lm")
      continue
    draw.rectangle((left + x, top + 1, left + x + _SWATCH - 1, top + _SWATCH), fill=entry.colour, outline=_FRAME)
    draw.text((left + x + 20, top + 8), entry.label, font=font(_TITLE_SIZE), fill=_INK, anchor="lm")


def raw_grid(images: list[list[np.ndarray]], columns: int) -> Image.Image:
  """Cells of images at original size, without margins and text."""
  height, width = images[0][0].shape[:2]
  panels = len(images[0])
  rows = -(-len(images) // columns)
  sheet = Image.new("RGB", (columns * panels * width, rows * height), _PAPER)
  for index, cell in enumerate(images):
    for i, pixels in enumerate(cell):
      position = ((index % columns) * panels + i) * width, index // columns * height
      sheet.paste(Image.fromarray(pixels), position)
  return sheet


def save_png(sheet: Image.Image, path: Path | BinaryIO, settings: dict[str, Any]) -> None:
  """Writes a PNG to a path or an open file, with its settings as JSON in the text field ``jaxspec``."""
  info = PngInfo()
  info.add_itxt("jaxspec", json.dumps(settings, ensure_ascii=False))
  sheet.save(path, "PNG", pnginfo=info, optimize=True)
