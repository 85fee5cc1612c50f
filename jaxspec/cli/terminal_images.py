"""Images as text that a terminal draws: three protocols of pixels, and half blocks that every terminal with colours has.

1. kitty: a PNG in base64, in pieces (https://sw.kovidgoyal.net/kitty/graphics-protocol).
2. iTerm2: a PNG in base64 (https://iterm2.com/documentation-images.html).
3. Sixel: bands of six lines, colour after colour (VT330/VT340 Programmer Reference Manual, volume 2, chapter 14).
4. Half blocks: an upper half in the colour of one pixel, over the colour of the one below.

They are written here because no package fits. `textual-image` asks the terminal while it is imported, and waits a tenth of a
second: over a slow connection it misses the answer, which is then printed. `term-image` excludes the Pillow that we need.
"""

from __future__ import annotations

import base64
import io
import itertools

import numpy as np
from PIL import Image
from rich.color import Color, ColorSystem
from rich.style import Style

_PIECE = 4096  # characters of one command of kitty, at most
_BAND = 6  # lines of a sixel
_COLOURS = 256


def kitty(image: Image.Image, columns: int, rows: int) -> str:
  """The image over so many characters; the cursor stays, and the terminal answers nothing."""
  data = base64.b64encode(_png(image)).decode()
  pieces = [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
  heads = [f"a=T,f=100,q=2,C=1,c={columns},r={rows},"] + [""] * (len(pieces) - 1)
  more = [1] * (len(pieces) - 1) + [0]
  return "".join(f"\x1b_G{head}m={last};{piece}\x1b\\" for head, last, piece in zip(heads, more, pieces))


def iterm2(image: Image.Image, columns: int, rows: int) -> str:
  """The image over so many characters."""
  data = _png(image)
  about = f"size={len(data)};width={columns};height={rows};preserveAspectRatio=1;inline=1"
  return f"\x1b]1337;File={about}:{base64.b64encode(data).decode()}\x07"


def sixel(image: Image.Image) -> str:
  """The image at its own size in at most 256 colours, without transparent pixels and lines after the last whole band."""
  width, height = image.width, image.height // _BAND * _BAND
  image = image.convert("RGBA").crop((0, 0, width, height))
  indexed = image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
  palette = np.asarray(indexed.getpalette(), int).reshape(-1, 3)
  codes = np.where(np.asarray(image)[..., 3] > 127, np.asarray(indexed, int), -1)
  out = ["\x1bP0;1q", f'"1;1;{width};{height}']
  for code in np.unique(codes[codes >= 0]):
    red, green, blue = np.rint(palette[code] * 100 / 255).astype(int)
    out.append(f"#{code};2;{red};{green};{blue}")
  for top in range(0, height, _BAND):
    band = codes[top : top + _BAND]
    lines = (f"#{code}{_runs((band == code).T @ (1 << np.arange(_BAND)))}" for code in np.unique(band[band >= 0]))
    out.append("$".join(lines) + "-")
  return "".join(out) + "\x1b\\"


def half_blocks(image: Image.Image, colours: ColorSystem) -> list[str]:
  """The image, a character for each two pixels above each other: ``[height / 2]`` lines. An odd last line is left out."""
  pixels = np.asarray(image.convert("RGB"))
  lines = []
  for upper, lower in zip(pixels[::2], pixels[1::2]):
    cells = zip(map(tuple, upper.tolist()), map(tuple, lower.tolist()))
    lines.append("".join(_style(*pair).render("▀" * len(list(same)), color_system=colours)
                         for pair, same in itertools.groupby(cells)))  # fmt: skip
  return lines


def _style(upper: tuple[int, int, int], lower: tuple[int, int, int]) -> Style:
  return Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower))


def _png(image: Image.Image) -> bytes:
  file = io.BytesIO()
  image.save(file, "PNG")
  return file.getvalue()


def _runs(sixels: np.ndarray) -> str:
  """Values 0 to 63 ``[width]`` as characters; four or more equal ones as their number and the character."""
  starts = np.flatnonzero(np.diff(sixels, prepend=-1))
  lengths = np.diff(starts, append=len(sixels))
  characters = [chr(63 + value) for value in sixels[starts]]
  return "".join(f"!{n}{c}" if n > 3 else c * n for c, n in zip(characters, lengths))
