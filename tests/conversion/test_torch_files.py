"""The reader of PyTorch files returns correct values, executes nothing, and raises one clear error otherwise."""

import argparse
import datetime
import os
import pathlib
import pickle
import sys
import tempfile
import tracemalloc
import zipfile
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from conversion import torch_files
from tests.models.llamagen_parity import GOLDEN

LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def _archive(path, pickled, storages=(), *, compression=zipfile.ZIP_STORED, byteorder=sys.byteorder):
  with zipfile.ZipFile(path, "w", compression) as archive:
    archive.writestr("x/data.pkl", pickled)
    archive.writestr("x/byteorder", byteorder)
    for key, data in enumerate(storages):
      archive.writestr(f"x/data/{key}", data)
  return path


def _tensor(storage_type, key, numel, offset, shape, stride):
  """Opcodes of one tensor."""

  def number(n):
    data = pickle.encode_long(n)
    return b"\x8a" + bytes([len(data)]) + data

  def text(s):
    return b"X" + len(s).to_bytes(4, "little") + s.encode()

  def items(values):
    return b"(" + b"".join(number(v) for v in values) + b"t"

  storage = b"(" + text("storage") + b"ctorch\n" + storage_type.encode() + b"\n" + text(key) + text("cpu")
  body = storage + number(numel) + b"tQ" + number(offset) + items(shape) + items(stride)
  return b"ctorch._utils\n_rebuild_tensor_v2\n(" + body + b"\x89ccollections\nOrderedDict\n)RtR"


def _one(*args):
  return b"\x80\x02}X\x01\x00\x00\x00a" + _tensor(*args) + b"s."


@pytest.mark.parametrize("stem, key", [("c2i_tiny", "model"), ("t2i_tiny", "module"), ("vq_tiny", "model")])
def test_reads_what_pytorch_wrote(stem, key):
  tensors = torch_files.read(GOLDEN / f"{stem}.pt")[key]
  for name, expected in load_file(GOLDEN / f"{stem}.safetensors").items():
    np.testing.assert_array_equal(tensors[name].read(), expected)


def test_reads_a_training_file_without_its_arguments():
  content = torch_files.read(GOLDEN / "wrapper_train_ddp.pt")
  assert {"model", "ema", "optimizer", "steps", "args"} == content.keys()
  assert not isinstance(content["args"], argparse.Namespace) and not vars(content["args"])


@pytest.mark.parametrize(
  "storage, dtype", [("FloatStorage", "f4"), ("DoubleStorage", "f8"), ("LongStorage", "i8"), ("HalfStorage", "f2")]
)
@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_dtypes_views_and_byte_orders_are_read(tmp_path, storage, dtype, byteorder):
  values = np.arange(24).astype({"little": "<", "big": ">"}[byteorder] + dtype)
  pickled = _one(storage, "0", 24, 2, (3, 2), (1, 4))  # a transposed view inside a larger storage
  path = _archive(tmp_path / "a.pt", pickled, [values.tobytes()], byteorder=byteorder)
  got = torch_files.read(path)["a"].read()
  np.testing.assert_array_equal(got, 2 + np.arange(3)[:, None] + 4 * np.arange(2))
  assert got.dtype == np.dtype(dtype) and got.flags.c_contiguous


def test_empty_and_scalar_tensors_are_read(tmp_path):
  path = _archive(tmp_path / "a.pt", _one("FloatStorage", "0", 0, 0, (0, 3), (3, 1)), [b""])
  assert torch_files.read(path)["a"].read().shape == (0, 3)
  path = _archive(tmp_path / "b.pt", _one("FloatStorage", "0", 1, 0, (), ()), [np.float32(7).tobytes()])
  assert torch_files.read(path)["a"].read() == 7


@pytest.mark.parametrize(
  "numel, offset, shape, stride",
  [
    (4, 0, (5,), (1,)),
    (4, 2, (3,), (1,)),
    (4, 0, (2, 2), (4, 1)),
    (4, 0, (1 << 40,), (0,)),  # an expanded tensor: few bytes on disk, terabytes in memory
    (400, 0, (400,), (1,)),  # larger than its storage
  ],
)
def test_tensors_beyond_their_storage_are_errors(tmp_path, numel, offset, shape, stride):
  path = _archive(tmp_path / "a.pt", _one("FloatStorage", "0", numel, offset, shape, stride), [bytes(16)])
  with pytest.raises(ValueError, match="Corrupt"):
    torch_files.read(path)["a"].read()


