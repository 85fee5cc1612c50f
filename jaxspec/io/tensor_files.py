"""Writes safetensors files one array at a time, so that a network larger than the memory can be written.

The format is eight bytes with the length of the header, a JSON header with dtype, shape and offsets of every array, and the
arrays in sequence (https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

_CODES = {
  "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16",
  "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def write(
  path: str | os.PathLike, arrays: Mapping[str, Any], on_write: Callable[[int, int], None] = lambda done, total: None
) -> None:
  """Writes arrays by name.

  Args:
    path: destination; overwritten.
    arrays: anything with ``shape`` and ``dtype`` that ``numpy.asarray`` takes. Each is converted once, just before it is
      written, and then released.
    on_write: called before the first array and after every array, with the numbers of written and of all arrays.
  Raises:
    ValueError: for a dtype that the format does not have.
    OSError: if the file cannot be written.
  """
  # Wide dtypes first, so that all arrays are aligned.
  order = sorted(arrays, key=lambda name: (-np.dtype(arrays[name].dtype).itemsize, name))
  header, end = {}, 0
  for name in order:
    shape, dtype = tuple(arrays[name].shape), np.dtype(arrays[name].dtype)
    if dtype.name not in _CODES:
      raise ValueError(f"Must have arrays of numbers, {name} is {dtype.name}")
    start, end = end, end + math.prod(shape) * dtype.itemsize
    header[name] = {"dtype": _CODES[dtype.name], "shape": list(shape), "data_offsets": [start, end]}
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  with open(path, "wb") as file:
    file.write(len(text).to_bytes(8, "little") + text)
    on_write(0, len(order))
    for done, name in enumerate(order, 1):
      file.write(_bytes(arrays[name]))
      on_write(done, len(order))


def _bytes(array: Any) -> memoryview:
  made = np.asarray(array)
  assert made.shape == tuple(array.shape) and made.dtype == array.dtype, "the header says otherwise"
  return np.ascontiguousarray(made).reshape(-1).view(np.uint8).data


def listed(problems: Iterable[str], most: int = 12) -> str:
  """Problems of tensors as one line: the first missing, unknown and other ones, and the number of the rest."""
  kinds: dict[str, list[str]] = {}
  for problem in sorted(problems):
    word = problem.partition(" ")[0]
    kinds.setdefault(word if word in ("missing", "unknown") else "", []).append(problem)
  parts = []
  for kind, found in kinds.items():
    parts += found[:most]
    if more := len(found[most:]):
      parts.append(f"and {more:,} more {kind}".rstrip())
  return "; ".join(parts)
