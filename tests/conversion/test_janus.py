"""Conversion of Janus-Pro: every layout of files gives the same network, the released shapes, and errors of one line."""

import json
import re
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import AddedToken

from conversion import engine, hugging_face, janus, llamagen_vq, torch_files
from jaxspec.io import checkpoints, tensor_files
from jaxspec.io.text.language_tokenizer import load_tokenizer
from jaxspec.models.janus import JanusConfig
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig
from tests.conversion.array_tensor import ArrayTensor
from tests.conversion.commands import fails, works, write_fields
from tests.models import janus_golden as golden


@pytest.fixture
def source(tmp_path):
  """A copy of the stored folder with two parts."""
  return shutil.copytree(golden.FOLDER / "target", tmp_path / "source")


@pytest.fixture
def one_file(tmp_path):
  """A copy of the stored folder with one file, and a function that writes changed tensors into it."""
  folder = shutil.copytree(golden.FOLDER / "draft", tmp_path / "one")
  file = folder / "pytorch_model.bin"
  tensors = {name: tensor.read().astype(np.float32) for name, tensor in torch_files.read(file).items()}
  return folder, tensors, lambda changed: torch_files.write(file, changed)


def _edit(folder, *path, **changes):
  """Changes fields of an object in ``config.json``; `...` removes one."""
  document = json.loads((folder / "config.json").read_text())
  part = document
  for name in path:
    part = part[name]
  part.update(changes)
  for name in [name for name, value in changes.items() if value is ...]:
    del part[name]
  (folder / "config.json").write_text(json.dumps(document))


def _stored(folder):
  read = lambda path: {name: array.astype(np.float32) for name, array in load_file(path / checkpoints.PARAMS_FILE).items()}
  return read(folder), read(folder / janus.VQ_FOLDER)


def test_every_layout_of_files_gives_the_same_network(tmp_path, source):
  """Two parts of .bin, one .bin, one and two files of safetensors, in bfloat16 and float32."""
  line = works(janus.main, source, tmp_path / "out", "--config", write_fields(tmp_path, golden.FIELDS))
  assert line.count("\n") == 1 and "vision_model, aligner) is left out" in line and "5 x 5 codes" in line
  assert b'"BF16"' in (tmp_path / "out" / "params.safetensors").read_bytes()[:400]
  files = hugging_face.weight_files(source)
  arrays = {name: tensor.read() for name, tensor in hugging_face.read_tensors(source, files).items()}
  assert len(files) == 2 and {array.dtype for array in arrays.values()} == {np.dtype(ml_dtypes.bfloat16)}
  whole = {name: array.astype(np.float32) for name, array in arrays.items()}
  for file in (*files, source / "pytorch_model.bin.index.json"):
    file.unlink()
  first = dict(list(arrays.items())[:100])
  parts = {"a.safetensors": first, "b.safetensors": {name: arrays[name] for name in arrays.keys() - first.keys()}}
  index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
  layouts = {
    "bin": lambda folder: torch_files.write(folder / "pytorch_model.bin", whole),
    "safetensors": lambda folder: tensor_files.write(folder / "model.safetensors", arrays),
    "sharded": lambda folder: [
      *(tensor_files.write(folder / file, part) for file, part in parts.items()),
      (folder / "model.safetensors.index.json").write_text(json.dumps(index)),
    ],
  }
  expected = _stored(tmp_path / "out")
  for name, write in layouts.items():
    folder = shutil.copytree(source, tmp_path / name)
    write(folder)
    works(janus.main, folder, tmp_path / "again")
    for found, wanted in zip(_stored(tmp_path / "again"), expected):
      assert found.keys() == wanted.keys() and all(np.array_equal(found[leaf], wanted[leaf]) for leaf in wanted), name
  meta = checkpoints.read_config(tmp_path / "out")["meta"]
  assert meta["source"] == "source" and len(meta["source_sha256"]) == 64 and meta["licence"] == "unknown"


