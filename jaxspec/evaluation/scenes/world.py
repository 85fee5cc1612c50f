"""The world of scenes: possible objects, backgrounds and positions.

A scene is a background with one to four objects. An image has 96 x 96 pixels, a grid of 12 x 12 cells of 8 pixels; a
tokenizer of factor 8 has one token per cell. Objects are aligned to cells, and so to the token grid, and at least one cell
of background is between two of them.

Objects are *sprites* (drawn in three styles) or *glyphs* (plain shapes in seven colours). Each is large (4 x 4 cells) or
small (3 x 3 cells). A noun and its style or colour are a *look*.

A background has a colour and a material. On `FLAT` it is one colour. On the others its brightness varies
(`jaxspec.evaluation.scenes.textures`), so that neighbouring patches differ and many tokens are nearly equal. The flat world
has flat backgrounds only, the textured world all of `MATERIALS`.

Some nouns and colours are hardly visible on some backgrounds (`clashes`). No scene has such a pair.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

IMAGE_SIZE = 96  # pixels
CELL = 8  # pixels
GRID = IMAGE_SIZE // CELL  # cells
GAP = 1  # cells of background between objects
MOST_OBJECTS = 4

# Drawing styles of sprites. Every sprite noun has all three, drawn from the same side.
STYLES = ("noto", "twemoji", "fluent")
PLAIN = "plain"  # the one style of glyphs
SPRITES: dict[str, tuple[str, ...]] = {
  "cat": STYLES,
  "dog": STYLES,
  "panda": STYLES,
  "pig": STYLES,
  "frog": STYLES,
  "fish": STYLES,
  "apple": STYLES,
  "banana": STYLES,
  "strawberry": STYLES,
  "carrot": STYLES,
  "tulip": STYLES,
  "sunflower": STYLES,
  "tree": STYLES,
  "cactus": STYLES,
  "mushroom": STYLES,
  "sun": STYLES,
  "moon": STYLES,
  "house": STYLES,
  "car": STYLES,
  "rocket": STYLES,
  "boat": STYLES,
  "crown": STYLES,
  "key": STYLES,
  "ball": STYLES,
}
GLYPHS = ("heart", "star", "circle", "square")
NOUNS = (*SPRITES, *GLYPHS)

SIZES: dict[str, int] = {"large": 4, "small": 3}  # cells

# RGB, at least 70 apart from each other.
BACKGROUNDS: dict[str, tuple[int, int, int]] = {
  "white": (255, 255, 255),
  "gray": (168, 172, 176),
  "black": (44, 46, 52),
  "blue": (150, 200, 245),
  "green": (125, 200, 120),
  "yellow": (252, 228, 120),
  "pink": (250, 185, 205),
  "purple": (150, 110, 205),
}

FLAT = "flat"
MATERIALS = (FLAT, "wood", "water", "marble", "cloth")
FLAT_WORLD = (FLAT,)  # materials of the flat world
TEXTURED_WORLD = MATERIALS  # and of the textured one

# RGB of glyphs.
COLOURS: dict[str, tuple[int, int, int]] = {
  "red": (215, 45, 50),
  "orange": (240, 130, 30),
  "yellow": (245, 200, 20),
  "green": (40, 140, 60),
  "blue": (35, 90, 200),
  "purple": (120, 50, 160),
  "black": (30, 30, 34),
}

# Backgrounds on which a sprite is hardly visible: in one of its styles less than 55 % of its pixels are 50 or more away in
# RGB. Sun and key are listed although they pass that test: the eye does not separate yellow from yellow.
CLASHES: dict[str, tuple[str, ...]] = {
  "cat": ("yellow",),
  "panda": ("white",),
  "pig": ("pink",),
  "frog": ("green",),
  "fish": ("yellow",),
  "banana": ("yellow",),
  "tulip": ("pink",),
  "tree": ("green",),
  "cactus": ("green",),
  "sun": ("yellow",),
  "moon": ("yellow",),
  "key": ("yellow",),
}


class Look(NamedTuple):
  """Appearance of an object, apart from its size; ``colour`` is None for sprites."""

  noun: str
  style: str
  colour: str | None


LOOKS: tuple[Look, ...] = (
  *(Look(noun, style, None) for noun, styles in SPRITES.items() for style in styles),
  *(Look(noun, PLAIN, colour) for noun in GLYPHS for colour in COLOURS),
)
LOOK_NUMBERS: dict[Look, int] = {look: number for number, look in enumerate(LOOKS)}


@dataclasses.dataclass(frozen=True)
class Object:
  """One object of a scene.

  Attributes:
    noun: a name in ``NOUNS``.
    style: a name in ``STYLES`` that the noun has, ``"plain"`` for glyphs.
    colour: a name in ``COLOURS`` for glyphs, None for sprites.
    size: a name in ``SIZES``.
    row, column: cell of the upper left corner, from 0.
  Raises:
    ValueError: if there is no such object, or it exceeds the grid.
  """

  noun: str
  style: str
  colour: str | None
  size: str
  row: int
  column: int

  def __post_init__(self):
    if self.look not in LOOK_NUMBERS:
      known = "jaxspec.evaluation.scenes.world.LOOKS"
      raise ValueError(f"Must have a look of the world ({known}), we instead got {tuple(self.look)}")
    if self.size not in SIZES:
      raise ValueError(f"Must have a size among {tuple(SIZES)}, we instead got {self.size!r}")
    if not (0 <= self.row <= GRID - self.cells and 0 <= self.column <= GRID - self.cells):
      raise ValueError(f"Must have an object on the {GRID} x {GRID} grid, we instead got {self}")

  @property
  def look(self) -> Look:
    return Look(self.noun, self.style, self.colour)

  @property
  def cells(self) -> int:
    """Side in cells."""
    return SIZES[self.size]

  @property
  def box(self) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) in pixels; the last two are outside."""
    top, left, side = self.row * CELL, self.column * CELL, self.cells * CELL
    return top, left, top + side, left + side


