"""Maps of a decode: the origin of each token, and the number of tokens of its round."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from jaxspec.core.state import DecodeResult, Origin
from jaxspec.render.image_sheet import PANEL, Cell, Legend, Swatch, draw_grid, enlarge, rgb

# Okabe-Ito colours, distinguishable for colour-blind readers, and by lightness in print.
_ORIGIN_COLOURS = {
  Origin.LOCAL: ((204, 204, 204), "accepted locally"),
  Origin.DRAFT: ((0, 158, 115), "drafted and accepted"),
  Origin.REPLACED: ((213, 94, 0), "replaced after a rejection"),
  Origin.BONUS: ((240, 228, 66), "added by the target"),
  Origin.FIRST: ((0, 114, 178), "first token"),
}
_FEW, _MANY = np.array((232, 240, 250)), np.array((8, 48, 107))  # light to dark blue


def tokens_per_round(result: DecodeResult) -> np.ndarray:
  """Number of tokens committed in the round of each token, ``[B, N]`` int."""
  sizes = [np.bincount(rounds)[rounds] for rounds in result.commit_round]
  return np.stack(sizes)


def draw_heatmap(
  result: DecodeResult, images: np.ndarray, captions: list[str], *, columns: int, grid: tuple[int, int] | None = None
) -> Image.Image:
  """Every image beside its two maps, and the legends below.

  Args:
    result: result of the images, numpy leaves ``[images, N]``.
    images: ``[images, H, W, 3]`` uint8.
    grid: rows and columns of the tokens; None: a square.
  """
  sizes = tokens_per_round(result)
  largest = int(sizes.max())
  origin_colours = np.zeros((len(Origin), 3), np.uint8)
  for origin, (colour, _) in _ORIGIN_COLOURS.items():
    origin_colours[origin] = colour
  size_colours = np.stack([size_colour(n, largest) for n in range(largest + 1)])
  cells = []
  for pixels, origin, size, caption in zip(images, result.origin, sizes, captions):
    image = enlarge(pixels)
    maps = [token_map(colours, image.size, grid) for colours in (origin_colours[origin], size_colours[size])]
    cells.append(Cell([image, *maps], ["image", "origin of each token", "tokens in its round"], caption))
  present = [origin for origin in _ORIGIN_COLOURS if (result.origin == origin).any()]
  shown = sorted({1, largest} | {round(1 + (largest - 1) * i / 7) for i in range(8)})
  legends = [
    Legend("Origin", [Swatch(*_ORIGIN_COLOURS[origin]) for origin in present]),
    Legend("Tokens per round", [Swatch(rgb(size_colour(n, largest)), str(n)) for n in shown]),
  ]
  return draw_grid(cells, columns, legends)


def size_colour(size: int, largest: int) -> np.ndarray:
  """Colour of a round that committed ``size`` tokens, darker for larger sizes; ``[3]`` uint8."""
  part = (size - 1) / max(largest - 1, 1)
  return np.round(_FEW + (_MANY - _FEW) * max(part, 0.0)).astype(np.uint8)


def token_map(colours: np.ndarray, size: tuple[int, int], grid: tuple[int, int] | None = None) -> Image.Image:
  """Colours ``[N, 3]`` of a raster of tokens, a ``grid`` or nearly a square, as an image with thin lines between the tokens.

  Tokens without a raster (scales, denoising steps) are laid out line by line; the rest is white.
  """
  columns = math.ceil(len(colours) ** 0.5)
  rows, columns = grid or (math.ceil(len(colours) / columns), columns)
  colours = np.concatenate([colours, np.full((rows * columns - len(colours), 3), 255, np.uint8)])
  edge = max(size[0] // columns, 3)
  tiles = np.repeat(np.repeat(colours.reshape(rows, columns, 3), edge, axis=0), edge, axis=1)
  tiles[::edge], tiles[:, ::edge] = 255, 255
  image = Image.fromarray(tiles)
  return image if image.size == size or max(size) > PANEL else image.resize(size, Image.Resampling.NEAREST)
