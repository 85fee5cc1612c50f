"""Bad LlamaGen sources and command lines: exit status 2, one line, nothing written."""

import os
import pickle
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from conversion import llamagen, llamagen_vq
from tests.conversion.commands import fails, run, write_fields
from tests.conversion.llamagen_sources import TINY, leaves_of, official_weights
from tests.models.llamagen_parity import GOLDEN


@pytest.fixture
def source(tmp_path):
  """State dict of a tiny transformer, a function that stores a changed copy, and its JSON file."""
  tensors = official_weights(TINY, llamagen.FAMILY)

  def store(changes, name="source.safetensors"):
    merged = {k: v for k, v in (tensors | changes).items() if v is not None}
    save_file(merged, tmp_path / name)
    return tmp_path / name

  store.options = ("--config", write_fields(tmp_path, {"num_heads": 2, "num_tokens": 9}))
  return store


def test_every_fault_is_named_at_once(tmp_path, source):
  file = source({
    "norm.weight": None,
    "layers.0.attention.wo.weight": None,
    "layers.1.feed_forward.w2.weight": np.zeros((3, 4), np.float32),
    "output.weight": np.zeros((11,), np.float32),
    "layers.0.attention.bias": np.zeros(4, np.float32),
    "Layers.0.norm": np.zeros(4, np.float32),
    "layers.0.attention.wo.weight.old": np.zeros(4, np.float32),
  })  # fmt: skip
  line = fails(llamagen.main, file, tmp_path / "out", *source.options)
  for part in (
    "missing norm.weight",
    "missing layers.0.attention.wo.weight",
    "layers.1.feed_forward.w2.weight has shape [3, 4], must have [16, 48]",
    "output.weight has shape [11], must have [11, 16]",
    "unknown layers.0.attention.bias",
    "unknown Layers.0.norm",
    "unknown layers.0.attention.wo.weight.old",
  ):
    assert part in line
  assert line.count(";") == 6
  assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["tok_embeddings.weight", "output.weight", "layers.1.feed_forward.w1.weight"])
def test_a_missing_tensor_that_the_config_needs_is_an_error(tmp_path, source, name):
  assert f"missing {name}" in fails(llamagen.main, source({name: None}), tmp_path / "out", *source.options)


def test_a_missing_condition_embedding_is_an_error(tmp_path, source):
  file = source({"cls_embedding.embedding_table.weight": None, "norm.weight.old": np.ones(2, np.float32)})
  line = fails(llamagen.main, file, tmp_path / "out", *source.options)
  assert "Must have model_type" in line and "unknown norm.weight.old" in line


def test_gaps_and_malformed_layer_indices_are_errors(tmp_path, source):
  for index in ("7", "01", "999999999999"):
    file = source({f"layers.{index}.ffn_norm.weight": np.ones(16, np.float32)})
    line = fails(llamagen.main, file, tmp_path / "out", *source.options)
    assert f"unknown layers.{index}.ffn_norm.weight" in line


def test_ignored_names_are_exactly_the_listed_ones(tmp_path, source):
  stale = {
    "freqs_cis": np.ones((3, 3), np.float32),
    "causal_mask": np.ones((2, 2), np.bool_),
    "layers.1.attention.kv_cache.k_cache": np.ones(2, np.float16),
    "layers.0.attention.kv_cache.v_cache": np.ones(2, np.float32),
  }
  assert run(llamagen.main, source(stale), tmp_path / "out", *source.options).exit_code == 0
  for name in ("freqs_cis2", "layers.0.freqs_cis", "layers.x.attention.kv_cache.k_cache", "quantize.codebook_used"):
    line = fails(llamagen.main, source({name: np.ones(2, np.float32)}), tmp_path / "none", *source.options)
    assert f"unknown {name}" in line
  assert not (tmp_path / "none").exists()


def test_integer_weights_are_an_error(tmp_path, source):
  file = source({"norm.weight": np.ones(16, np.int32)})
  assert "norm.weight is int32" in fails(llamagen.main, file, tmp_path / "out", *source.options)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, jnp.bfloat16])
def test_other_precisions_become_float32(tmp_path, source, dtype):
  from safetensors.flax import save_file as save_any

  weight = jnp.asarray([0.1] * 16).astype(dtype) if dtype != np.float64 else np.full(16, 0.1)
  tensors = {k: jax.device_put(v) for k, v in official_weights(TINY, llamagen.FAMILY).items()}
  if dtype == np.float64:
    file = source({"norm.weight": weight})
  else:
    file = tmp_path / "x.safetensors"
    save_any(tensors | {"norm.weight": weight}, file)
  assert run(llamagen.main, file, tmp_path / "out", *source.options).exit_code == 0
  got = leaves_of(tmp_path / "out")["norm.weight"]
  assert got.dtype == np.float32
  np.testing.assert_array_equal(got, np.asarray(weight).astype(np.float32))


def test_unpublished_sizes_need_heads_and_tokens(tmp_path):
  line = fails(llamagen.main, GOLDEN / "c2i_tiny.pt", tmp_path / "out")
  assert "num_heads, num_tokens in --config" in line
  options = ("--image-size", 96, "--config", write_fields(tmp_path, {"num_heads": 2}))
  assert run(llamagen.main, GOLDEN / "c2i_tiny.pt", tmp_path / "out", *options).exit_code == 0


