"""Maps of a decode: where each token came from, how many tokens its round committed, how uncertain a device was of it."""

from __future__ import annotations

import numpy as np
from PIL import Image

from jaxspec.cli.pictures import PANEL, Cell, Legend, Swatch, draw_grid, enlarge
from jaxspec.decode.state import DecodeResult, Origin

# Okabe-Ito colours: told apart by colour-blind readers, and by lightness in print.
_ORIGIN_COLOURS = {
  Origin.SETTLED: ((204, 204, 204), "decided by the device"),
  Origin.DRAFT: ((0, 158, 115), "drafted and accepted"),
  Origin.REPLACED: ((213, 94, 0), "replaced after a rejection"),
  Origin.BONUS: ((240, 228, 66), "added by the target"),
  Origin.FIRST: ((0, 114, 178), "first token"),
}
# Of a gated device: who had the last word on a token.
_DECIDERS = (
  ((Origin.SETTLED,), (204, 204, 204), "decided by the device"),
  ((Origin.DRAFT,), (0, 158, 115), "verified by the cloud"),
  ((Origin.REPLACED, Origin.BONUS, Origin.FIRST), (213, 94, 0), "replaced or added by the cloud"),
)
_LEVELS, _UNKNOWN = 6, 252
_FEW, _MANY = np.array((232, 240, 250)), np.array((8, 48, 107))  # light to dark blue


def tokens_per_round(result: DecodeResult) -> np.ndarray:
  """How many tokens the round of each token committed, ``[B, N]`` int."""
  sizes = [np.bincount(rounds)[rounds] for rounds in result.commit_round]
  return np.stack(sizes)


def draw_heatmap(result: DecodeResult, images: np.ndarray, captions: list[str], *, columns: int) -> Image.Image:
  """Every picture beside its two maps, and the legends below.

  Args:
    result: of the pictures, numpy leaves ``[pictures, N]``.
    images: ``[pictures, H, W, 3]`` uint8.
  """
  sizes = tokens_per_round(result)
  largest = int(sizes.max())
  origin_colours = np.zeros((len(Origin), 3), np.uint8)
  for origin, (colour, _) in _ORIGIN_COLOURS.items():
    origin_colours[origin] = colour
  size_colours = np.stack([size_colour(n, largest) for n in range(largest + 1)])
  cells = []
  for pixels, origin, size, caption in zip(images, result.origin, sizes, captions):
    picture = enlarge(pixels)
    maps = [_map(origin_colours[origin], picture.size), _map(size_colours[size], picture.size)]
    cells.append(Cell([picture, *maps], ["picture", "origin of each token", "tokens in its round"], caption))
  present = [origin for origin in _ORIGIN_COLOURS if (result.origin == origin).any()]
  shown = sorted({1, largest} | {round(1 + (largest - 1) * i / 7) for i in range(8)})
  legends = [
    Legend("Origin", [Swatch(*_ORIGIN_COLOURS[origin]) for origin in present]),
    Legend("Tokens per round", [Swatch(tuple(map(int, size_colour(n, largest))), str(n)) for n in shown]),
  ]
  return draw_grid(cells, columns, legends)


def draw_gated_map(result: DecodeResult, images: np.ndarray, captions: list[str], *, columns: int) -> Image.Image:
  """Every picture of a gated device beside the map of who decided and that of the device's uncertainty; legends below.

  Args:
    result: of the pictures, numpy leaves ``[pictures, N]``; its report is a `jaxspec.GatedReport`.
    images: ``[pictures, H, W, 3]`` uint8.
  """
  decider = np.full(len(Origin), _UNKNOWN, np.uint8)[:, None] * np.ones(3, np.uint8)
  for origins, colour, _ in _DECIDERS:
    for origin in origins:
      decider[origin] = colour
  levels, bounds = uncertainty_levels(result.report.scores)
  shades = [size_colour(n, len(bounds)) for n in range(1, len(bounds) + 1)]
  level_colours = np.stack([np.full(3, _UNKNOWN, np.uint8), *shades])
  cells = []
  for pixels, origin, level, caption in zip(images, result.origin, levels, captions):
    picture = enlarge(pixels)
    maps = [_map(decider[origin], picture.size), _map(level_colours[level], picture.size)]
    cells.append(Cell([picture, *maps], ["picture", "who decided", "uncertainty of the device"], caption))
  swatches = [Swatch(tuple(map(int, level_colours[n])), f"<= {bound:.2g}") for n, bound in enumerate(bounds, 1)]
  legends = [
    Legend("Token", [Swatch(colour, words) for _, colour, words in _DECIDERS]),
    Legend("Uncertainty", [*swatches, Swatch((_UNKNOWN,) * 3, "not scored")]),
  ]
  return draw_grid(cells, columns, legends)


def uncertainty_levels(scores: np.ndarray) -> tuple[np.ndarray, list[float]]:
  """Scores ``[pictures, N]`` as levels 1 to `_LEVELS` of equal numbers of places (0 where NaN), and their upper bounds."""
  known = scores[~np.isnan(scores)]
  if not known.size:
    return np.zeros(scores.shape, int), []
  bounds = np.unique(np.quantile(known, np.arange(1, _LEVELS + 1) / _LEVELS))
  levels = 1 + np.searchsorted(bounds, np.nan_to_num(scores, nan=bounds[-1]))
  return np.where(np.isnan(scores), 0, np.minimum(levels, len(bounds))), bounds.tolist()


def size_colour(size: int, largest: int) -> np.ndarray:
  """Colour of a round that committed ``size`` tokens, the darker the more; ``[3]`` uint8."""
  part = (size - 1) / max(largest - 1, 1)
  return np.round(_FEW + (_MANY - _FEW) * max(part, 0.0)).astype(np.uint8)


def _map(colours: np.ndarray, size: tuple[int, int]) -> Image.Image:
  """Colours ``[N, 3]`` of a raster of tokens as a picture with thin lines between the tokens."""
  side = round(len(colours) ** 0.5)
  edge = max(size[0] // side, 3)
  tiles = np.repeat(np.repeat(colours.reshape(side, side, 3), edge, axis=0), edge, axis=1)
  tiles[::edge], tiles[:, ::edge] = 255, 255
  picture = Image.fromarray(tiles)
  return picture if picture.size == size or max(size) > PANEL else picture.resize(size, Image.Resampling.NEAREST)