def test_float32_can_be_stored(tmp_path, one_file):
  folder, tensors, write = one_file
  write({name: array + np.float32(2**-20) for name, array in tensors.items()})
  works(janus.main, folder, tmp_path / "out", "--dtype", "float32")
  found = _stored(tmp_path / "out")[0]["gen_head.vision_head.bias"]
  np.testing.assert_array_equal(found, tensors["gen_head.vision_head.bias"] + np.float32(2**-20))


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1B", "7B"])
def test_the_released_shapes(size):
  """All names of the official classes are read once or left out; the config is the published one. Nothing is allocated."""
  document = json.loads((golden.FOLDER / "official_shapes.json").read_text())[f"Janus-Pro-{size}"]
  sources = {name: ArrayTensor(np.broadcast_to(np.float32(0), shape)) for name, shape in document["shapes"].items()}
  config, leaves = engine.match(sources, janus.FAMILY, janus.read_config(document["config"]))
  assert config == JanusConfig.named(size)
  of_vq = {
    name.removeprefix(janus.VQ_PREFIX): tensor for name, tensor in sources.items() if name.startswith(janus.VQ_PREFIX)
  }
  vq, vq_leaves = engine.match(of_vq, llamagen_vq.FAMILY, {})
  assert vq == LlamaGenVQConfig()

  tower = [name for name in sources if name.startswith(("vision_model.", "aligner."))]
  assert len(sources) == len(leaves) + len(vq_leaves) + len(tower) + len({"lm_head", "codebook_used"})
  of_leaves = {rule.to_target(name) for name in sources for rule in janus.RULES} - {None}
  assert of_leaves == leaves.keys() and not any(rule.to_target(name) for name in tower for rule in janus.RULES)
  count = lambda arrays: sum(int(np.prod(array.shape)) for array in arrays)
  whole, kept = count(sources.values()), count([*leaves.values(), *vq_leaves.values()])
  assert (whole, round(kept / 1e7)) == {"1B": (2_089_297_547, 156), "7B": (7_420_434_059, 666)}[size]


def test_what_a_released_file_leaves_out(tmp_path, source):
  """Fields of the language model that equal the defaults of its class."""
  document = json.loads((golden.FOLDER / "official_shapes.json").read_text())["Janus-Pro-7B"]["config"]
  language = document["language_config"]
  for name in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"):
    del language[name]
  assert JanusConfig(**janus.read_config(document)) == JanusConfig()
  assert janus.read_config(document | {"language_config": language | {"rms_norm_eps": 1e-5}})["norm_eps"] == 1e-5
  roles = write_fields(tmp_path, {"user": "User", "assistant": "Assistant"} | golden.FIELDS)
  works(janus.main, source, tmp_path / "out", "--config", roles)
  assert checkpoints.load(tmp_path / "out", weights=False).config.user == "User"


