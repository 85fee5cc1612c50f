"""Conversion of Emu3 networks: released folders, both directions, sizes of images, vocabularies, files that do not fit."""

import base64
import json

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conversion import emu3, emu3_tokenizer, engine, hugging_face, torch_files
from jaxspec.io import checkpoints
from jaxspec.io.text.language_tokenizer import load_tokenizer
from jaxspec.models import registry
from jaxspec.models.language.emu3 import Emu3Config
from tests.conversion.commands import fails, works
from tests.models import emu3_golden as golden

SIZE = ("--ratio", "3:2", "--image-area", 96)


@pytest.fixture
def hub(tmp_path):
  return golden.write_download(tmp_path / "hub")


def _tensors(folder):
  tensors = hugging_face.read_tensors(folder, hugging_face.weight_files(folder))
  return {name: tensor.read() for name, tensor in tensors.items()}


@pytest.mark.slow
def test_a_download_becomes_one_folder(hub, tmp_path):
  """The network in bfloat16 from two shards, its vocabulary, and the vision tokenizer that lies beside it."""
  line = works(emu3.main, hub, tmp_path / "out", "--ratio", "3:2")
  assert line.endswith("out: 2 layers, width 32, 4 heads over 2; images of 6 x 4 codes\n")
  assert b'"BF16"' in (tmp_path / "out" / "params.safetensors").read_bytes()[:400]
  params, tensors = checkpoints.flatten(checkpoints.load(tmp_path / "out").params), _tensors(hub)
  for name, path in (
    ("model.layers.1.mlp.up_proj.weight", "layers_1.mlp.up_proj.weight"),
    ("lm_head.weight", "lm_head.weight"),
  ):
    np.testing.assert_array_equal(params[path], tensors[name].astype(np.float32))
  config = checkpoints.load(tmp_path / "out").config
  special = golden.TEXT["special"]
  names = {
    "begin_text": "bos", "end_text": "eos", "begin_codes": "img", "begin_image": "boi", "end_image": "eoi", "end_row": "eol",
    "end_frame": "eof", "first_code": "first_code",
  }  # fmt: skip
  assert {field: getattr(config, field) for field in names} == {field: special[name] for field, name in names.items()}
  assert config.prompt_ids(config.null_text) == golden.TEXT["negative_ids"] and config.suffix == golden.TEXT["suffix"]
  assert (config.max_positions, config.rope_theta, config.num_codes) == (256, 1e6, 24)
  assert checkpoints.load(tmp_path / "out" / "vq").config == golden.VQ
  texts = [row["text"] for row in golden.TEXT["texts"]]
  assert load_tokenizer(tmp_path / "out").decode(golden.TEXT["texts"][0]["ids"]) == texts[0]


@pytest.mark.slow
def test_prompts_can_be_others(hub, tmp_path):
  options = ("--suffix", "", "--negative-prompt", "blurry", "--image-tokenizer", hub.parent / "Emu3-VisionTokenizer")
  works(emu3.main, hub, tmp_path / "out", *SIZE, *options)
  config = checkpoints.load(tmp_path / "out").config
  text = load_tokenizer(tmp_path / "out")
  assert config.suffix == "" and list(config.null_text) == text.encode("blurry").ids


