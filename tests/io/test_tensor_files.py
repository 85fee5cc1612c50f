"""Arrays written one by one equal those of the safetensors library."""

import weakref

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.flax import load_file, save_file

from jaxspec.io import tensor_files


def test_the_bytes_are_those_of_the_library(tmp_path):
  rng = np.random.default_rng(0)
  arrays = {
    "b": jnp.asarray(rng.normal(size=(3, 5)), jnp.float32),
    "a": jnp.asarray(rng.normal(size=(2, 1, 3)), jnp.bfloat16),
    "scalar": jnp.int32(7),
    "none": jnp.zeros((0, 4), jnp.float16),
    "flags": jnp.asarray([True, False, True]),
  }
  tensor_files.write(tmp_path / "ours.safetensors", arrays)
  save_file(arrays, tmp_path / "theirs.safetensors")
  assert (tmp_path / "ours.safetensors").read_bytes() == (tmp_path / "theirs.safetensors").read_bytes()
  transposed = np.asarray(arrays["b"]).T  # not contiguous
  tensor_files.write(tmp_path / "other.safetensors", {"x": transposed})
  np.testing.assert_array_equal(load_file(tmp_path / "other.safetensors")["x"], transposed)


class _Lazy:
  """An array made on demand; ``made`` lists the made ones."""

  made: list[weakref.ref] = []
  shape, dtype = (4, 4), np.dtype(np.float32)

  def __array__(self, dtype=None, copy=None):
    array = np.full(self.shape, len(self.made), np.float32)
    assert not any(ref() is not None for ref in self.made)
    self.made.append(weakref.ref(array))
    return array


def test_one_array_at_a_time(tmp_path):
  tensor_files.write(tmp_path / "a.safetensors", {name: _Lazy() for name in "abc"})
  assert len(_Lazy.made) == 3
  for number, array in enumerate(load_file(tmp_path / "a.safetensors").values()):
    np.testing.assert_array_equal(array, np.full((4, 4), number))


def test_dtypes_that_no_file_knows(tmp_path):
  with pytest.raises(ValueError, match="Must have arrays of numbers, x is str"):
    tensor_files.write(tmp_path / "a", {"x": np.asarray(["text"])})
  assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("number, end", [(1, "p00"), (12, "p11"), (13, "p11; and 1 more"), (1500, "and 1,488 more")])
def test_a_line_of_problems_has_an_end(number, end):
  line = tensor_files.listed(reversed([f"p{index:02}" for index in range(number)]))
  assert line.startswith("p00") and line.endswith(end) and len(line) < 120


def test_every_kind_of_problem_is_in_the_line():
  kinds = "missing", "unknown", "w has shape"
  line = tensor_files.listed([f"{kind} {index:02}" for index in range(30) for kind in kinds])
  for kind in kinds:
    assert f"{kind} 00; {kind} 01" in line and f"{kind} 12" not in line
  assert "and 18 more missing" in line and "and 18 more unknown" in line and line.endswith("and 18 more")
