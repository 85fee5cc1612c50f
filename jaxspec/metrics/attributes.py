"""Exact checks of painted attributes. They read the image's border and the extent of the drawing, and use no network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.data.paint import measure_background, measure_scale
from jaxspec.data.prompts import PromptParts


class AttributeChecks(NamedTuple):
  """Whether each image shows the attributes that its prompt names."""

  background: np.ndarray  # [N] bool; white is expected if the prompt names none
  size: np.ndarray  # [N] bool


def check_attributes(pixels: np.ndarray, prompts: Sequence[PromptParts]) -> AttributeChecks:
  """Measures ``[N, H, W, 3]`` uint8 images and compares them with N parsed prompts."""
  background, size = [], []
  for image, prompt in zip(pixels, prompts, strict=True):
    background.append(measure_background(image) == prompt.background)
    size.append(measure_scale(image) == ("small" if prompt.small else "normal"))
  return AttributeChecks(np.array(background, bool), np.array(size, bool))