@pytest.mark.slow
def test_other_forms_of_files(hub, tmp_path):
  """Export and back; one .bin file; a tokenizer.json instead of the released vocabulary."""
  works(emu3.main, hub, tmp_path / "out", *SIZE)
  works(emu3.main, "--export", tmp_path / "out", tmp_path / "back")
  source, back = _tensors(hub), load_file(tmp_path / "back" / "model.safetensors")
  assert source.keys() == back.keys() and all(
    (source[name].astype(np.float32) == array).all() for name, array in back.items()
  )
  works(emu3.main, tmp_path / "back", tmp_path / "again", *SIZE)
  (tmp_path / "back" / "model.safetensors").unlink()
  torch_files.write(tmp_path / "back" / "pytorch_model.bin", back)
  (tmp_path / "back" / "tokenizer.json").unlink()
  works(emu3.main, tmp_path / "back", tmp_path / "bin", *SIZE, "--tokenizer", tmp_path / "out" / "tokenizer.json")
  first, *others = (load_file(tmp_path / name / checkpoints.PARAMS_FILE) for name in ("out", "again", "bin"))
  for other in others:
    assert first.keys() == other.keys() and all((np.asarray(first[name]) == np.asarray(other[name])).all() for name in first)
  assert not (tmp_path / "bin" / "vq").exists()  # no vision tokenizer beside the source


@pytest.mark.slow
def test_the_published_shapes():
  """All 291 names of the official constructor, without values; the released size of images."""
  official = json.loads((golden.FOLDER / "official_shapes.json").read_text())["Emu3-Gen"]
  fields = emu3.read_config(official["config"])
  assert registry.make_config("emu3", fields) == Emu3Config()

  class Shape:
    def __init__(self, shape):
      self.shape = tuple(shape)

    def read(self):
      raise AssertionError("must not be read")

  sources = {name: Shape(shape) for name, shape in official["shapes"].items()}
  config, leaves = engine.match(sources, emu3.FAMILY, fields)
  assert len(sources) == len(leaves) == 291 and leaves["lm_head.weight"].shape == (184622, 4096)
  assert config.image_rows.num_tokens == 8190
  assert sum(int(np.prod(leaf.shape)) for leaf in leaves.values()) == 8_492_011_520


def test_sizes_are_the_official_ones():
  for ratio, area, rows, columns in golden.TEXT["sizes"]:
    assert emu3.image_size(ratio, area) == {"rows": rows, "columns": columns}, (ratio, area)
  for ratio in ("1", "0:1", "1:-1", "1.5:1", "1:1:1"):
    with pytest.raises(ValueError, match="a ratio such as 1:1 or 16:9"):
      emu3.image_size(ratio, 518400)
  with pytest.raises(ValueError, match="at least one code in an image, 1:1 of 9 pixels has 0 x 0"):
    emu3.image_size("1:1", 9)


def test_all_wrong_tensors_are_named_at_once(hub, tmp_path):
  tensors = _tensors(hub)
  del tensors["model.layers.1.self_attn.k_proj.weight"]
  tensors["model.norm.weight"] = tensors["model.norm.weight"][:5]
  tensors["extra"] = np.zeros(3, np.float32)
  for file in hugging_face.weight_files(hub):
    file.unlink()
  (hub / "model.safetensors.index.json").unlink()
  save_file(tensors, hub / "model.safetensors")
  line = fails(emu3.main, hub, tmp_path / "out", *SIZE)
  assert "missing model.layers.1.self_attn.k_proj.weight" in line and "unknown extra" in line
  assert "model.norm.weight has shape [5], must have [32]" in line
  (hub / "model.safetensors").unlink()
  assert "No weights in" in fails(emu3.main, hub, tmp_path / "out", *SIZE)
  assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_folders_that_do_not_fit(hub, tmp_path):
  document = json.loads((hub / "config.json").read_text())
  for change, words in (
    ({"model_type": "emu3"}, "model_type 'Emu3'"),
    ({"hidden_act": "gelu"}, "hidden_act 'silu'"),
    ({"tie_word_embeddings": True}, "no tie embeddings"),
    ({"attention_bias": True}, "no attention bias"),
    ({"hidden_size": 33}, "width divisible by the heads"),
    ({"head_dim": 16}, "heads that divide the width, we instead got heads of 16"),
    ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "plain rotary positions, we instead got linear"),
    ({"vocab_size": 100}, "must have [100, 32]"),
    ({"image_area": "big"}, "a positive number of pixels as image_area"),
    ({"hidden_size": None}, "config.json"),
  ):
    (hub / "config.json").write_text(json.dumps(document | change))
    assert words in fails(emu3.main, hub, tmp_path / "out", "--ratio", "3:2"), change
  (hub / "config.json").write_text(json.dumps({k: v for k, v in document.items() if k != "hidden_size"}))
  assert "config.json: 'hidden_size' is missing" in fails(emu3.main, hub, tmp_path / "out")
  (hub / "config.json").write_text(json.dumps(document))
  assert "Must have model_type 'Emu3VisionVQ'" in fails(emu3.main, hub, tmp_path / "out", "--image-tokenizer", hub)
  assert "is none" in fails(emu3.main, hub, tmp_path / "out", "--image-tokenizer", tmp_path / "nothing")
  assert "is none" in fails(emu3.main, tmp_path / "nothing", tmp_path / "out")
  assert "nor --ratio nor --image-area nor" in fails(emu3.main, "--export", hub, tmp_path / "out", *SIZE)
  (hub / "model-00002-of-00002.safetensors").unlink()
  assert "model-00002-of-00002.safetensors of model.safetensors.index.json missing" in fails(
    emu3.main, hub, tmp_path / "out"
  )
  assert not (tmp_path / "out").exists()


