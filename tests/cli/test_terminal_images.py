"""What terminals get is decoded here again, and has the pixels of the image."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image
from rich.color import Color, ColorSystem

from jaxspec.cli import terminal_images


def image(height: int, width: int, seed: int = 0) -> Image.Image:
  return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def decode_kitty(text: str) -> tuple[np.ndarray, dict[str, str]]:
  """Pixels, and the settings of the first command."""
  commands = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
  settings = [dict(item.split("=") for item in keys.split(",")) for keys, _ in commands]
  assert [one["m"] for one in settings] == ["1"] * (len(commands) - 1) + ["0"]
  assert all(len(piece) <= 4096 for _, piece in commands)
  return np.asarray(Image.open(io.BytesIO(base64.b64decode("".join(piece for _, piece in commands))))), settings[0]


def decode_sixel(text: str) -> tuple[np.ndarray, np.ndarray]:
  """Pixels ``[H, W, 3]`` in percent, and where any colour is."""
  body = re.fullmatch(r"\x1bP0;1q(.*)\x1b\\", text, re.S)[1]
  width, height = (int(side) for side in re.match(r'"1;1;(\d+);(\d+)', body).groups())
  pixels, drawn = np.zeros((height, width, 3), int), np.zeros((height, width), bool)
  palette, colour, x, top = {}, None, 0, 0
  tokens = re.findall(r'"[\d;]+|#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)(.)|([$-])|([?-~])', body)
  for name, red, green, blue, use, count, repeated, move, single in tokens:
    if name:
      palette[name] = int(red), int(green), int(blue)
    elif use:
      colour = palette[use]
    elif move:
      x, top = 0, top + 6 * (move == "-")
    elif repeated or single:
      bits = ord(repeated or single) - 63
      for _ in range(int(count or 1)):
        for line in range(6):
          if bits >> line & 1:
            assert not drawn[top + line, x]  # each pixel once
            pixels[top + line, x], drawn[top + line, x] = colour, True
        x += 1
  return pixels, drawn


@pytest.mark.parametrize("side", [4, 96])
def test_kitty(side):
  """A PNG of the same pixels; large ones in pieces."""
  picture = image(side, side)
  text = terminal_images.kitty(picture, 20, 10)
  pixels, settings = decode_kitty(text)
  np.testing.assert_array_equal(pixels, np.asarray(picture))
  assert settings | {"a": "T", "f": "100", "q": "2", "C": "1", "c": "20", "r": "10"} == settings
  assert (text.count("\x1b_G") > 1) == (side == 96)


def test_iterm2():
  picture = image(8, 6)
  text = terminal_images.iterm2(picture, 3, 2)
  keys, data = re.fullmatch(r"\x1b\]1337;File=([^:]*):(.*)\x07", text).groups()
  settings = dict(item.split("=") for item in keys.split(";"))
  data = base64.b64decode(data)
  np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(picture))
  assert settings == {"size": str(len(data)), "width": "3", "height": "2", "preserveAspectRatio": "1", "inline": "1"}


def test_sixel_of_few_colours_is_exact():
  """Colours to a percent, runs, several bands, an odd height, and holes."""
  colours = np.array([[0, 0, 0], [255, 255, 255], [200, 30, 60], [10, 120, 250]], np.uint8)
  codes = np.random.default_rng(0).integers(0, 4, (20, 23))
  codes[6:12, 10:] = 2
  alpha = np.full(codes.shape, 255, np.uint8)
  alpha[:, 10:12] = 0
  picture = Image.fromarray(np.dstack([colours[codes], alpha]), "RGBA")
  text = terminal_images.sixel(picture)
  pixels, drawn = decode_sixel(text)
  np.testing.assert_array_equal(drawn, alpha[:18] > 0)
  wanted = np.rint(colours[codes] * 100.0 / 255).astype(int)[:18]
  np.testing.assert_array_equal(pixels[drawn], wanted[drawn])
  assert "!11~" in text


def test_sixel_of_many_colours_is_near():
  """Of 2304 colours 256 are left."""
  ramp = np.linspace(0, 255, 48).astype(np.uint8)
  picture = Image.fromarray(np.dstack([*np.meshgrid(ramp, ramp), np.full((48, 48), 128, np.uint8)]))
  pixels, drawn = decode_sixel(terminal_images.sixel(picture))
  assert drawn.all() and len(np.unique(pixels.reshape(-1, 3), axis=0)) <= 256
  assert np.abs(pixels * 2.55 - np.asarray(picture)).mean() < 8


def test_half_blocks_have_the_colours_of_the_pixels():
  """An upper and a lower one in each character; equal neighbours share their codes."""
  picture = image(7, 5)
  picture.paste((1, 2, 3), (0, 0, 3, 2))
  lines = terminal_images.half_blocks(picture, ColorSystem.TRUECOLOR)
  assert len(lines) == 3 and lines[0].startswith("\x1b[38;2;1;2;3;48;2;1;2;3m▀▀▀\x1b[0m")
  found = []
  for line in lines:
    runs = re.findall(r"\x1b\[38;2;(\d+);(\d+);(\d+);48;2;(\d+);(\d+);(\d+)m(▀+)\x1b\[0m", line)
    cells = [list(map(int, numbers)) for *numbers, text in runs for _ in text]
    found += [[cell[:3] for cell in cells], [cell[3:] for cell in cells]]
  np.testing.assert_array_equal(found, np.asarray(picture)[:6])


def test_half_blocks_in_256_colours():
  picture = image(2, 4)
  (line,) = terminal_images.half_blocks(picture, ColorSystem.EIGHT_BIT)
  numbers = [tuple(map(int, pair)) for pair in re.findall(r"38;5;(\d+);48;5;(\d+)m", line)]
  near = lambda pixel: Color.from_rgb(*pixel).downgrade(ColorSystem.EIGHT_BIT).number
  upper, lower = np.asarray(picture).tolist()
  assert numbers == [(near(a), near(b)) for a, b in zip(upper, lower)]
