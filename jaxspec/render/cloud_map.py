"""Maps of a CIAR decode: the origin of each token, and the uncertainty of the edge."""

from __future__ import annotations

import numpy as np
from PIL import Image

from jaxspec.core.state import DecodeResult, Origin
from jaxspec.render.heatmap import size_colour, token_map
from jaxspec.render.image_sheet import Cell, Legend, Swatch, draw_grid, enlarge, rgb

_DECIDERS = (
  ((Origin.LOCAL,), (204, 204, 204), "accepted on the edge"),
  ((Origin.DRAFT,), (0, 158, 115), "accepted by the cloud"),
  ((Origin.REPLACED, Origin.BONUS, Origin.FIRST), (213, 94, 0), "drawn by the cloud"),
)
_LEVELS, _UNKNOWN = 6, 252


def draw_cloud_map(
  result: DecodeResult, images: np.ndarray, captions: list[str], *, columns: int, grid: tuple[int, int] | None = None
) -> Image.Image:
  """Every image beside the maps of origins and of the edge's uncertainty; legends below.

  Args:
    result: result of the images, numpy leaves ``[images, N]``; its report is a `jaxspec.drafters.ciar_drafter.GatedReport`.
    images: ``[images, H, W, 3]`` uint8.
    grid: rows and columns of the tokens; None: a square.
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
    image = enlarge(pixels)
    maps = [token_map(colours, image.size, grid) for colours in (decider[origin], level_colours[level])]
    cells.append(Cell([image, *maps], ["image", "who decided", "uncertainty on the edge"], caption))
  swatches = [Swatch(rgb(level_colours[n]), f"<= {bound:.2g}") for n, bound in enumerate(bounds, 1)]
  legends = [
    Legend("Token", [Swatch(colour, words) for _, colour, words in _DECIDERS]),
    Legend("Uncertainty", [*swatches, Swatch((_UNKNOWN, _UNKNOWN, _UNKNOWN), "not scored")]),
  ]
  return draw_grid(cells, columns, legends)


def uncertainty_levels(scores: np.ndarray) -> tuple[np.ndarray, list[float]]:
  """Scores ``[images, N]`` as levels 1 to `_LEVELS` with equal numbers of positions (0 for NaN), and their upper bounds."""
  known = scores[~np.isnan(scores)]
  if not known.size:
    return np.zeros(scores.shape, int), []
  bounds = np.unique(np.quantile(known, np.arange(1, _LEVELS + 1) / _LEVELS))
  levels = 1 + np.searchsorted(bounds, np.nan_to_num(scores, nan=bounds[-1]))
  return np.where(np.isnan(scores), 0, np.minimum(levels, len(bounds))), bounds.tolist()
