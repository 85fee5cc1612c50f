"""Exact checks of painted attributes: no network looks at the picture, only its border and the extent of what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.data.paint import measure_background, measure_scale
from jaxspec.data.prompts import PromptParts


class AttributeChecks(NamedTuple):
  """Per picture, whether it shows what its prompt says."""

  background: np.ndarray  # [N] bool; a prompt that names none asks for white
  size: np.ndarray  # [N] bool


def check_attributes(pixels: np.ndarray, prompts: Sequence[PromptParts]) -> AttributeChecks:
  """Measures ``[N, H, W, 3]`` uint8 pictures and compares them with N parsed prompts."""
  background, size = [], []
  for picture, prompt in zip(pixels, prompts, strict=True):
    background.append(measure_background(picture) == prompt.background)
    size.append(measure_scale(picture) == ("small" if prompt.small else "normal"))
  return AttributeChecks(np.array(background, bool), np.array(size, bool))
