"""Reading and writing PyTorch's zip format without PyTorch and without running code from the pickle.

A ``.pt`` file is an uncompressed zip archive: ``NAME/data.pkl`` describes the object, ``NAME/data/K`` holds the bytes
of storage K. The unpickler accepts only the few globals that describe tensors, dtypes and plain containers, and those of
what training scripts store beside them (paths, arguments, NumPy's numbers), for which an empty object stands in. It raises
an error for all others before anything is called. Tensors stay on disk until they are read, so optimizer states cost
nothing.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import struct
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from jaxspec.io.stored_files import check_readable

# Storage class -> dtype of its elements.
_STORAGES = {
  "DoubleStorage": np.float64,
  "FloatStorage": np.float32,
  "HalfStorage": np.float16,
  "BFloat16Storage": ml_dtypes.bfloat16,
  "ComplexDoubleStorage": np.complex128,
  "ComplexFloatStorage": np.complex64,
  "LongStorage": np.int64,
  "IntStorage": np.int32,
  "ShortStorage": np.int16,
  "CharStorage": np.int8,
  "ByteStorage": np.uint8,
  "BoolStorage": np.bool_,
}
# What `write` writes.
_WRITTEN = {np.dtype(_STORAGES[name]): name for name in ("FloatStorage", "LongStorage")}
_DTYPE_NAMES = frozenset(
  "float64 double float32 float float16 half bfloat16 complex128 complex64 "
  "int64 long int32 int int16 short int8 uint8 bool".split()
)
# What training scripts store beside the weights; nothing of it is made.
_INERT = {
  "argparse": "Namespace",
  "types": "SimpleNamespace",
  "pathlib": "Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath",
  "datetime": "date datetime time timedelta timezone",
  "collections": "Counter deque",
  "builtins": "bool bytearray bytes complex dict float frozenset int list range set slice str tuple long unicode xrange",
  "numpy": "dtype ndarray",
  "numpy.core.multiarray": "_reconstruct scalar",
  "numpy.core.numeric": "_frombuffer",
  "_codecs": "encode",  # bytes, in the protocol of PyTorch
  "torch": "device",
  "typing": "Any",
  "pytorch_lightning.callbacks.model_checkpoint": "ModelCheckpoint",
}
# Other names of these modules.
_MODULES = {
  "__builtin__": "builtins", "pathlib._local": "pathlib", "numpy._core.multiarray": "numpy.core.multiarray",
  "numpy._core.numeric": "numpy.core.numeric",
}  # fmt: skip
_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_ALIGNMENT = 64


class ForbiddenGlobal(ValueError):
  """A pickle names something that is neither a tensor nor a plain container."""


class _Fixed:
  """Base class of unpickled objects. A pickle cannot change them after they are made."""

  def __setstate__(self, state):
    raise ValueError("a tensor is changed after it was described")


class TorchTensor(_Fixed):
  """A tensor that is still on disk; `read` fetches it."""

  def __init__(self, archive: _Archive, storage: _Storage, offset: int, shape: tuple, stride: tuple):
    numbers = (offset, *shape, *stride)
    if len(shape) != len(stride) or not all(type(n) is int and n >= 0 for n in numbers):
      raise ValueError("a tensor has no valid shape")
    self._archive, self._storage, self._offset, self._stride = archive, storage, offset, stride
    self.shape = shape

  def read(self) -> np.ndarray:
    """The contiguous array in the file's dtype.

    Raises:
      ValueError: if the archive does not hold the bytes it promises.
    """
    size, itemsize = math.prod(self.shape), self._storage.dtype.itemsize
    if size == 0:
      return np.empty(self.shape, self._storage.dtype)
    extent = sum((n - 1) * s for n, s in zip(self.shape, self._stride, strict=True)) + 1
    if size > self._storage.size or self._offset + extent > self._storage.size:
      raise ValueError(f"Corrupt {self._archive.path}: a tensor of shape {list(self.shape)} exceeds its storage")
    data = self._archive.read(f"data/{self._storage.key}", self._offset * itemsize, extent * itemsize)
    raw = np.frombuffer(data, np.dtype(f"u{itemsize}") if itemsize <= 8 else self._storage.dtype)
    if self._archive.swapped:
      raw = raw.byteswap()
    flat = raw.view(self._storage.dtype)
    strides = tuple(s * itemsize for s in self._stride)
    return np.asarray(np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False), order="C")


class _StorageType(_Fixed):
  """A storage class of PyTorch."""

  def __init__(self, name: str):
    self.dtype = np.dtype(_STORAGES[name])


class _Storage(_Fixed):
  """What a persistent id describes: dtype, key and number of elements of one storage."""

  def __init__(self, dtype: np.dtype, key: str, size: int):
    self.dtype, self.key, self.size = dtype, key, size


class _Inert:
  """Stands in for an object whose content does not matter (training arguments, devices)."""

  def __init__(self, *args, **kwargs):
    pass

  def __setstate__(self, state):
    pass

  def __setitem__(self, key, value):
    pass

  def append(self, value):
    pass

  extend = append


class _Archive:
  """The open zip file."""

  def __init__(self, path: str | os.PathLike):
    self.path = path
    self._zip = zipfile.ZipFile(path)
    self._infos = {info.filename.split("/", 1)[-1]: info for info in self._zip.infolist()}
    order = self.read("byteorder").decode("ascii", "replace") if "byteorder" in self._infos else "little"
    self.swapped = order != sys.byteorder

  def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
    info = self._infos.get(name)
    if info is None:
      raise ValueError(f"Corrupt {self.path}: it lacks {name!r}")
    if info.compress_type != zipfile.ZIP_STORED:
      raise ValueError(f"Must have an uncompressed archive as PyTorch writes it, {self.path} is compressed")
    try:
      if start == 0 and length in (None, info.file_size):
        data = self._zip.read(info)  # checks the CRC
      else:
        with self._zip.open(info) as file:
          file.seek(start)
          data = file.read(-1 if length is None else length)
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, struct.error) as error:
      raise ValueError(f"Corrupt {self.path}: {error}") from error
    if length is not None and len(data) != length:
      raise ValueError(f"Corrupt {self.path}: {name!r} is too short")
    return data


class _Unpickler(pickle._Unpickler):
  """Accepts a closed list of globals. The pure Python base class has a dict for its memo, so a huge index costs nothing."""

  def load_bytearray8(self: Any) -> None:
    """The base class makes the array before it reads the bytes: a damaged length would take all memory."""
    (length,) = struct.unpack("<Q", self.read(8))
    data = self.read(length)
    if len(data) != length:
      raise ValueError("a byte array is too short")
    self.append(bytearray(data))

  dispatch: Any = {**pickle._Unpickler.dispatch, pickle.BYTEARRAY8[0]: load_bytearray8}

  def __init__(self, archive: _Archive):
    super().__init__(io.BytesIO(archive.read("data.pkl")))
    self._archive = archive

    # Made again for every file: a hostile pickle can set attributes on these objects.
    def rebuild(storage, offset, size, stride, *_unused):
      if not isinstance(storage, _Storage):
        raise ValueError("a tensor has no storage")
      return TorchTensor(archive, storage, offset, tuple(size), tuple(stride))

    def parameter(data, *_unused):
      return data

    class Inert(_Inert):
      pass

    self._globals = {
      ("torch._utils", "_rebuild_tensor"): rebuild,
      ("torch._utils", "_rebuild_tensor_v2"): rebuild,
      ("torch._utils", "_rebuild_parameter"): parameter,
      ("torch._utils", "_rebuild_parameter_with_state"): parameter,
      ("torch", "Size"): tuple,
      ("collections", "OrderedDict"): OrderedDict,
      ("collections", "defaultdict"): lambda *_factory: {},
      **{(module, name): Inert for module, names in _INERT.items() for name in names.split()},
    }

  def find_class(self, module: str, name: str) -> Any:
    module = _MODULES.get(module, module)
    if (module, name) in self._globals:
      return self._globals[module, name]
    if module in ("torch", "torch.storage") and name in _STORAGES:
      return _StorageType(name)
    if module == "torch" and name in _DTYPE_NAMES:
      return name
    raise ForbiddenGlobal(f"Must have tensors and plain containers only, {self._archive.path} asks for {module}.{name}")

  def get_extension(self, code: int) -> Any:
    raise ForbiddenGlobal(f"Must have tensors and plain containers only, {self._archive.path} asks for extension {code}")

  def persistent_load(self, pid: Any) -> _Storage:
    kind, storage_type, key, _location, size = pid
    well_formed = kind == "storage" and isinstance(storage_type, _StorageType) and type(key) is str
    if not well_formed or type(size) is not int or size < 0:
      raise ValueError("a storage has no valid description")
    return _Storage(storage_type.dtype, key, size)


def read(path: str | os.PathLike) -> Any:
  """The object in a ``.pt`` file, with `TorchTensor` leaves.

  Files older than PyTorch 1.6 are not zip archives; they need PyTorch (the ``convert`` extra), which reads them in its
  own restricted mode.

  Raises:
    ValueError: in one line, if the file cannot be read or is corrupt, holds anything but tensors and plain containers, or is
      in the old format and PyTorch is missing.
  """
  check_readable(path)
  with open(path, "rb") as file:
    head = file.read(len(_LEGACY_MAGIC))
  if head == _LEGACY_MAGIC:
    return _read_legacy(path)
  if not head.startswith(b"PK\x03\x04"):
    raise ValueError(f"Must have a file written by torch.save, {path} is none")
  try:
    return _Unpickler(_Archive(path)).load()
  except zipfile.BadZipFile as error:
    raise ValueError(f"Corrupt or truncated {path}: {error}") from error
  except ForbiddenGlobal:
    raise
  except Exception as error:  # a damaged pickle can raise anything
    text = str(error) or type(error).__name__
    raise ValueError(text if str(path) in text else f"Corrupt {path}: {text}") from error


class _LoadedTensor:
  """A tensor that PyTorch has read."""

  def __init__(self, tensor: Any):
    self._tensor = tensor
    self.shape = tuple(tensor.shape)

  def read(self) -> np.ndarray:
    tensor = self._tensor.detach()
    return (tensor.float() if tensor.is_floating_point() else tensor).contiguous().numpy()


def _read_legacy(path: str | os.PathLike) -> Any:
  try:
    import torch
  except ImportError as error:
    raise ValueError(
      f"{path} is in PyTorch's format of before 2020, which needs PyTorch: install the 'convert' extra"
    ) from error
  import argparse

  def wrap(value):
    if isinstance(value, torch.Tensor):
      return _LoadedTensor(value)
    return {k: wrap(v) for k, v in value.items()} if isinstance(value, Mapping) else value

  try:
    with torch.serialization.safe_globals([argparse.Namespace]):
      return wrap(torch.load(path, map_location="cpu", weights_only=True))
  except Exception as error:
    raise ValueError(f"Corrupt {path}: {str(error).splitlines()[0]}") from error


def write(path: str | os.PathLike, tree: Mapping[str, Any]) -> None:
  """Writes nested dicts with float32 and int64 arrays as ``torch.save`` would; ``torch.load(weights_only=True)`` reads them.

  Args:
    path: destination; overwritten.
    tree: string keys; leaves are float32 or int64 arrays, or ints.
  """
  storages: list[np.ndarray] = []
  pickled = b"\x80\x02" + _pickle(tree, storages) + b"."
  with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:

    def add(name: str, data: Any) -> None:
      info = zipfile.ZipInfo(f"archive/{name}")
      start = archive.start_dir + 30 + len(info.filename) + 4  # 4: the head of the padding field
      padding = -start % _ALIGNMENT
      info.extra = struct.pack("<HH", 0x4246, padding) + b"Z" * padding
      archive.writestr(info, data)

    add("data.pkl", pickled)
    add("byteorder", sys.byteorder)
    for key, array in enumerate(storages):
      add(f"data/{key}", array.data)
    add("version", "3\n")


def _pickle(value: Any, storages: list[np.ndarray]) -> bytes:
  """Opcodes of protocol 2 that leave ``value`` on the stack; arrays are appended to ``storages``."""
  if isinstance(value, Mapping):
    return b"}(" + b"".join(_pickle(k, storages) + _pickle(v, storages) for k, v in value.items()) + b"u"
  if isinstance(value, str):
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data
  if isinstance(value, int):
    data = pickle.encode_long(value)
    return b"\x8a" + bytes([len(data)]) + data
  if isinstance(value, tuple):
    return b"(" + b"".join(_pickle(v, storages) for v in value) + b"t"
  array = np.asarray(value, order="C")
  if array.dtype not in _WRITTEN:
    raise ValueError(f"Must have float32 or int64 arrays, we instead got {array.dtype}")
  stride = tuple(s // array.itemsize for s in array.strides)
  key = str(len(storages))
  storages.append(array.reshape(-1).view(np.uint8))
  storage = b"(" + b"".join(
    [
      _pickle("storage", storages),
      f"ctorch\n{_WRITTEN[array.dtype]}\n".encode(),
      *(_pickle(v, storages) for v in (key, "cpu", array.size)),
    ]
  )
  hooks = b"ccollections\nOrderedDict\n)R"
  layout = _pickle(0, storages) + _pickle(value.shape, storages) + _pickle(stride, storages)
  return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"tQ" + layout + b"\x89" + hooks + b"tR"
