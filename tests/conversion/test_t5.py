"""Conversion of T5 encoders: layouts of the hub, both directions, files that do not fit."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conversion import engine, t5, torch_files
from conversion.hugging_face import CONFIG_FILE, SAFE_FILE
from jaxspec.io import checkpoints
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.io.text.t5_tokenizer import SENTENCEPIECE_FILE
from jaxspec.models.text_encoders.t5 import T5Config
from tests import t5_folders
from tests.conversion.commands import fails, works

TABLE, COPY = "shared.weight", "encoder.embed_tokens.weight"
WI = "encoder.block.0.layer.1.DenseReluDense.wi.weight"


def _leaves(folder):
  return load_file(folder / checkpoints.PARAMS_FILE)


def _same(got, expected):
  assert got.keys() == expected.keys()
  for name, array in expected.items():
    np.testing.assert_array_equal(got[name], array, err_msg=name)


def test_round_trip(tmp_path):
  """Tensors, config and both tokenizers, without the decoder in the hub's files."""
  names = (TOKENIZER_FILE, SENTENCEPIECE_FILE)
  folder = t5_folders.hub(tmp_path / "hub", tokenizers=names)
  own = load_file(folder / SAFE_FILE)
  decoder = {"decoder.final_layer_norm.weight": np.ones(8, np.float32), "lm_head.weight": own[TABLE], COPY: own[TABLE]}
  decoder["decoder.block.0.layer.2.DenseReluDense.wi_0.weight"] = np.ones((12, 8), np.float32)
  save_file({name: np.copy(array) for name, array in (own | decoder).items()}, folder / SAFE_FILE)
  line = works(t5.main, folder, tmp_path / "ours")
  assert line.endswith("T5 encoder, 2 layers, width 8, 3 heads of 4, 512 tokens\n")
  works(t5.main, "--export", tmp_path / "ours", tmp_path / "back")
  _same(load_file(tmp_path / "back" / SAFE_FILE), own)
  works(t5.main, tmp_path / "back", tmp_path / "again")
  _same(_leaves(tmp_path / "again"), _leaves(tmp_path / "ours"))
  assert checkpoints.load(tmp_path / "again").config == t5_folders.TINY
  for name in names:
    assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_every_layout_of_weights_gives_the_same(tmp_path):
  folder = t5_folders.hub(tmp_path / "hub")
  works(t5.main, folder, tmp_path / "safe")
  expected, own = _leaves(tmp_path / "safe"), load_file(folder / SAFE_FILE)
  (folder / SAFE_FILE).unlink()
  names = sorted(own)
  parts = {"pytorch_model-00001-of-00002.bin": names[:9], "pytorch_model-00002-of-00002.bin": names[9:]}
  for file, part in parts.items():
    torch_files.write(folder / file, {name: own[name] for name in part})
  index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
  (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
  works(t5.main, folder, tmp_path / "bin")
  _same(_leaves(tmp_path / "bin"), expected)
  (folder / "pytorch_model.bin.index.json").unlink()
  save_file({COPY if name == TABLE else name: array for name, array in own.items()}, folder / SAFE_FILE)
  works(t5.main, folder, tmp_path / "copy")  # the table under its other name
  _same(_leaves(tmp_path / "copy"), expected)


def test_tensors_that_do_not_fit(tmp_path):
  folder, out = t5_folders.hub(tmp_path / "hub"), tmp_path / "out"
  own = load_file(folder / SAFE_FILE)
  save = lambda changes: save_file({k: v for k, v in (own | changes).items() if v is not None}, folder / SAFE_FILE)
  save({COPY: own[TABLE] + 1})
  assert f"{TABLE} and {COPY}" in fails(t5.main, folder, out)
  save({WI: np.ones((12, 8), np.float32)})
  assert f"has {WI} of the first T5" in fails(t5.main, folder, out)
  bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
  last = "encoder.block.1.layer.0.SelfAttention.q.weight"
  save({bias: None, last: own[last][:5], "encoder.block.7.layer.0.layer_norm.weight": np.ones(8, np.float32)})
  line = fails(t5.main, folder, out)
  assert f"missing {bias}" in line and f"{last} has shape [5, 8], must have [12, 8]" in line
  assert "unknown encoder.block.7.layer.0.layer_norm.weight" in line
  save({last: own[last].astype(np.int32)})  # detected on reading, after others were written
  assert f"real floating-point weights, {last} is int32" in fails(t5.main, folder, out)
  assert not out.exists() and [p.name for p in tmp_path.iterdir()] == ["hub"]


@pytest.mark.parametrize(
  ("changes", "words"),
  [
    ({"feed_forward_proj": "relu"}, "'gated-gelu' (T5 1.1, Flan-T5), we instead got 'relu'"),
    ({"feed_forward_proj": ...}, "we instead got 'relu'"),
    ({"model_type": "umt5"}, "model_type 't5'"),
    ({"d_kv": ...}, "'d_kv' is missing"),
    ({"num_layers": 3}, "missing encoder.block.2.layer.0.SelfAttention.q.weight"),
    ({"vocab_size": 399}, "must have [399, 8]"),
    ({"relative_attention_num_buckets": 30}, "divisible by 4"),
  ],
)
def test_configs_that_do_not_fit(tmp_path, changes, words):
  folder = t5_folders.hub(tmp_path / "hub")
  document = {k: v for k, v in (t5_folders.document() | changes).items() if v is not ...}
  (folder / CONFIG_FILE).write_text(json.dumps(document))
  assert words in fails(t5.main, folder, tmp_path / "out")


def test_sources_that_are_no_folders_of_the_hub(tmp_path):
  assert "is none" in fails(t5.main, tmp_path / "nothing", tmp_path / "out")
  folder = t5_folders.hub(tmp_path / "hub")
  (folder / TOKENIZER_FILE).write_text("{}")
  assert "Corrupt tokenizer" in fails(t5.main, folder, tmp_path / "out")
  small = t5_folders.hub(tmp_path / "small", T5Config(vocab_size=99, dim=4, num_layers=1, num_heads=1, ffn_hidden=4))
  assert "at most 99 tokens" in fails(t5.main, small, tmp_path / "out")
  shutil.rmtree(tmp_path / "small")
  with pytest.raises(ValueError, match="of a folder of the Hugging Face hub, convert that first"):
    checkpoints.load(folder)


class _Shape:
  """A tensor without values, for matching only."""

  def __init__(self, shape):
    self.shape = tuple(shape)

  def read(self):
    raise AssertionError("must not be read")


def test_official_shapes():
  """All names of flan-t5-xl are known or ignored."""
  shapes = json.loads((t5_folders.GOLDEN / "flan_t5_xl_shapes.json").read_text())
  assert shapes.pop(COPY) == shapes[TABLE]
  source = {name: _Shape(shape) for name, shape in shapes.items()}
  fields = t5.read_config(t5_folders.document(T5Config()))
  config, leaves = engine.match(source, t5.FAMILY, fields)
  assert config == T5Config.named("xl") and len(leaves) == 219
  assert {path: leaf.shape for path, leaf in leaves.items()} == engine.template_of(config)


def test_configs_that_make_no_network(tmp_path):
  """Errors name the damaged field, for any JSON in place of a number; also when the result is read."""
  folder = t5_folders.hub(tmp_path / "hub")
  document = json.loads((folder / CONFIG_FILE).read_text())
  for wrong in ({"num_layers": "2"}, {"num_heads": 0}, {"vocab_size": None}):
    (folder / CONFIG_FILE).write_text(json.dumps(document | wrong))
    assert "Error: " in fails(t5.main, folder, tmp_path / "deep" / "out") and not (tmp_path / "deep").exists()
  (folder / CONFIG_FILE).write_text(json.dumps(document))
  works(t5.main, folder, tmp_path / "ours")
  own = json.loads((tmp_path / "ours" / CONFIG_FILE).read_text())
  (tmp_path / "ours" / CONFIG_FILE).write_text(json.dumps(own | {"config": own["config"] | {"num_layers": "2"}}))
  with pytest.raises(ValueError, match="ours/config.json: .*") as error:
    checkpoints.load(tmp_path / "ours")
  assert "\n" not in str(error.value)


def test_weights_that_numpy_has_no_name_for(tmp_path):
  folder = t5_folders.hub(tmp_path / "hub")
  own = load_file(folder / SAFE_FILE)
  header = {"shared.weight": {"dtype": "F8_E4M3", "shape": list(own[TABLE].shape), "data_offsets": [0, own[TABLE].size]}}
  text = json.dumps(header).encode()
  (folder / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(own[TABLE].size))
  with pytest.raises(ValueError, match="16 to 64 bits, shared.weight is F8_E4M3"):
    engine.read_source(folder / "a.safetensors")["shared.weight"].read()
