"""Textures: the random brightness of backgrounds that are not flat.

The brightness of a material is the sum of independent Gaussian fields with the spectrum of white noise behind a Gaussian
blur: one of the light, which varies slowly, and those of the material's grain. Grains differ in their correlation along
columns and rows: wood has vertical streaks, water horizontal ones, cloth both, marble none. All channels change alike, so
that a background keeps its hue. Light colours are darkened by a constant: their brightest pixels would exceed 255.

Nothing in a caption determines the fields. They are what the flat world lacks: at every patch many continuations are about
equally likely, as in photographs.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from jaxspec.evaluation.scenes.world import BACKGROUNDS, FLAT, IMAGE_SIZE


class Grain(NamedTuple):
  """One field.

  Attributes:
    down, right: standard deviation of the blur along columns and rows, in pixels.
    deviation: standard deviation of the brightness, of 255.
  """

  down: float
  right: float
  deviation: float


LIGHT = Grain(22.0, 22.0, 5.0)
GRAINS: dict[str, tuple[Grain, ...]] = {
  "wood": (Grain(12.0, 1.8, 8.0),),
  "water": (Grain(2.2, 9.0, 8.0),),
  "marble": (Grain(4.0, 4.0, 8.0),),
  "cloth": (Grain(12.0, 1.5, 5.6), Grain(1.5, 12.0, 5.6)),
}
HEADROOM = 18.0  # below 255, of the brightest channel of a background: about two deviations


def draw_brightness(generator: np.random.Generator, material: str, background: str) -> np.ndarray:
  """A random field to add to every channel of a background.

  Args:
    generator: advanced, unless the material is flat.
    material: a name in ``MATERIALS``.
    background: a name in ``BACKGROUNDS``.
  Returns:
    ``[96, 96]`` float32, of 255.
  """
  field = np.zeros((IMAGE_SIZE, IMAGE_SIZE), np.float32)
  if material == FLAT:
    return field
  for grain in (LIGHT, *GRAINS[material]):
    spectrum = _blur(grain.down, grain.right) * np.fft.rfft2(generator.standard_normal(field.shape))
    field += grain.deviation * np.fft.irfft2(spectrum, field.shape)
  return field - max(0.0, max(BACKGROUNDS[background]) + HEADROOM - 255)


@functools.cache
def _blur(down: float, right: float) -> np.ndarray:
  """Factors ``[96, 49]`` of a real transform: those of a Gaussian blur, without the mean, for fields of variance 1."""
  rows, columns = np.fft.fftfreq(IMAGE_SIZE)[:, None], np.fft.rfftfreq(IMAGE_SIZE)[None]
  factors = np.exp(-2 * np.pi**2 * ((rows * down) ** 2 + (columns * right) ** 2))
  factors[0, 0] = 0.0
  twice = np.where((columns > 0) & (columns < 0.5), 2.0, 1.0)  # columns that stand for their mirror images too
  return factors / np.sqrt((twice * factors**2).sum() / IMAGE_SIZE**2)