@pytest.mark.parametrize("offset, shape, stride", [(-1, (2,), (1,)), (0, (-2,), (1,)), (3, (2,), (-1,)), (0, (2,), ())])
def test_tensors_with_impossible_shapes_are_errors(tmp_path, offset, shape, stride):
  path = _archive(tmp_path / "a.pt", _one("FloatStorage", "0", 4, offset, shape, stride), [bytes(16)])
  with pytest.raises(ValueError, match="Corrupt"):
    torch_files.read(path)


class _Malicious:
  def __init__(self, function, *args):
    self.call = (function, args)

  def __reduce__(self):
    return self.call


@pytest.mark.parametrize("protocol", range(6))
def test_code_is_an_error_and_is_not_run(tmp_path, protocol):
  witness = tmp_path / "witness"
  for attack in (_Malicious(os.mkdir, str(witness)), _Malicious(eval, f"__import__('os').mkdir({str(witness)!r})")):
    path = _archive(tmp_path / "a.pt", pickle.dumps({"model": OrderedDict(w=attack)}, protocol))
    with pytest.raises(ValueError, match=r"asks for \w+\.(mkdir|eval)"):
      torch_files.read(path)
  assert not witness.exists()


def test_code_in_a_bare_pickle_is_not_run(tmp_path):
  path = tmp_path / "a.pt"
  path.write_bytes(pickle.dumps(_Malicious(os.mkdir, str(tmp_path / "witness"))))
  with pytest.raises(ValueError, match=r"written by torch\.save"):
    torch_files.read(path)
  assert not (tmp_path / "witness").exists()


@pytest.mark.parametrize("name", ["torch\nload", "torch\n_utils._rebuild_tensor_v2", "builtins\ngetattr", "os\nsystem"])
def test_other_globals_are_errors(tmp_path, name):
  path = _archive(tmp_path / "a.pt", b"\x80\x02c" + name.encode() + b"\n.")
  with pytest.raises(ValueError, match="asks for"):
    torch_files.read(path)


def test_what_training_scripts_store_beside_the_weights_is_not_made(tmp_path):
  counts = defaultdict(int, steps=3)
  beside = {
    "out": pathlib.PurePosixPath("/x"),
    "there": pathlib.PureWindowsPath("C:/x"),
    "scalars": [np.float64(0.5), np.int64(3), np.float32(1), np.bool_(True)],
    "array": np.arange(3),
    "kinds": {"set": {1, 2}, "frozen": frozenset((1,)), "complex": 1j, "bytes": b"ab", "range": range(3)},
    "deque": deque([1, 2]),
    "losses": Counter("aab"),
    "when": datetime.timedelta(seconds=3),
  }
  content = {"model": OrderedDict(w=1), "stats": counts, "nested": defaultdict(list, a=defaultdict(float)), "args": beside}
  for protocol in range(6):
    got = torch_files.read(_archive(tmp_path / "a.pt", pickle.dumps(content, protocol)))
    assert got["model"] == {"w": 1} and got["stats"] == {"steps": 3} and got["nested"] == {"a": {}}, protocol
    assert all(type(got["args"][name]).__name__ == "Inert" for name in ("out", "there", "when", "deque", "losses"))


@pytest.mark.parametrize(
  "name", ["pathlib\nPosixPath", "pathlib\nWindowsPath", "pathlib._local\nPosixPath", "numpy._core.multiarray\nscalar"]
)
def test_names_of_other_systems_and_versions_are_known(tmp_path, name):
  pickled = b"\x80\x02c" + name.encode() + b"\nX\x01\x00\x00\x00a\x85R."
  assert type(torch_files.read(_archive(tmp_path / "a.pt", pickled))).__name__ == "Inert"


def test_a_pickle_cannot_change_a_tensor_after_its_checks(tmp_path):
  change = b"}X\x07\x00\x00\x00_offsetJ\x00\x00\x00\xf0s"
  for state in (change, b"N" + change + b"\x86"):  # as a dict, and as slots
    pickled = b"\x80\x02" + _tensor("FloatStorage", "0", 4, 0, (2,), (1,)) + state + b"b."
    with pytest.raises(ValueError, match="changed"):
      torch_files.read(_archive(tmp_path / "a.pt", pickled, [bytes(16)]))


