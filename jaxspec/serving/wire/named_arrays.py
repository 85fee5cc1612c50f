"""Arrays with names as bytes: what a condition and the keys of its rows are sent as.

For each array, in the agreed order: length of the name, name, type, number of axes (1 byte each but the name), the axes (4
bytes each, big-endian), and the numbers, little-endian. Type, axes and length are checked before an array is made, so what
arrives never allocates more than its own size.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from jaxspec.serving.wire.bitstream import require

_HEAD, _AXIS = struct.Struct(">BB"), struct.Struct(">I")
_TYPES = {
  "bool": np.dtype(np.bool_),
  "int32": np.dtype("<i4"),
  "uint32": np.dtype("<u4"),
  "float32": np.dtype("<f4"),
  "float16": np.dtype("<f2"),
  "bfloat16": np.dtype(jnp.bfloat16),
}
_CODES = {name: code for code, name in enumerate(_TYPES)}


@dataclasses.dataclass(frozen=True)
class ArraySpec:
  """What an array must be.

  Attributes:
    dtype: name of its type.
    shape: its axes after that of the rows: a length, or the name of a length that arrays share.
    below: integers must lie in ``0 .. below - 1``; None allows all.
  """

  dtype: str
  shape: tuple[int | str, ...] = ()
  below: int | None = None

  def __post_init__(self):
    if self.dtype not in _TYPES:
      raise ValueError(f"Must have an array of type {', '.join(_TYPES)}, we instead got {self.dtype}")


def max_bytes(specs: Mapping[str, ArraySpec], num_rows: int, most: Mapping[str, int]) -> int:
  """No valid arrays need more; ``most`` are the largest shared lengths."""
  size = 0
  for name, spec in specs.items():
    count = num_rows
    for axis in spec.shape:
      count *= most[axis] if isinstance(axis, str) else axis
    size += 1 + len(name) + _HEAD.size + _AXIS.size * (1 + len(spec.shape)) + count * _TYPES[spec.dtype].itemsize
  return size


def write_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
  """Arrays in the order of the mapping.

  Raises:
    ValueError: for a type that no message has.
  """
  parts = []
  for name, array in arrays.items():
    if (dtype := str(array.dtype)) not in _TYPES:
      raise ValueError(f"Must have arrays of type {', '.join(_TYPES)}, we instead got {dtype} in {name}")
    text = name.encode()
    parts += [bytes([len(text)]), text, _HEAD.pack(_CODES[dtype], array.ndim)]
    parts += [_AXIS.pack(axis) for axis in array.shape]
    parts.append(np.ascontiguousarray(array, _TYPES[dtype]).tobytes())
  return b"".join(parts)


def read_arrays(
  data: bytes, specs: Mapping[str, ArraySpec], *, num_rows: int, most: Mapping[str, int]
) -> dict[str, np.ndarray]:
  """Decodes arrays of ``num_rows`` rows that fill ``data`` exactly.

  Args:
    most: the largest value of every shared length; the smallest is 1.
  Raises:
    MessageError: if they are anything but what ``specs`` say.
  """
  arrays: dict[str, np.ndarray] = {}
  lengths: dict[str, int] = {}
  position = 0

  def take(size: int) -> bytes:
    nonlocal position
    require(position + size <= len(data), "truncated", f"{size} bytes wanted, {len(data) - position} left")
    position += size
    return data[position - size : position]

  for name, spec in specs.items():
    got = take(take(1)[0])
    require(got == name.encode(), "kind", f"array {got!r} instead of {name}")
    code, axes = _HEAD.unpack(take(_HEAD.size))
    require(code == _CODES[spec.dtype], "kind", f"{name} is not of type {spec.dtype}")
    require(axes == 1 + len(spec.shape), "range", f"{name} has {axes} axes")
    shape = tuple(_AXIS.unpack(take(_AXIS.size))[0] for _ in range(axes))
    for axis, length in zip(("rows", *spec.shape), shape):
      _check_axis(name, axis, length, num_rows, lengths, most)
    dtype, count = _TYPES[spec.dtype], 1
    for length in shape:
      count *= length
    raw = take(count * dtype.itemsize)
    if spec.dtype == "bool":
      require(not raw.strip(b"\0\1"), "range", f"{name} has a bool that is not 0 or 1")
    array = np.frombuffer(raw, dtype).reshape(shape)
    if spec.below is not None and array.size:
      inside = int(array.min()) >= 0 and int(array.max()) < spec.below
      require(inside, "range", f"{name} has a number outside of 0 .. {spec.below - 1}")
    if array.dtype.kind not in "biu":
      require(bool(np.isfinite(array.astype(np.float32)).all()), "range", f"{name} has a value that is not a number")
    arrays[name] = array
  require(position == len(data), "length", f"{len(data) - position} bytes after the last array")
  return arrays


def _check_axis(
  name: str, axis: int | str, length: int, num_rows: int, lengths: dict[str, int], most: Mapping[str, int]
) -> None:
  if axis == "rows":
    require(length == num_rows, "range", f"{name} has {length} rows, {num_rows} were announced")
  elif isinstance(axis, str):
    require(1 <= length <= most[axis], "range", f"{name} has {length} entries in {axis}, {most[axis]} allowed")
    require(
      lengths.setdefault(axis, length) == length, "range", f"{name} has {length} entries in {axis}, other arrays differ"
    )
  else:
    require(length == axis, "range", f"{name} has an axis of {length} instead of {axis}")