def test_vocabularies_that_do_not_fit(hub, tmp_path):
  ranks, special = hub / emu3_tokenizer.RANKS_FILE, hub / emu3_tokenizer.IMAGE_TOKENS_FILE
  good, images = ranks.read_text(), special.read_text()
  lines = good.splitlines()
  letter = base64.b64encode(b"ab").decode()
  for text, words in (
    ("nonsense\n" + good, "line 1 is no base64 string and a rank"),
    (good + f"{letter} 3\n", "rank 3 belongs to two strings"),
    (good + f"{letter} 999\n", "different strings with the ranks 0 to 456"),
    ("\n".join([f"{letter} 0", *lines[1:]]), "1 bytes have no token"),
  ):
    ranks.write_text(text)
    assert words in fails(emu3.main, hub, tmp_path / "out", *SIZE)
  ranks.write_text(good)
  special.write_text(images.replace("<|image end|>\n", ""))
  assert "<|image end|> is missing" in fails(emu3.main, hub, tmp_path / "out", *SIZE)
  special.write_text(images + "<|visual token 000024|>\n")
  assert "a tokenizer of at most 691 tokens, we instead got 692" in fails(emu3.main, hub, tmp_path / "out", *SIZE)
  special.unlink()
  assert "emu3_vision_tokens.txt missing" in fails(emu3.main, hub, tmp_path / "out", *SIZE)
  ranks.unlink()
  assert "the vocabulary of" in fails(emu3.main, hub, tmp_path / "out", *SIZE)
  assert not (tmp_path / "out").exists()


def test_half_precision_weights(hub, tmp_path):
  """bfloat16 is stored as it is; float32 and float16 files are rounded to it, or kept with --dtype float32."""
  tensors = {name: array.astype(np.float32) * 1.001 for name, array in _tensors(hub).items()}
  for file in hugging_face.weight_files(hub):
    file.unlink()
  (hub / "model.safetensors.index.json").unlink()
  for dtype in (np.float32, np.float16):
    save_file({name: array.astype(dtype) for name, array in tensors.items()}, hub / "model.safetensors")
    out = tmp_path / np.dtype(dtype).name
    works(emu3.main, hub, out / "rounded", *SIZE)
    works(emu3.main, hub, out / "kept", *SIZE, "--dtype", "float32")
    kept, rounded = (load_file(out / name / checkpoints.PARAMS_FILE)["norm.weight"] for name in ("kept", "rounded"))
    expected = tensors["model.norm.weight"].astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(kept, expected)
    np.testing.assert_array_equal(np.asarray(rounded, np.float32), expected.astype(jnp.bfloat16).astype(np.float32))