def test_compressed_archives_are_errors(tmp_path):
  path = _archive(tmp_path / "a.pt", pickle.dumps({}, 2), compression=zipfile.ZIP_DEFLATED)
  with pytest.raises(ValueError, match="uncompressed"):
    torch_files.read(path)


def test_the_error_for_the_old_format_names_the_extra(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "torch", None)
  path = tmp_path / "a.pt"
  path.write_bytes(LEGACY_MAGIC + b"...")
  with pytest.raises(ValueError, match="install the 'convert' extra"):
    torch_files.read(path)


def _fails_cleanly(path):
  """Reads a whole file; the only error allowed is a `ValueError` of one line."""
  try:
    content = torch_files.read(path)
    groups = content.values() if isinstance(content, dict) else ()
    for group in groups:
      for tensor in group.values() if isinstance(group, dict) else ():
        if isinstance(tensor, torch_files.TorchTensor):
          tensor.read()
  except ValueError as error:
    assert str(error)


_FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_FUZZ
@given(data=st.data())
def test_damaged_files_fail_cleanly(tmp_path, data):
  whole = (GOLDEN / "wrapper_train_ddp.pt").read_bytes()
  damaged = bytearray(whole[: data.draw(st.integers(0, len(whole)), label="kept")])
  for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
  path = tmp_path / "a.pt"
  path.write_bytes(damaged)
  _fails_cleanly(path)


@_FUZZ
@given(data=st.data())
def test_damaged_pickles_fail_cleanly(tmp_path, data):
  with zipfile.ZipFile(GOLDEN / "wrapper_train_ddp.pt") as archive:
    pickled = bytearray(archive.read("wrapper_train_ddp/data.pkl"))
  for _ in range(data.draw(st.integers(1, 4))):
    pickled[data.draw(st.integers(0, len(pickled) - 1))] = data.draw(st.integers(0, 255))
  _fails_cleanly(_archive(tmp_path / "a.pt", bytes(pickled), [bytes(128)]))


def test_the_length_of_a_byte_array_takes_no_memory(tmp_path):
  damaged = b"\x80\x05" + pickle.BYTEARRAY8 + (1 << 28).to_bytes(8, "little") + b"."
  path = _archive(tmp_path / "a.pt", damaged, [bytes(128)])
  tracemalloc.start()
  try:
    _fails_cleanly(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
  finally:
    tracemalloc.stop()


@settings(max_examples=25, deadline=None)
@given(
  st.dictionaries(st.text(max_size=8), st.lists(st.integers(0, 4), max_size=4).map(tuple), max_size=5),
  st.integers(-(1 << 70), 1 << 70),
)
def test_written_files_read_back(shapes, steps):
  rng = np.random.default_rng(0)
  arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
  with tempfile.TemporaryDirectory() as folder:
    torch_files.write(f"{folder}/a.pt", {"model": arrays, "steps": steps})
    content = torch_files.read(f"{folder}/a.pt")
  assert content["steps"] == steps
  assert content["model"].keys() == arrays.keys()
  for name, array in arrays.items():
    got = content["model"][name].read()
    assert got.dtype == np.float32 and got.shape == array.shape
    np.testing.assert_array_equal(got, array)


@pytest.mark.slow
@pytest.mark.torch
def test_pytorch_reads_what_we_write(tmp_path):
  import torch

  arrays = {"a.b": np.arange(6, dtype=np.float32).reshape(2, 3), "c": np.float32(2).reshape(())}
  torch_files.write(tmp_path / "a.pt", {"model": arrays})
  for mmap in (False, True):
    content = torch.load(tmp_path / "a.pt", weights_only=True, mmap=mmap)
    for name, array in arrays.items():
      np.testing.assert_array_equal(content["model"][name].numpy(), array)


@pytest.mark.torch
def test_the_old_format_is_read_through_pytorch(tmp_path):
  import torch

  weights = {"a": torch.arange(6).reshape(2, 3).to(torch.bfloat16)}
  content = {"model": weights, "args": argparse.Namespace(x=1)}
  torch.save(content, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
  np.testing.assert_array_equal(torch_files.read(tmp_path / "a.pt")["model"]["a"].read(), np.arange(6).reshape(2, 3))
  torch.save({"a": _Malicious(os.mkdir, "x")}, tmp_path / "b.pt", _use_new_zipfile_serialization=False)
  with pytest.raises(ValueError, match="Corrupt"):
    torch_files.read(tmp_path / "b.pt")