@pytest.mark.parametrize(
  "fields, expected",
  [
    ({"num_heads": 3, "num_tokens": 36}, "width divisible by the heads"),
    ({"num_heads": 0, "num_tokens": 36}, "Must have"),
    ({"num_heads": "two", "num_tokens": 36}, "Must have a valid config"),
    ({"num_heads": 2, "num_tokens": 35}, "square"),
    ({"num_heads": 2, "num_tokens": 36, "heads": 2}, "heads"),
    ({"num_heads": 2, "num_tokens": 36, "prefix_len": 2}, "prefix_len 1"),
    ([1], "JSON object"),
    ("{", "Cannot read"),
  ],
)
def test_bad_config_files_are_errors(tmp_path, fields, expected):
  line = fails(llamagen.main, GOLDEN / "c2i_tiny.pt", tmp_path / "out", "--config", write_fields(tmp_path, fields))
  assert expected in line
  assert not (tmp_path / "out").exists()


def test_the_wrong_converter(tmp_path):
  assert "tensors of a llamagen network" in fails(llamagen.main, GOLDEN / "vq_tiny.pt", tmp_path / "out")
  assert "tensors of a llamagen_vq network" in fails(llamagen_vq.main, GOLDEN / "c2i_tiny.pt", tmp_path / "out")


def test_bad_sources_are_errors(tmp_path):
  vq = llamagen_vq.main
  whole = (GOLDEN / "vq_tiny.pt").read_bytes()
  (tmp_path / "half.pt").write_bytes(whole[: len(whole) // 2])
  damaged = bytearray(whole)
  damaged[len(damaged) // 2] ^= 255
  (tmp_path / "damaged.pt").write_bytes(damaged)
  (tmp_path / "empty.pt").touch()
  (tmp_path / "text.pt").write_text("hello")
  (tmp_path / "text.safetensors").write_text("hello")
  half = (GOLDEN / "vq_tiny.safetensors").read_bytes()[:-100]
  (tmp_path / "half.safetensors").write_bytes(half)
  (tmp_path / "weights.npz").write_bytes(whole)
  (tmp_path / "folder.pt").mkdir()
  for name in sorted(p.name for p in tmp_path.iterdir()) + ["nothing.pt"]:
    assert name in fails(vq, tmp_path / name, tmp_path / "out"), name
    assert not (tmp_path / "out").exists()


def test_malicious_sources_are_errors(tmp_path):
  class Attack:
    def __reduce__(self):
      return os.mkdir, (str(tmp_path / "witness"),)

  with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
    archive.writestr("a/data.pkl", pickle.dumps({"model": {}, "args": Attack()}, 2))
  assert "asks for posix.mkdir" in fails(llamagen.main, tmp_path / "a.pt", tmp_path / "out")
  assert not (tmp_path / "witness").exists()


def test_bad_destinations_are_errors(tmp_path):
  (tmp_path / "file").write_text("mine")
  (tmp_path / "folder").mkdir()
  (tmp_path / "folder" / "thesis.txt").write_text("mine")
  for name in ("file", "folder", "file/below", "x" * 300):
    fails(llamagen_vq.main, GOLDEN / "vq_tiny.pt", tmp_path / name)
  assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "thesis.txt").read_text() == "mine"
  assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_an_old_checkpoint_is_replaced(tmp_path):
  for _ in range(2):
    assert run(llamagen_vq.main, GOLDEN / "vq_tiny.pt", tmp_path / "out").exit_code == 0
  assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_bad_exports_are_errors(tmp_path):
  good = tmp_path / "good"
  assert run(llamagen_vq.main, GOLDEN / "vq_tiny.pt", good).exit_code == 0
  (tmp_path / "folder.pt").mkdir()
  (tmp_path / "file").touch()
  for source, name in ((good, "a.npz"), (good, "folder.pt"), (good, "file/a.pt"), (tmp_path / "no", "a.pt")):
    fails(llamagen_vq.main, "--export", source, tmp_path / name)
  assert "another family" in fails(llamagen.main, "--export", good, tmp_path / "a.pt")
  fails(llamagen_vq.main, "--export", good, tmp_path / "a.pt", "--ema")
  (good / "params.safetensors").write_bytes(b"1234")
  fails(llamagen_vq.main, "--export", good, tmp_path / "a.pt")
  assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.pt", "good"]


@pytest.mark.parametrize(
  "args",
  [
    (),
    ("a.pt",),
    ("a.pt", "b", "c"),
    ("a.pt", "b", "--what"),
    ("a.pt", "b", "--image-size", "big"),
    ("a.pt", "b", "--image-size", "100"),
    ("a.pt", "b", "--config"),
    ("--export", "a", "b.pt", "--image-size", "256"),
  ],
)
def test_bad_command_lines_are_errors(args):
  fails(llamagen.main, *args)


def test_help():
  result = run(llamagen.main, "--help")
  assert result.exit_code == 0 and "--image-size" in result.stdout and result.stderr == ""