@dataclasses.dataclass(frozen=True)
class Scene:
  """A background and the objects on it.

  Attributes:
    background: a name in ``BACKGROUNDS``.
    objects: one to four, with a cell or more between any two.
    material: a name in ``MATERIALS``.
  Raises:
    ValueError: if the scene is not legal.
  """

  background: str
  objects: tuple[Object, ...]
  material: str = FLAT

  def __post_init__(self):
    if self.material not in MATERIALS:
      raise ValueError(f"Must have a material among {MATERIALS}, we instead got {self.material!r}")
    if self.background not in BACKGROUNDS:
      raise ValueError(f"Must have a background among {tuple(BACKGROUNDS)}, we instead got {self.background!r}")
    if not 1 <= len(self.objects) <= MOST_OBJECTS:
      raise ValueError(f"Must have one to {MOST_OBJECTS} objects, we instead got {len(self.objects)}")
    for number, one in enumerate(self.objects):
      if clashes(one.noun, one.colour, self.background):
        raise ValueError(f"Must have objects that can be seen on {self.background}, we instead got {one}")
      for other in self.objects[:number]:
        if not are_apart(one, other):
          raise ValueError(f"Must have a cell of background between objects, we instead got {other} and {one}")


def clashes(noun: str, colour: str | None, background: str) -> bool:
  """Whether a noun (of a colour, for glyphs) is hardly visible on a background."""
  return background in CLASHES.get(noun, ()) or colour == background


def are_apart(one: Object, other: Object) -> bool:
  """Whether at least ``GAP`` cells are between the boxes of two objects."""
  return (
    one.row + one.cells + GAP <= other.row
    or other.row + other.cells + GAP <= one.row
    or one.column + one.cells + GAP <= other.column
    or other.column + other.cells + GAP <= one.column
  )
