"""An array in memory, as a tensor of a source file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from conversion.rules import Shape


class ArrayTensor(NamedTuple):
  """A `conversion.engine.SourceTensor`."""

  array: np.ndarray

  @property
  def shape(self) -> Shape:
    return self.array.shape

  def read(self) -> np.ndarray:
    return self.array
