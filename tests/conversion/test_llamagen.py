"""Conversion of LlamaGen files: wrappers, inference of configs, round trips, errors."""

import dataclasses
import hashlib
import itertools
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from conversion import engine, llamagen, llamagen_vq, torch_files
from jaxspec.io import checkpoints
from jaxspec.models.llamagen import PUBLISHED_SIZES, LlamaGenConfig
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig
from tests.conversion.array_tensor import ArrayTensor
from tests.conversion.commands import fails, run, write_fields
from tests.models.llamagen_parity import FIELDS, GOLDEN

TINY = LlamaGenConfig(num_layers=2, dim=16, num_heads=2, vocab_size=11, num_tokens=9, num_classes=3, multiple_of=8)
TINY_VQ = LlamaGenVQConfig(
  base_channels=32, multipliers=(1, 2), num_res_blocks=1, z_channels=6, codebook_size=5, codebook_dim=3
)


def _params(config, seed=0):
  """Random leaves by path."""
  rng = np.random.default_rng(seed)
  template = engine.template_of(config)
  return {path: rng.normal(size=shape).astype(np.float32) for path, shape in template.items()}


def _source(config, family, seed=0):
  """Random official state dict."""
  return engine.to_state_dict(_params(config, seed), family, config)


def _leaves(folder):
  return load_file(Path(folder) / checkpoints.PARAMS_FILE)


def _same(got, expected):
  assert got.keys() == expected.keys()
  for name, array in expected.items():
    assert got[name].dtype == array.dtype and got[name].shape == array.shape, name
    assert got[name].tobytes() == array.tobytes(), name


# Official files.


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("wrapper_*.pt")), ids=lambda file: file.stem)
def test_wrappers_are_read(tmp_path, file):
  result = run(llamagen.main, file, tmp_path / "out", "--config", write_fields(tmp_path, FIELDS["wrapper"]))
  assert result.exit_code == 0, result.output
  checkpoint = checkpoints.load(tmp_path / "out")
  reference = load_file(GOLDEN / "wrapper.safetensors")
  got = engine.to_state_dict(checkpoints.flatten(checkpoint.params), llamagen.FAMILY)
  if file.stem == "wrapper_bf16":
    reference = {k: np.asarray(jnp.asarray(v).astype(jnp.bfloat16).astype(jnp.float32)) for k, v in reference.items()}
  _same(got, reference)
  assert checkpoint.meta == {
    "source": file.name,
    "source_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    "licence": "unknown",
  }


@pytest.mark.parametrize("stem", ["c2i_tiny", "t2i_tiny", "gqa_tiny", "vq_tiny"])
def test_pt_and_safetensors_give_the_same(tmp_path, stem):
  command = llamagen_vq.main if stem == "vq_tiny" else llamagen.main
  options = () if stem == "vq_tiny" else ("--config", write_fields(tmp_path, FIELDS[stem]))
  for suffix in ("pt", "safetensors"):
    result = run(command, GOLDEN / f"{stem}.{suffix}", tmp_path / suffix, *options)
    assert result.exit_code == 0, result.output
    checkpoints.load(tmp_path / suffix)
  _same(_leaves(tmp_path / "pt"), _leaves(tmp_path / "safetensors"))


def test_the_command_line_itself(tmp_path):
  """Runs one real process in which PyTorch cannot be imported."""
  blocked = "import sys, runpy; sys.modules['torch'] = None; "
  blocked += "runpy.run_module('conversion.llamagen', run_name='__main__')"
  options = ["--config", str(write_fields(tmp_path, FIELDS["c2i_tiny"]))]
  command = [sys.executable, "-c", blocked, str(GOLDEN / "c2i_tiny.pt"), str(tmp_path / "out"), *options]
  done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
  assert (done.returncode, done.stderr) == (0, "")
  assert done.stdout.startswith("Wrote ") and done.stdout.count("\n") == 1
  assert checkpoints.load(tmp_path / "out").config.num_heads == 2