def test_all_wrong_tensors_are_named_at_once(tmp_path, one_file):
  folder, tensors, write = one_file
  del tensors["gen_aligner.layers.2.bias"]
  tensors["gen_embed.weight"] = tensors["gen_embed.weight"][:, :5]
  tensors["language_model.model.layers.0.self_attn.q_proj.bias"] = tensors["gen_aligner.layers.0.bias"]
  tensors["extra_aligner.layers.0.bias"] = tensors["gen_aligner.layers.0.bias"]
  write(tensors)
  line = fails(janus.main, folder, tmp_path / "out")
  assert "missing gen_aligner.layers.2.bias" in line and "gen_embed.weight has shape [256, 5], must have [256, 8]" in line
  assert "unknown extra_aligner.layers.0.bias" in line
  assert "unknown language_model.model.layers.0.self_attn.q_proj.bias" in line
  del tensors["gen_vision_model.quant_conv.weight"]
  for name in ("extra_aligner.layers.0.bias", "language_model.model.layers.0.self_attn.q_proj.bias"):
    del tensors[name]
  _, good, _ = one_file
  tensors |= {
    "gen_aligner.layers.2.bias": good["gen_aligner.layers.0.bias"],
    "gen_embed.weight": np.zeros((256, 8), np.float32),
  }
  write(tensors)
  assert "missing quant_conv.weight" in fails(janus.main, folder, tmp_path / "out")
  assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_values_that_are_not_finite(tmp_path, one_file):
  folder, tensors, write = one_file
  tensors["gen_head.vision_head.bias"] = np.full(256, np.nan, np.float32)
  write(tensors)
  assert "gen_head.vision_head.bias holds NaN" in fails(janus.main, folder, tmp_path / "out")
  assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("path", "changes", "words"), [
  ((), dict(model_type="janus"), "model_type 'multi_modality' in .*config.json, we instead got 'janus'"),
  ((), dict(gen_head_config=...), "must have gen_head_config, which JanusFlow and DeepSeek-VL lack"),
  ((), dict(language_config=...), "'language_config' is missing"),
  (("gen_aligner_config",), dict(params=...), "'params' is missing"),
  (("gen_aligner_config", "params"), dict(projector_type="linear"), "we instead got an aligner linear"),
  (("gen_vision_config",), dict(cls="VQ-8"), "we instead got an image tokenizer VQ-8"),
  (("language_config",), dict(attention_bias=True, head_dim=8), "biases in its language model and heads of another width"),
  (("language_config",), dict(rope_scaling={"type": "linear", "factor": 2.0}), "rotary positions linear"),
  (("language_config",), dict(hidden_act="gelu"), "hidden_act 'silu'"),
  (("language_config",), dict(hidden_size=65), "width divisible by the heads"),
  (("language_config",), dict(vocab_size=402), "begin_image below 402"),
  (("gen_head_config", "params"), dict(image_token_size=255), "gen_embed.weight has shape .256, 8., must have .255, 8."),
  (("gen_aligner_config", "params"), dict(depth="two"), "aligner_depth as an integer"),
])  # fmt: skip
def test_folders_that_do_not_fit(tmp_path, source, path, changes, words):
  _edit(source, *path, **changes)
  assert re.search(words, fails(janus.main, source, tmp_path / "out"))
  assert not (tmp_path / "out").exists()


def test_vocabularies_that_do_not_fit(tmp_path, source):
  text = source / "tokenizer.json"
  whole = text.read_text()
  text.write_text(whole.replace("<begin_of_image>", "<begin>"))
  assert "<begin_of_image> is missing" in fails(janus.main, source, tmp_path / "out")
  text.write_text("[]")
  assert "Corrupt" in fails(janus.main, source, tmp_path / "out")
  text.write_text(whole)
  large = load_tokenizer(source)
  large.add_special_tokens([AddedToken(f"<{number}>") for number in range(50)])
  large.save(str(text))
  assert "at most 448 tokens, we instead got 459" in fails(janus.main, source, tmp_path / "out")
  text.unlink()
  assert "(--tokenizer)" in fails(janus.main, source, tmp_path / "out")
  (tmp_path / "text.json").write_text(whole)
  works(janus.main, source, tmp_path / "out", "--tokenizer", tmp_path / "text.json")
  assert (tmp_path / "out" / "tokenizer.json").read_text() == whole


def test_parts_that_are_missing_or_damaged(tmp_path, source):
  part = source / "pytorch_model-00002-of-00002.bin"
  data = part.read_bytes()
  part.write_bytes(data[: len(data) // 2])
  assert "pytorch_model-00002-of-00002.bin" in fails(janus.main, source, tmp_path / "out")
  part.unlink()
  assert "pytorch_model-00002-of-00002.bin of pytorch_model.bin.index.json missing" in fails(
    janus.main, source, tmp_path / "out"
  )
  (source / "pytorch_model.bin.index.json").unlink()
  assert "Incomplete" in fails(janus.main, source, tmp_path / "out")
  (source / "pytorch_model-00001-of-00002.bin").unlink()
  assert "No weights in" in fails(janus.main, source, tmp_path / "out")
  assert "is none" in fails(janus.main, tmp_path / "nothing", tmp_path / "out")
  assert "No such option" in fails(janus.main, "--export", source, tmp_path / "out")
