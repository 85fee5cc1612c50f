"""Painting: exact compositing, sizes and positions."""

import numpy as np
import pytest

from experiments.data.paint import BACKGROUND_NAMES, BACKGROUNDS, Painting, composite, draw, place, random_paintings


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


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_empty_and_opaque_images(background):
  colour = np.array(BACKGROUNDS[background], np.uint8)
  assert (composite(np.zeros((64, 64, 4), np.uint8), background) == colour).all()
  opaque = np.random.default_rng(0).integers(0, 256, (64, 64, 4), np.uint8)
  opaque[..., 3] = 255
  np.testing.assert_array_equal(composite(opaque, background), opaque[..., :3])


def test_composite_rounds_to_nearest():
  rgba = np.random.default_rng(1).integers(0, 256, (64, 64, 4), np.uint8)
  alpha = rgba[..., 3:] / 255
  exact = rgba[..., :3] * alpha + np.array(BACKGROUNDS["pink"]) * (1 - alpha)
  assert np.abs(composite(rgba, "pink") - exact).max() <= 0.5 + 1e-9


def test_composite_of_a_batch():
  rgba = np.random.default_rng(2).integers(0, 256, (3, 64, 64, 4), np.uint8)
  names = ("white", "black", "blue")
  batch = composite(rgba, np.array([BACKGROUNDS[name] for name in names]))
  for row, name in enumerate(names):
    np.testing.assert_array_equal(batch[row], composite(rgba[row], name))
  assert composite(rgba[:0], batch[:0, 0, 0]).shape == (0, *batch.shape[1:])


def test_shrinking_does_not_read_invisible_pixels():
  rgba = _disc()
  rgba[rgba[..., 3] == 0] = (255, 0, 255, 0)  # would bleed without premultiplication
  small = place(rgba, "small")
  visible = small[small[..., 3] > 8].astype(int)
  assert np.abs(visible[:, :3] - (20, 90, 60)).max() < 20
  assert not small[:12].any() and not small[:, :12].any()


def test_normal_scale_is_the_identity():
  rgba = _disc()
  assert place(rgba) is rgba


def test_draw_is_place_and_composite():
  rgba = np.stack([_disc(), _disc(20), _disc(10)])
  painting = Painting(np.array([0, 1, 4]), np.array([False, True, True]), np.array([[0, 0], [3, -5], [0, 0]]))
  images = draw(rgba, painting)
  assert images.shape == (3, 64, 64, 3) and images.dtype == np.uint8
  for row, (background, offset) in enumerate(zip(painting.background, painting.offset)):
    placed = place(rgba[row], "small" if painting.small[row] else "normal", tuple(offset))
    np.testing.assert_array_equal(images[row], composite(placed, BACKGROUND_NAMES[background]))
  plain = draw(rgba, Painting.plain(3))
  np.testing.assert_array_equal(plain, composite(rgba, "white"))


def test_random_paintings_have_their_rates():
  found = random_paintings(np.random.default_rng(0), 4000, white_fraction=0.5, small_fraction=0.25, max_offset=6)
  counts = np.bincount(found.background, minlength=len(BACKGROUND_NAMES))
  assert abs(counts[BACKGROUND_NAMES.index("white")] / 4000 - 0.5) < 0.04
  assert (counts > 120).all() and abs(found.small.mean() - 0.25) < 0.04
  assert not found.offset[~found.small].any() and np.abs(found.offset).max() == 6


@pytest.mark.parametrize(
  "call, message",
  [
    (lambda: composite(_disc(), "cyan"), "background must be one of .* we instead got 'cyan'"),
    (lambda: composite(_disc(), (0, 0, 300)), "background must be a name or RGB"),
    (lambda: place(_disc(), "huge"), "scale must be one of .* we instead got 'huge'"),
    (lambda: place(_disc(), 1.5), r"scale must be in \(0, 1\]"),
    (lambda: place(_disc(), "small", (14, 0)), "offset must keep the 38x38 image"),
    (lambda: place(_disc(), "normal", (0, 1)), "offset must keep"),
    (lambda: place(_disc()[..., :3]), r"rgba must be \[H, W, 4\] uint8, we instead got \(64, 64, 3\)"),
  ],
)
def test_bad_arguments_are_errors(call, message):
  with pytest.raises(ValueError, match=message):
    call()
