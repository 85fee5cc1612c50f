"""Tensors that are made of others when they are read: joined shards, reordered heads, repeated rows.

Large networks are converted one tensor at a time. A `Derived` tensor knows its shape at once, so that a whole source is
checked before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .engine import SourceTensor
from .rules import Shape


class Derived(NamedTuple):
  """A `SourceTensor` that ``make`` makes of the arrays of its parts."""

  shape: Shape
  parts: tuple[SourceTensor, ...]
  make: Callable[..., np.ndarray]

  def read(self) -> np.ndarray:
    """The array, made of parts that are read now."""
    return self.make(*(part.read() for part in self.parts))


def joined(parts: Sequence[SourceTensor], axis: int) -> SourceTensor:
  """Shards one after another along an axis that they have."""
  shape = list(parts[0].shape)
  shape[axis] = sum(part.shape[axis] for part in parts)
  return Derived(tuple(shape), tuple(parts), lambda *arrays: np.concatenate(_alike(arrays), axis))


def _alike(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
  """The arrays in one dtype; NumPy has none for bfloat16 and float16 together."""
  return arrays if len({array.dtype for array in arrays}) == 1 else [array.astype(np.float32) for array in arrays]


def averaged(parts: Sequence[SourceTensor]) -> SourceTensor:
  """The mean of shards of one shape, in float32."""
  mean = lambda *arrays: np.mean([array.astype(np.float32) for array in arrays], axis=0)
  return Derived(tuple(parts[0].shape), tuple(parts), mean)


def stacked(parts: Sequence[SourceTensor]) -> SourceTensor:
  """Shards of one shape as rows ``[shards, ...]``."""
  return Derived((len(parts), *parts[0].shape), tuple(parts), lambda *arrays: np.stack(_alike(arrays)))


def split_halves(tensor: SourceTensor, axis: int, size: int) -> SourceTensor:
  """Heads of interleaved pairs (0, 1), (2, 3), ... as heads whose first halves pair with their second ones.

  Args:
    axis: one axis of the tensor, ``heads * size``.
    size: channels of a head.
  """

  def reorder(array: np.ndarray) -> np.ndarray:
    channels = np.arange(array.shape[axis]).reshape(-1, size // 2, 2).swapaxes(1, 2).ravel()
    return np.take(array, channels, axis)

  return Derived(tuple(tensor.shape), (tensor,), reorder)


def repeated(tensor: SourceTensor, rows: int) -> SourceTensor:
  """Rows ``[n, ...]``, each as often as it takes to get ``rows`` of them."""
  times = rows // tensor.shape[0]
  return Derived((rows, *tensor.shape[1:]), (tensor,), lambda array: np.repeat(array, times, axis=0))
