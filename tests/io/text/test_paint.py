"""Painting: exact compositing, sizes and positions."""

import numpy as np
import pytest

from experiments.data.paint import BACKGROUND_NAMES, BACKGROUNDS, Painting, composite, draw, random_paintings, shrink

COLOURS = np.array(list(BACKGROUNDS.values()), np.uint8)


def _disc(radius: int = 30, colour=(20, 90, 60)) -> np.ndarray:
  """A plain drawing whose colour differs from every background."""
  rows, columns = np.mgrid[:64, :64] - 31.5
  rgba = np.zeros((64, 64, 4), np.uint8)
  rgba[rows**2 + columns**2 < radius**2] = (*colour, 255)
  return rgba


def test_palette_colours_are_far_apart():
  colours = np.array(list(BACKGROUNDS.values()), float)
  distance = np.sqrt(((colours[:, None] - colours[None]) ** 2).sum(-1))
  assert distance[~np.eye(len(colours), dtype=bool)].min() > 65


def test_empty_and_opaque_images():
  num = len(COLOURS)
  assert (composite(np.zeros((num, 64, 64, 4), np.uint8), COLOURS) == COLOURS[:, None, None]).all()
  opaque = np.random.default_rng(0).integers(0, 256, (num, 64, 64, 4), np.uint8)
  opaque[..., 3] = 255
  np.testing.assert_array_equal(composite(opaque, COLOURS), opaque[..., :3])
  assert composite(opaque[:0], COLOURS[:0]).shape == (0, 64, 64, 3)


def test_composite_rounds_to_nearest():
  rgba = np.random.default_rng(1).integers(0, 256, (3, 64, 64, 4), np.uint8)
  alpha = rgba[..., 3:] / 255
  exact = rgba[..., :3] * alpha + COLOURS[:3, None, None] * (1 - alpha)
  assert np.abs(composite(rgba, COLOURS[:3]) - exact).max() <= 0.5 + 1e-9


def test_shrinking_does_not_read_invisible_pixels():
  rgba = _disc()
  rgba[rgba[..., 3] == 0] = (255, 0, 255, 0)  # would bleed without premultiplication
  small = shrink(rgba)
  visible = small[small[..., 3] > 8].astype(int)
  assert np.abs(visible[:, :3] - (20, 90, 60)).max() < 20
  assert not small[:12].any() and not small[:, :12].any()


@pytest.mark.parametrize("offset", [(-13, -13), (13, 13), (5, -9)])
def test_an_offset_moves_the_small_image(offset):
  np.testing.assert_array_equal(np.roll(shrink(_disc()), offset, (0, 1)), shrink(_disc(), offset))


def test_an_offset_keeps_the_image_on_its_canvas():
  with pytest.raises(ValueError, match="offset must keep the 38x38 image"):
    shrink(_disc(), (14, 0))


def test_draw_is_shrink_and_composite():
  rgba = np.stack([_disc(), _disc(20), _disc(10)])
  painting = Painting(np.array([0, 1, 4]), np.array([False, True, True]), np.array([[0, 0], [3, -5], [0, 0]]))
  placed = np.stack([rgba[0], shrink(rgba[1], (3, -5)), shrink(rgba[2])])
  np.testing.assert_array_equal(draw(rgba, painting), composite(placed, COLOURS[[0, 1, 4]]))
  np.testing.assert_array_equal(draw(rgba, Painting.plain(3)), composite(rgba, COLOURS[[0, 0, 0]]))


def test_random_paintings_have_their_rates():
  found = random_paintings(np.random.default_rng(0), 4000)
  counts = np.bincount(found.background, minlength=len(BACKGROUND_NAMES))
  assert abs(counts[BACKGROUND_NAMES.index("white")] / 4000 - 0.5) < 0.04
  assert (counts > 120).all() and abs(found.small.mean() - 0.25) < 0.04
  assert not found.offset[~found.small].any() and np.abs(found.offset).max() == 6
