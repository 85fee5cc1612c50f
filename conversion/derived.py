"""Tensors that are made of others when they are read: joined shards, reordered heads, repeated rows; and their streaming.

Large networks are converted one tensor at a time. A `Derived` tensor knows its shape at once, so that a whole source is
checked before anything is read.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from conversion.engine import Matched, Shape, SourceTensor

# Storage dtypes and what the safetensors format calls them.
DTYPES = {"float32": (np.dtype(np.float32), "F32"), "bfloat16": (np.dtype(ml_dtypes.bfloat16), "BF16")}


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
  return Derived(tuple(shape), tuple(parts), lambda *arrays: np.concatenate(arrays, axis))


def averaged(parts: Sequence[SourceTensor]) -> SourceTensor:
  """The mean of shards of one shape, in float32."""
  mean = lambda *arrays: np.mean([array.astype(np.float32) for array in arrays], axis=0)
  return Derived(tuple(parts[0].shape), tuple(parts), mean)


def stacked(parts: Sequence[SourceTensor]) -> SourceTensor:
  """Shards of one shape as rows ``[shards, ...]``."""
  return Derived((len(parts), *parts[0].shape), tuple(parts), lambda *arrays: np.stack(arrays))


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


def write_leaves(file: Path, leaves: Mapping[str, Matched], shapes: Mapping[str, Shape], dtype: str) -> None:
  """Writes a safetensors file one leaf after another; only one is in memory at a time.

  Args:
    shapes: of the leaves, by the same paths.
    dtype: one of `DTYPES`.
  """
  stored, name = DTYPES[dtype]
  header, end = {}, 0
  for path, shape in shapes.items():
    start, end = end, end + math.prod(shape) * stored.itemsize
    header[path] = {"dtype": name, "shape": list(shape), "data_offsets": [start, end]}
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  with file.open("wb") as out:
    out.write(struct.pack("<Q", len(text)) + text)
    for path in shapes:
      out.write(np.ascontiguousarray(leaves[path].read().astype(stored)).view(np.uint8).data)
