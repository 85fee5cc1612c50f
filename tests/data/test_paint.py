"""Painting: exact compositing, and attributes that can be read back."""

import itertools

import numpy as np
import pytest

from jaxspec.data import (
  BACKGROUNDS,
  SCALES,
  background_colour,
  composite,
  measure_background,
  measure_scale,
  paint,
  place,
)


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
  np.testing.assert_array_equal(paint(opaque, background), opaque[..., :3])


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


@pytest.mark.parametrize("background, scale", list(itertools.product(BACKGROUNDS, SCALES)))
def test_round_trip_of_a_plain_drawing(background, scale):
  image = paint(_disc(), background, scale)
  assert image.shape == (64, 64, 3) and image.dtype == np.uint8
  assert measure_background(image) == background
  assert measure_scale(image) == scale
  noisy = np.clip(image + np.random.default_rng(0).normal(0, 8, image.shape), 0, 255).astype(np.uint8)
  assert measure_background(noisy) == background
  assert measure_scale(noisy) == scale


@pytest.mark.parametrize("offset", [(-13, -13), (13, 13), (5, -9)])
def test_round_trip_with_offset(offset):
  image = paint(_disc(), "blue", "small", offset)
  assert measure_background(image) == "blue" and measure_scale(image) == "small"
  centred = paint(_disc(), "blue", "small")
  np.testing.assert_array_equal(np.roll(centred, offset, (0, 1)), image)


def test_round_trip_of_the_set(emoji_set):
  """Few drawings fill the corners, have the colour of their background or are tiny by themselves."""
  right = {(attribute, scale): [] for attribute in ("background", "scale") for scale in SCALES}
  for number, image in enumerate(range(0, len(emoji_set), 16)):
    background = list(BACKGROUNDS)[number % len(BACKGROUNDS)]
    for scale in SCALES:
      painted = paint(emoji_set.rgba[image], background, scale)
      right["background", scale].append(measure_background(painted) == background)
      right["scale", scale].append(measure_scale(painted) == scale)
  assert all(right["background", "small"])
  assert np.mean(right["background", "normal"]) > 0.99
  assert np.mean(right["scale", "normal"]) > 0.98
  assert np.mean(right["scale", "small"]) > 0.98


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


@pytest.mark.parametrize(
  "call, message",
  [
    (lambda: paint(_disc(), "cyan"), "background must be one of .* we instead got 'cyan'"),
    (lambda: paint(_disc(), (0, 0, 300)), "background must be a name or RGB"),
    (lambda: paint(_disc(), "red", "huge"), "scale must be one of .* we instead got 'huge'"),
    (lambda: paint(_disc(), "red", 1.5), r"scale must be in \(0, 1\]"),
    (lambda: paint(_disc(), "red", "small", (14, 0)), "offset must keep the 38x38 image"),
    (lambda: paint(_disc(), "red", "normal", (0, 1)), "offset must keep"),
    (lambda: paint(_disc()[..., :3], "red"), r"rgba must be \[H, W, 4\] uint8, we instead got \(64, 64, 3\)"),
    (lambda: background_colour("teal"), "background must be one of"),
  ],
)
def test_bad_arguments_are_errors(call, message):
  with pytest.raises(ValueError, match=message):
    call()
