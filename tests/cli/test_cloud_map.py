"""Maps of a CIAR decode: the origin of each token, and the uncertainty of the edge."""

import numpy as np

from jaxspec.core.state import DecodeResult, Origin
from jaxspec.drafters.ciar_drafter import GatedReport
from jaxspec.render.cloud_map import draw_cloud_map, uncertainty_levels

EDGE, VERIFIED, CLOUD = (204, 204, 204), (0, 158, 115), (213, 94, 0)


def test_levels_hold_equal_numbers_of_positions():
  scores = np.exp(np.random.default_rng(0).normal(size=(3, 100)) * 4).astype(np.float32)
  scores[:, :10] = np.nan
  levels, bounds = uncertainty_levels(scores)
  assert (levels[:, :10] == 0).all() and levels.max() == len(bounds) == 6
  assert np.ptp(np.bincount(levels.ravel())[1:]) <= 1
  for level, bound in enumerate(bounds, 1):
    assert scores[levels == level].max() <= bound
  empty, none = uncertainty_levels(np.full((2, 4), np.nan))
  assert not empty.any() and none == []
  assert uncertainty_levels(np.full((1, 4), 0.5))[0].tolist() == [[1] * 4]


def test_three_colours_beside_the_image():
  """Rows of local, verified and cloud tokens have their colours in the map."""
  origin = np.repeat([Origin.LOCAL, Origin.DRAFT, Origin.REPLACED, Origin.BONUS], 4)[None].astype(np.int8)
  scores = np.linspace(0.1, 1, 16, dtype=np.float32)[None]
  result = DecodeResult(origin * 0, None, None, None, origin, origin * 0, report=GatedReport(scores, None, ()))
  image = np.full((1, 16, 16, 3), 7, np.uint8)
  sheet = np.asarray(draw_cloud_map(result, image, ["a caption"], columns=1))
  at = {colour: np.argwhere((sheet == colour).all(-1)) for colour in (EDGE, VERIFIED, CLOUD)}
  size = {colour: len(where) for colour, where in at.items()}
  assert 1.8 < size[CLOUD] / size[EDGE] < 2.2 and size[VERIFIED] > 1000
  # In the map itself, without the legend below it: edge above verified above cloud, right of the image.
  top = {colour: where[:, 0].min() for colour, where in at.items()}
  assert top[EDGE] < top[VERIFIED] < top[CLOUD]
  inside = np.argwhere((sheet == 7).all(-1))
  left = min(where[:, 1][where[:, 0] < inside[:, 0].max()].min() for where in at.values())
  assert left > inside[:, 1].max()