def test_averaged_weights_of_a_tokenizer_are_read(tmp_path):
  source = _source(TINY_VQ, llamagen_vq.FAMILY)
  average = _source(TINY_VQ, llamagen_vq.FAMILY, seed=1)
  torch_files.write(tmp_path / "a.pt", {"model": source, "ema": average, "steps": 5})
  for options, expected in (((), source), (("--ema",), average)):
    result = run(llamagen_vq.main, tmp_path / "a.pt", tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    params = checkpoints.flatten(checkpoints.load(tmp_path / "out").params)
    _same(engine.to_state_dict(params, llamagen_vq.FAMILY, TINY_VQ), expected)
  assert checkpoints.read_config(tmp_path / "out")["meta"]["source_weights"] == "ema"


def test_wrappers_are_searched_in_their_order():
  first, second, third = ({"a": ArrayTensor(np.float32(i))} for i in range(3))
  assert engine.unwrap({"state_dict": third, "module": second, "model": first}) == first
  assert engine.unwrap({"state_dict": third, "module": second}) == second
  assert engine.unwrap({"steps": 4, "state_dict": third}) == third
  assert engine.unwrap(first) == first
  for content in ({}, {"optimizer": {}}, [1], 3, {"ema": first}):
    with pytest.raises(ValueError, match="Must have a state dict"):
      engine.unwrap(content)


def test_wrappers_in_wrappers_are_opened():
  state_dict = {"a": ArrayTensor(np.float32(0))}
  assert engine.unwrap({"epoch": 3, "trainer": {"state_dict": {"module": state_dict}}}) == state_dict
  assert engine.unwrap({"ema": {"module": state_dict}, "model": {}}, ema=True) == state_dict
  trainer = {"epoch": 3, "trainer": {"var_wo_ddp": state_dict, "vae_local": {}}, "args": {}}
  assert engine.unwrap(trainer, wrappers=("var_wo_ddp",)) == state_dict
  circle = {}
  circle["model"] = circle
  assert engine.unwrap(circle) == circle  # no tensors of a network, an error of matching


@pytest.mark.parametrize(
  ("written", "read"),
  [
    ("_orig_mod.norm.weight", "norm.weight"),
    ("module.norm.weight", "norm.weight"),
    ("module._orig_mod.norm.weight", "norm.weight"),
    ("_orig_mod.module.norm.weight", "norm.weight"),
    ("module.module.norm.weight", "norm.weight"),
    ("layers.0._orig_mod.attention._checkpoint_wrapped_module.wo", "layers.0.attention.wo"),
    ("_fsdp_wrapped_module.norm._orig_mod", "norm._orig_mod"),
    ("a_orig_mod.module.b", "a_orig_mod.module.b"),
  ],
)
def test_what_compilers_and_devices_add_to_names_is_dropped(written, read):
  tensor = ArrayTensor(np.float32(0))
  assert engine.unwrap({"model": {written: tensor}}) == {read: tensor}
  assert engine.unwrap({written: tensor, "step": 3}) == {read: tensor, "step": 3}


def test_names_that_would_become_one_are_left():
  both = {"module.a": ArrayTensor(np.float32(0)), "module._orig_mod.a": ArrayTensor(np.float32(1))}
  assert engine.unwrap(both) == both
  some = {"module.a": ArrayTensor(np.float32(0)), "b": ArrayTensor(np.float32(1))}
  assert engine.unwrap(some) == some


def test_files_of_training_scripts_are_read_under_every_suffix(tmp_path):
  expected = _params(TINY)
  state_dict = {f"module._orig_mod.{name}": array for name, array in _source(TINY, llamagen.FAMILY).items()}
  for name in ("a.bin", "A.PT", "a.Ckpt"):
    torch_files.write(tmp_path / name, {"model": state_dict})
  save_file(state_dict, tmp_path / "A.SAFETENSORS")
  options = ("--config", write_fields(tmp_path, {"num_heads": 2, "num_tokens": 9}))
  for name in ("a.bin", "A.PT", "a.Ckpt", "A.SAFETENSORS"):
    result = run(llamagen.main, tmp_path / name, tmp_path / "out", *options)
    assert result.exit_code == 0, result.output
    _same(_leaves(tmp_path / "out"), expected)


# Inference of configs.


PUBLISHED = [
  pytest.param(model_type, name, marks=() if name == "GPT-3B" else pytest.mark.slow)
  for model_type, name in itertools.product(["c2i", "t2i"], PUBLISHED_SIZES)
]


def _template(config):
  """Shapes of a deep network, with one traced block, since blocks are equal."""
  shapes = engine.template_of(dataclasses.replace(config, num_layers=1))
  block = {path: shape for path, shape in shapes.items() if path.startswith("layers_0.")}
  names = ((path, path.replace("layers_0.", f"layers_{layer}.")) for layer in range(config.num_layers) for path in block)
  return shapes | {name: block[path] for path, name in names}


@pytest.mark.parametrize("model_type, name", PUBLISHED)
def test_published_sizes_need_no_config(name, model_type):
  config = LlamaGenConfig.named(name, model_type=model_type)
  shapes = engine.source_shapes(llamagen.FAMILY, _template(config))
  assert llamagen.infer_config(shapes, {}) == config
  larger = llamagen.infer_config(shapes, {"image_size": 384})
  assert (larger.num_tokens, larger.num_heads) == (576, config.num_heads)


@pytest.mark.parametrize("name, count", [("VQ-16", 344), ("VQ-8", 300)])
def test_published_tokenizers(name, count):
  config = LlamaGenVQConfig.named(name)
  shapes = engine.source_shapes(llamagen_vq.FAMILY, engine.template_of(config))
  assert llamagen_vq.infer_config(shapes, {}) == config
  assert len(shapes) + len(llamagen_vq.FAMILY.buffers(config)) == count
  assert shapes["encoder.conv_blocks.1.res.0.conv2.weight"][2:] == (3, 3)
  assert shapes["quant_conv.weight"] == (8, 256, 1, 1)


def test_official_names_and_shapes():
  config = LlamaGenConfig.named("GPT-B")
  assert engine.template_of(config) == _template(config)
  shapes = engine.source_shapes(llamagen.FAMILY, _template(config))
  assert len(shapes) == 7 * 12 + 4
  assert shapes["layers.11.attention.wqkv.weight"] == (2304, 768)
  assert shapes["layers.0.feed_forward.w2.weight"] == (768, 2048)
  text = engine.source_shapes(llamagen.FAMILY, engine.template_of(LlamaGenConfig.named("GPT-B", model_type="t2i")))
  assert len(text) == 7 * 12 + 6
  assert text["cls_embedding.uncond_embedding"] == (120, 2048)


@given(dim=st.integers(8, 6000), hidden=st.integers(1, 40000))
def test_every_hidden_size_can_be_expressed(dim, hidden):
  config = LlamaGenConfig(dim=4 * dim, num_heads=1, **llamagen.ffn_fields(4 * dim, hidden))
  assert config.ffn_hidden == hidden


def test_user_fields_override_inferred_ones(tmp_path):
  fields = FIELDS["gqa_tiny"] | {"multiple_of": 16, "ffn_dim_multiplier": 1.3, "rope_base": 500.0}
  assert (
    run(llamagen.main, GOLDEN / "gqa_tiny.pt", tmp_path / "a", "--config", write_fields(tmp_path, fields)).exit_code == 0
  )
  config = checkpoints.load(tmp_path / "a").config
  assert (config.multiple_of, config.ffn_dim_multiplier, config.rope_base, config.num_kv_heads) == (16, 1.3, 500.0, 2)
  options = ("--config", write_fields(tmp_path, fields | {"vocab_size": 49}))
  line = fails(llamagen.main, GOLDEN / "gqa_tiny.pt", tmp_path / "b", *options)
  assert "output.weight has shape [50, 32], must have [49, 32]" in line


# Round trips.

_SETTINGS = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _round_trip(folder, config, family, command, fields, seed):
  params = _params(config, seed)
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir()
  checkpoints.save(folder / "start", config, checkpoints.unflatten({k: jax.device_put(v) for k, v in params.items()}))
  options = ("--config", write_fields(folder, fields)) if fields else ()
  previous = folder / "start"
  for step, suffix in enumerate((".pt", ".safetensors", ".pth")):
    file, converted = folder / f"file{step}{suffix}", folder / f"checkpoint{step}"
    for args in (("--export", previous, file), (file, converted, *options)):
      result = run(command, *args)
      assert result.exit_code == 0, result.output
    _same(_leaves(converted), params)
    previous = converted
  tensors = torch_files.read(folder / "file0.pt")["model"]
  _same(load_file(folder / "file1.safetensors"), {name: tensor.read() for name, tensor in tensors.items()})
  return checkpoints.load(previous).config


@_SETTINGS
@given(
  layers=st.integers(1, 2),
  kv_heads=st.sampled_from([1, 2]),
  group=st.integers(1, 3),
  head_dim=st.sampled_from([4, 8]),
  hidden=st.integers(1, 90),
  text=st.booleans(),
  seed=st.integers(0, 2**32 - 1),
)
def test_transformers_round_trip(tmp_path, layers, kv_heads, group, head_dim, hidden, text, seed):
  heads = kv_heads * group
  config = LlamaGenConfig(
    model_type="t2i" if text else "c2i",
    num_layers=layers,
    dim=heads * head_dim,
    num_heads=heads,
    num_kv_heads=kv_heads if group > 1 else None,
    vocab_size=7 + layers,
    num_tokens=4,
    prefix_len=5 if text else 1,
    num_classes=3 if not text else 1000,
    caption_dim=6 if text else 2048,
    **llamagen.ffn_fields(heads * head_dim, hidden),
  )
  fields = {"num_heads": heads, "num_tokens": 4}
  assert _round_trip(tmp_path / "r", config, llamagen.FAMILY, llamagen.main, fields, seed) == config


@pytest.mark.slow
@_SETTINGS
@given(
  multipliers=st.lists(st.integers(1, 2), min_size=1, max_size=3).map(tuple),
  blocks=st.integers(1, 2),
  z=st.integers(1, 9),
  codes=st.integers(1, 9),
  width=st.integers(1, 5),
  seed=st.integers(0, 2**32 - 1),
)
def test_tokenizers_round_trip(tmp_path, multipliers, blocks, z, codes, width, seed):
  config = LlamaGenVQConfig(32, multipliers, blocks, z, codes, width)
  assert _round_trip(tmp_path / "r", config, llamagen_vq.FAMILY, llamagen_vq.main, {}, seed) == config


def test_exported_tokenizers_have_the_buffer_the_official_loader_demands(tmp_path):
  _round_trip(tmp_path / "r", TINY_VQ, llamagen_vq.FAMILY, llamagen_vq.main, {}, 0)
  buffer = torch_files.read(tmp_path / "r" / "file0.pt")["model"]["quantize.codebook_used"].read()
  assert buffer.shape == (65536,) and not buffer.any()


# Errors: exit status 2, one line, nothing written.


@pytest.fixture
def source(tmp_path):
  """State dict of a tiny transformer, a function that stores a changed copy, and its JSON file."""
  tensors = _source(TINY, llamagen.FAMILY)

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
  tensors = {k: jax.device_put(v) for k, v in _source(TINY, llamagen.FAMILY).items()}
  if dtype == np.float64:
    file = source({"norm.weight": weight})
  else:
    file = tmp_path / "x.safetensors"
    save_any(tensors | {"norm.weight": weight}, file)
  assert run(llamagen.main, file, tmp_path / "out", *source.options).exit_code == 0
  got = _leaves(tmp_path / "out")["norm.weight"]
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
