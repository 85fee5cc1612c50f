"""Grids, captions and maps."""

import types

import numpy as np
import pytest
from PIL import Image

from jaxspec.core.state import DecodeResult, Origin
from jaxspec.render import heatmap, image_sheet


def test_wrap_keeps_every_word():
  text = "a very long prompt about a sleeping orange cat on a blue background"
  font = image_sheet.font(17)
  lines = image_sheet.wrap(text, 150, font)
  assert " ".join(lines) == text
  assert all(font.getlength(line) <= 150 for line in lines)


def test_wrap_breaks_long_words_and_ends_in_an_ellipsis():
  font = image_sheet.font(17)
  lines = image_sheet.wrap("x" * 400, 100, font, max_lines=3)
  assert len(lines) == 3 and lines[-1].endswith("…")
  assert all(font.getlength(line) <= 100 for line in lines)
  assert image_sheet.wrap("", 100, font) == []


@pytest.mark.slow
@pytest.mark.parametrize("text", ["x" * 100_000, "wide words " * 10_000, "x" * 50 + " and " + "y" * 100_000])
def test_wrap_takes_no_longer_for_a_text_that_does_not_fit(text):
  font, measured = image_sheet.font(17), []
  counting = types.SimpleNamespace(getlength=lambda part: measured.append(part) or font.getlength(part))
  lines = image_sheet.wrap(text, 100, counting, max_lines=3)
  assert len(lines) == 3 and lines[-1].endswith("…")
  assert len(measured) < 500


def test_drawable():
  assert image_sheet.drawable("Schrödinger's\n 猫, café") == "Schrodinger's ?, cafe"


@pytest.mark.parametrize("num", [*range(1, 30), 100, 1000])
@pytest.mark.parametrize("panels", [1, 2, 3])
def test_columns(num, panels):
  columns = image_sheet.columns_for(num, panels=panels)
  assert 1 <= columns <= num
  rows = -(-num // columns)
  assert rows * columns - num < columns  # no empty row


def test_grid_has_a_position_for_every_image():
  colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
  cells = [image_sheet.Cell([image_sheet.enlarge(np.full((8, 8, 3), c, np.uint8))], [], f"image {c}") for c in colours]
  sheet = np.asarray(image_sheet.draw_grid(cells, 2))
  for colour in colours:
    assert np.all(sheet == np.array(colour)[None, None], axis=-1).sum() == 192 * 192


def test_large_images_keep_their_size():
  pixels = np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
  np.testing.assert_array_equal(np.asarray(image_sheet.enlarge(pixels)), pixels)


def test_raw_grid_is_exact():
  cells = np.random.default_rng(0).integers(0, 256, (3, 2, 4, 4, 3), np.uint8)
  sheet = np.asarray(image_sheet.raw_grid([tuple(cell) for cell in cells], 2))
  assert sheet.shape == (8, 16, 3)
  np.testing.assert_array_equal(sheet[:4, 12:], cells[1, 1])
  np.testing.assert_array_equal(sheet[4:, :4], cells[2, 0])


def test_heatmap():
  origin = np.array([[1, 2, 2, 4]])
  rounds = np.array([[0, 1, 1, 1]])
  result = DecodeResult(None, None, None, origin == Origin.DRAFT, origin, rounds)
  np.testing.assert_array_equal(heatmap.tokens_per_round(result), [[1, 3, 3, 3]])
  sheet = heatmap.draw_heatmap(result, np.zeros((1, 16, 16, 3), np.uint8), ["a"], columns=1)
  assert isinstance(sheet, Image.Image)
  pixels = np.asarray(sheet).reshape(-1, 3)
  count = lambda colour: np.all(pixels == np.array(colour), axis=1).sum()
  assert count((0, 158, 115)) > 2 * 80 * 80  # two accepted tokens
  assert count((213, 94, 0)) == 0  # nothing replaced: neither on the map nor in the legend


@pytest.mark.parametrize("num, lines", [(9, 3), (10, 3), (250, 16)])
def test_tokens_that_are_no_raster_are_laid_out_in_lines(num, lines):
  side = 2 * image_sheet.PANEL  # nothing of this size is resized
  drawn = np.asarray(heatmap.token_map(np.full((num, 3), 7, np.uint8), (side, side)))
  edge = side // int(np.ceil(num**0.5))
  tiles = drawn[1::edge, 1::edge, 0]
  assert len(tiles) == lines and tiles.size >= num
  np.testing.assert_array_equal(tiles.reshape(-1), [7] * num + [255] * (tiles.size - num))
