"""Conversion of language models: folders of the hub and .gguf files, both directions, errors."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from conversion import engine, gpt_neo, llama, torch_files
from jaxspec.io import checkpoints
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE, load_tokenizer
from jaxspec.models.language.gpt_neo import GPTNeoConfig
from jaxspec.models.nn.rope_text import Rope
from tests.conversion.commands import fails, works
from tests.models.text_golden import GOLDEN, ROPE_CONFIGS

COMMANDS = {"gpt_neo": gpt_neo, "llama_untied": llama, "llama_tied": llama}


@pytest.fixture
def hub(tmp_path):
  """A copy of a stored folder with a tokenizer."""

  def copy(name="gpt_neo"):
    folder = shutil.copytree(GOLDEN / name, tmp_path / "hub")
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate("abcdefgh")}, []))
    tokenizer.save(str(folder / TOKENIZER_FILE))
    return folder

  return copy


def _edit(file, **changes):
  document = json.loads(file.read_text())
  document.update(changes)
  file.write_text(json.dumps({k: v for k, v in document.items() if v is not ...}))


def _leaves(folder):
  return load_file(folder / checkpoints.PARAMS_FILE)


def _same(got, expected):
  assert got.keys() == expected.keys()
  for name, array in expected.items():
    assert got[name].dtype == array.dtype and got[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("name", COMMANDS)
def test_hub_folders_round_trip(tmp_path, hub, name):
  command, folder = COMMANDS[name].main, hub(name)
  assert works(command, folder, tmp_path / "ours").count("\n") == 1
  works(command, "--export", tmp_path / "ours", tmp_path / "back")
  _same(load_file(tmp_path / "back" / "model.safetensors"), load_file(folder / "model.safetensors"))
  assert (tmp_path / "back" / TOKENIZER_FILE).read_bytes() == (folder / TOKENIZER_FILE).read_bytes()
  works(command, tmp_path / "back", tmp_path / "again")
  ours, again = (checkpoints.read_config(tmp_path / name) for name in ("ours", "again"))
  assert ours["config"] == again["config"] and ours["meta"]["source"] == "hub"
  load_tokenizer(tmp_path / "again")
  assert "exists" in fails(command, "--export", tmp_path / "ours", tmp_path / "back")


def test_every_layout_of_weights_gives_the_same(tmp_path, hub):
  folder = hub("llama_tied")
  works(llama.main, folder, tmp_path / "safe")
  expected = _leaves(tmp_path / "safe")
  tensors = load_file(folder / "model.safetensors")
  (folder / "model.safetensors").unlink()
  names = sorted(tensors)

  parts = {"model-1-of-2.safetensors": names[:7], "model-2-of-2.safetensors": names[7:]}
  for file, part in parts.items():
    save_file({name: tensors[name] for name in part}, folder / file)
  index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
  (folder / "model.safetensors.index.json").write_text(json.dumps(index))
  works(llama.main, folder, tmp_path / "sharded")
  _same(_leaves(tmp_path / "sharded"), expected)
  (folder / "model-2-of-2.safetensors").unlink()
  assert "model-2-of-2.safetensors" in fails(llama.main, folder, tmp_path / "no")
  for damage in ("{", "[]", '{"weight_map": {"a": "../b.safetensors"}}', '{"weight_map": 3}'):
    (folder / "model.safetensors.index.json").write_text(damage)
    assert "index.json" in fails(llama.main, folder, tmp_path / "no")
  (folder / "model.safetensors.index.json").unlink()

  # Missing parts are detected from the numbers in names.
  torch_files.write(folder / "pytorch_model-00001-of-00001.bin", tensors)
  for number, part in enumerate(parts.values(), 1):
    save_file({f"_orig_mod.{name}": tensors[name] for name in part}, folder / f"model-{number:05}-of-00002.safetensors")
  works(llama.main, folder, tmp_path / "numbered")
  _same(_leaves(tmp_path / "numbered"), expected)
  (folder / "model-00001-of-00002.safetensors").unlink()
  assert "model-00001-of-00002.safetensors of 00002 missing" in fails(llama.main, folder, tmp_path / "no")

  # A tied network's output matrix is a copy; a bare network has no prefix.
  copies = {"lm_head.weight": tensors["model.embed_tokens.weight"]}
  for state_dict in (tensors | copies, {name.removeprefix("model."): array for name, array in tensors.items()}):
    torch_files.write(folder / "pytorch_model.bin", state_dict)
    works(llama.main, folder, tmp_path / "bin")
    _same(_leaves(tmp_path / "bin"), expected)
  assert not (tmp_path / "no").exists()


def test_all_wrong_tensors_are_named_at_once(tmp_path, hub):
  folder = hub()
  tensors = load_file(folder / "model.safetensors")
  del tensors["transformer.h.1.ln_2.bias"]
  tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"][:5]
  tensors["transformer.h.7.ln_1.weight"] = tensors["transformer.ln_f.weight"]
  tensors["extra"] = tensors["transformer.ln_f.weight"]
  save_file(tensors, folder / "model.safetensors")
  line = fails(gpt_neo.main, folder, tmp_path / "out")
  assert "missing transformer.h.1.ln_2.bias" in line and "unknown extra" in line
  assert "transformer.wpe.weight has shape [5, 24], must have [64, 24]" in line
  assert "unknown transformer.h.7.ln_1.weight" in line
  assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
  ("changes", "words"),
  [
    ({"model_type": "gpt2"}, "model_type 'gpt_neo'"),
    ({"activation_function": "relu"}, "gelu_new"),
    ({"hidden_size": ...}, "'hidden_size' is missing"),
    ({"attention_layers": ["global"]}, "3 attention layers"),
    ({"num_heads": 5}, "divisible by the heads"),
    ({"hidden_size": "wide"}, "wide"),
  ],
)
def test_configs_that_do_not_fit_are_errors(tmp_path, hub, changes, words):
  folder = hub()
  _edit(folder / "config.json", **changes)
  assert words in fails(gpt_neo.main, folder, tmp_path / "out")


def test_invalid_sources_are_errors(tmp_path, hub):
  folder = hub()
  assert "is none" in fails(gpt_neo.main, tmp_path / "nothing", tmp_path / "out")
  assert "model_type 'llama'" in fails(llama.main, folder, tmp_path / "out")
  pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
  for name in ("config.json", TOKENIZER_FILE, "model.safetensors"):
    kept = (folder / name).read_bytes()
    (folder / name).write_text(pointer)
    assert f"{name}, it is a pointer of Git LFS" in fails(gpt_neo.main, folder, tmp_path / "out")
    (folder / name).write_bytes(kept)
  (tmp_path / "A.GGUF").write_text(pointer)
  assert "A.GGUF, it is a pointer of Git LFS" in fails(llama.main, tmp_path / "A.GGUF", tmp_path / "out")
  (folder / TOKENIZER_FILE).write_text("{}")
  assert "Corrupt tokenizer" in fails(gpt_neo.main, folder, tmp_path / "out")
  big = Tokenizer(models.BPE({chr(200 + i): i for i in range(60)}, []))
  big.save(str(tmp_path / "big.json"))
  assert "at most 37 tokens" in fails(gpt_neo.main, folder, tmp_path / "out", "--tokenizer", tmp_path / "big.json")
  (folder / "model.safetensors").write_bytes(b"no")
  assert "Corrupt" in fails(gpt_neo.main, folder, tmp_path / "out")
  (folder / "model.safetensors").unlink()
  assert "No weights" in fails(gpt_neo.main, folder, tmp_path / "out")
  (folder / "config.json").write_text("[")
  assert "config.json" in fails(gpt_neo.main, folder, tmp_path / "out")


@pytest.mark.parametrize(
  ("name", "count"),
  [
    ("125M", 125_198_592),
    pytest.param("1.3B", 1_315_575_808, marks=pytest.mark.slow),
    pytest.param("2.7B", 2_651_307_520, marks=pytest.mark.slow),
  ],
)
def test_published_sizes(name, count):
  """The shapes of the released networks, without their weights."""
  config = GPTNeoConfig.named(name)
  assert sum(int(np.prod(shape)) for shape in engine.template_of(config).values()) == count
  assert config.layer_kinds[:4] == ("global", "local") * 2


@pytest.mark.parametrize("scaling", ROPE_CONFIGS)
def test_rotary_fields_round_trip(scaling):
  rope = llama.read_rope(ROPE_CONFIGS[scaling])
  document = {"rope_parameters": llama.write_rope(rope), "max_position_embeddings": rope.original_max_positions or 64}
  assert llama.read_rope(document) == rope


def test_older_rotary_fields_are_read():
  old = {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}, "max_position_embeddings": 64}
  assert llama.read_rope(old) == Rope(500.0, "linear", factor=2.0)
  assert llama.read_rope({"max_position_embeddings": 64}) == Rope()
  for scaling, words in (
    ({"rope_type": "longrope"}, "rope_type in default"),
    ({"rope_type": "linear"}, "factor for rope_type"),
    ({"rope_type": "llama3", "factor": 2.0}, "low_freq_factor and high_freq_factor"),
    ({"rope_type": "default", "partial_rotary_factor": 0.5}, "whole heads"),
  ):
    with pytest.raises(ValueError, match=words):
      llama.read_rope({"rope_scaling": scaling, "max_position_embeddings": 64})


# .gguf files.


def _q8_0(blocks):
  scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
  return scale * blocks[:, 2:].copy().view(np.int8)


def _q4_0(blocks):
  scale, packed = blocks[:, :2].copy().view(np.float16).astype(np.float32), blocks[:, 2:].astype(np.int32)
  return scale * (np.concatenate([packed & 15, packed >> 4], axis=1) - 8)


def _q4_1(blocks):
  scale, low = (blocks[:, i : i + 2].copy().view(np.float16).astype(np.float32) for i in (0, 2))
  packed = blocks[:, 4:].astype(np.int32)
  return scale * np.concatenate([packed & 15, packed >> 4], axis=1) + low


def _q4_k(blocks):
  """256 weights: eight groups of 32 with 6-bit scales and minima."""
  scale, low = (blocks[:, i : i + 2].copy().view(np.float16).astype(np.float32)[:, 0] for i in (0, 2))
  packed, quants = blocks[:, 4:16].astype(np.int32), blocks[:, 16:].astype(np.int32)
  out = []
  for group in range(8):
    if group < 4:
      factor, minimum = packed[:, group] & 63, packed[:, group + 4] & 63
    else:
      factor = (packed[:, group + 4] & 15) | (packed[:, group - 4] >> 6) << 4
      minimum = packed[:, group + 4] >> 4 | (packed[:, group] >> 6) << 4
    half = quants[:, 32 * (group // 2) : 32 * (group // 2) + 32] >> 4 * (group % 2) & 15
    out.append((scale * factor)[:, None] * half - (low * minimum)[:, None])
  return np.concatenate(out, axis=1)


def _q6_k(blocks):
  """256 weights: sixteen groups of 16 with 8-bit scales."""
  low, high = blocks[:, :128].astype(np.int32), blocks[:, 128:192].astype(np.int32)
  factors = blocks[:, 192:208].copy().view(np.int8).astype(np.float32)
  scale = blocks[:, 208:].copy().view(np.float16).astype(np.float32)
  out = []
  for half in range(2):
    ql, qh = low[:, 64 * half : 64 * half + 64], high[:, 32 * half : 32 * half + 32]
    for quarter in range(4):
      part = ql[:, 32 * (quarter % 2) : 32 * (quarter % 2) + 32] >> 4 * (quarter // 2) & 15
      out.append((part | (qh >> 2 * quarter & 3) << 4) - 32)
  return scale * np.repeat(factors, 16, axis=1) * np.concatenate(out, axis=1)


# name: (weights of a block, bytes of a block, reader, offsets of float16 scales)
BLOCKS = {
  "Q8_0": (32, 34, _q8_0, (0,)),
  "Q4_0": (32, 18, _q4_0, (0,)),
  "Q4_1": (32, 20, _q4_1, (0, 2)),
  "Q4_K": (256, 144, _q4_k, (0, 2)),
  "Q6_K": (256, 210, _q6_k, (208,)),
}
KINDS = {
  "token_embd": "Q6_K", "blk.0.attn_q": "Q4_K", "blk.0.attn_k": "Q8_0", "blk.0.attn_v": "Q4_0", "blk.0.attn_output": "F16",
  "blk.0.ffn_gate": "BF16", "blk.0.ffn_up": "Q4_1", "blk.0.ffn_down": "F32",
}  # fmt: skip
DIM, HEADS, KV_HEADS = 256, 4, 2


def _write_gguf(path, *, theta=500.0, skip=(), extra=None, tokenizer=True, kind=None, arch="llama", split=0, ends=None):
  """A one-block network with random weights of every kind; returns the expanded weights by the names of the file."""
  gguf = pytest.importorskip("gguf", reason="needs the package gguf: pip install 'jaxspec-decoding[convert]'")
  rng = np.random.default_rng(0)
  writer = gguf.GGUFWriter(path, arch, split_max_tensors=split)
  writer.add_block_count(1)
  writer.add_context_length(64)
  writer.add_embedding_length(DIM)
  writer.add_feed_forward_length(DIM)
  writer.add_head_count(HEADS)
  writer.add_head_count_kv(KV_HEADS)
  writer.add_layer_norm_rms_eps(1e-5)
  writer.add_rope_freq_base(theta)
  for kind_of_end, token in (ends or {}).items():
    writer.add_uint32(f"tokenizer.ggml.{kind_of_end}_token_id", token)
  letters = sorted(pre_tokenizers.ByteLevel.alphabet())
  vocabulary = [*letters, "he", "hel", "<end>"]
  if tokenizer:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary)
    writer.add_token_types([1] * (len(vocabulary) - 1) + [3])
    writer.add_token_merges(["h e", "he l"])
    writer.add_eos_token_id(len(vocabulary) - 1)
  shapes = {"token_embd": (len(vocabulary), DIM), "blk.0.attn_k": (DIM // 2, DIM), "blk.0.attn_v": (DIM // 2, DIM)}
  weights = {}
  for name, kind_of in KINDS.items():
    if name in skip:
      continue
    rows, columns = shapes.get(name, (DIM, DIM))
    kind_of = kind or kind_of
    full, key = rng.normal(size=(rows, columns)).astype(np.float32), f"{name}.weight"
    if kind_of in BLOCKS:
      size, num_bytes, read, scales = BLOCKS[kind_of]
      blocks = rng.integers(0, 256, (rows * columns // size, num_bytes), np.uint8)
      for offset in scales:
        scale = (0.02 * rng.normal(size=(len(blocks), 1))).astype(np.float16)
        blocks[:, offset : offset + 2] = scale.view(np.uint8)
      weights[key] = read(blocks).reshape(rows, columns)
      data = blocks.reshape(rows, -1)
      writer.add_tensor(key, data, raw_dtype=gguf.GGMLQuantizationType[kind_of])
    elif kind_of == "BF16":
      high = (full.view(np.uint32) >> 16).astype(np.uint16)
      weights[key] = (high.astype(np.uint32) << 16).view(np.float32)
      writer.add_tensor(key, high.view(np.uint8).reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
      array = full.astype(np.float16 if kind_of == "F16" else np.float32)
      weights[key] = array.astype(np.float32)
      writer.add_tensor(key, array)
  for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
    weights[f"{name}.weight"] = rng.normal(size=DIM).astype(np.float32)
    writer.add_tensor(f"{name}.weight", weights[f"{name}.weight"])
  for name, array in (extra or {}).items():
    writer.add_tensor(name, array)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return weights


def _unpermuted(array, heads):
  """Moves row 2 p + r of a head (pair p, half r) back to row r * size / 2 + p."""
  size = array.shape[0] // heads
  row = np.arange(array.shape[0])
  head, half, pair = row // size, row % size // (size // 2), row % (size // 2)
  return array[head * size + 2 * pair + half]


def test_gguf_files_are_read(tmp_path):
  weights = _write_gguf(tmp_path / "a.gguf")
  works(llama.main, tmp_path / "a.gguf", tmp_path / "out")
  leaves = _leaves(tmp_path / "out")
  config = checkpoints.load(tmp_path / "out").config
  assert (config.dim, config.num_heads, config.kv_heads, config.head_dim, config.ffn_hidden) == (256, 4, 2, 64, 256)
  assert config.tie_embeddings and config.norm_eps == 1e-5 and config.rope == Rope(500.0)
  expected = {
    "embed_tokens.weight": weights["token_embd.weight"],
    "norm.weight": weights["output_norm.weight"],
    "layers_0.self_attn.q_proj.weight": _unpermuted(weights["blk.0.attn_q.weight"], HEADS),
    "layers_0.self_attn.k_proj.weight": _unpermuted(weights["blk.0.attn_k.weight"], KV_HEADS),
    "layers_0.self_attn.v_proj.weight": weights["blk.0.attn_v.weight"],
    "layers_0.self_attn.o_proj.weight": weights["blk.0.attn_output.weight"],
    "layers_0.input_layernorm.weight": weights["blk.0.attn_norm.weight"],
    "layers_0.post_attention_layernorm.weight": weights["blk.0.ffn_norm.weight"],
    "layers_0.mlp.gate_proj.weight": weights["blk.0.ffn_gate.weight"],
    "layers_0.mlp.up_proj.weight": weights["blk.0.ffn_up.weight"],
    "layers_0.mlp.down_proj.weight": weights["blk.0.ffn_down.weight"],
  }
  assert leaves.keys() == expected.keys()
  for name, array in expected.items():
    np.testing.assert_allclose(leaves[name], array, rtol=1e-6, atol=1e-6, err_msg=name)
  tokenizer = load_tokenizer(tmp_path / "out")
  encoding = tokenizer.encode("hello 42<end>")
  assert encoding.tokens == ["hel", "l", "o", "Ġ", "4", "2", "<end>"]
  assert encoding.ids[-1] in config.end_ids and tokenizer.decode(encoding.ids) == "hello 42"


def test_gguf_rotary_factors_and_output_matrix_are_read(tmp_path):
  factors = np.linspace(1, 8, 32).astype(np.float32)
  output = np.ones((259, DIM), np.float32)
  _write_gguf(tmp_path / "a.gguf", extra={"rope_freqs.weight": factors, "output.weight": output}, tokenizer=False)
  works(llama.main, tmp_path / "a.gguf", tmp_path / "out")
  config = checkpoints.load(tmp_path / "out").config
  assert config.rope.scaling == "factors" and config.rope.factors == tuple(map(float, factors))
  assert not config.tie_embeddings and config.end_ids == ()
  assert not (tmp_path / "out" / TOKENIZER_FILE).exists()
  assert "config.json" in fails(llama.main, "--export", tmp_path / "out", tmp_path / "back")


def test_gguf_networks_in_parts_are_read_whole(tmp_path):
  whole, parts, out = tmp_path / "a.gguf", tmp_path / "b.gguf", tmp_path / "out"
  output = {"output.weight": np.ones((259, DIM), np.float32)}  # without it the network would look tied
  _write_gguf(whole, extra=output)
  _write_gguf(parts, extra=output, split=6)
  first, second = sorted(tmp_path.glob("b-*.gguf"))
  works(llama.main, whole, tmp_path / "whole")
  for given in (first, second):
    works(llama.main, given, out)
    _same(_leaves(out), _leaves(tmp_path / "whole"))
    ours, theirs = (checkpoints.read_config(folder) for folder in (out, tmp_path / "whole"))
    assert ours["config"] == theirs["config"] and ours["meta"]["source"] == first.name
  content = second.read_bytes()
  second.unlink()
  assert f"{second.name} is missing" in fails(llama.main, first, tmp_path / "no")
  second.write_bytes(first.read_bytes())
  assert "is part 1 of 2" in fails(llama.main, first, tmp_path / "no")
  (tmp_path / "renamed.gguf").write_bytes(content)
  assert "is part 2 of 2" in fails(llama.main, tmp_path / "renamed.gguf", tmp_path / "no")
  assert not (tmp_path / "no").exists()


def test_every_declared_end_of_a_gguf_file_is_read(tmp_path):
  for name, ends, expected in (
    ("a", {"eos": 3, "eot": 5, "eom": 3}, (3, 5)),
    ("b", {"eot": 5, "eos": 2**32 - 1}, (5,)),
  ):
    _write_gguf(tmp_path / f"{name}.gguf", ends=ends, tokenizer=False)
    works(llama.main, tmp_path / f"{name}.gguf", tmp_path / name)
    assert checkpoints.load(tmp_path / name).config.end_ids == expected


@pytest.mark.parametrize(
  ("config", "generation", "expected"),
  [
    (1, [1, 2], (1, 2)),
    (..., 3, (3,)),
    ([4], 3, (4, 3)),
    (7, None, (7,)),
    (-1, -1, ()),
    (1, "two", "generation_config.json: Must have whole numbers as eos_token_id, we instead got 'two'"),
  ],
)
@pytest.mark.parametrize("name", ["gpt_neo", "llama_tied"])
def test_ends_of_generation_configs_are_read(tmp_path, hub, name, config, generation, expected):
  folder = hub(name)
  _edit(folder / "config.json", eos_token_id=config)
  (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
  if isinstance(expected, str):
    assert expected in fails(COMMANDS[name].main, folder, tmp_path / "out")
  else:
    works(COMMANDS[name].main, folder, tmp_path / "out")
    assert tuple(checkpoints.read_config(tmp_path / "out")["config"]["end_ids"]) == expected


def test_gguf_files_that_do_not_fit_are_errors(tmp_path):
  path, out = tmp_path / "a.gguf", tmp_path / "out"
  extra = {"blk.0.attn_sinks": np.ones(3, np.float32), "blk.3.attn_norm.weight": np.ones(DIM, np.float32)}
  _write_gguf(path, skip=("blk.0.ffn_up", "blk.0.attn_k"), extra=extra)
  line = fails(llama.main, path, out)
  assert "missing model.layers.0.mlp.up_proj.weight" in line and "missing model.layers.0.self_attn.k_proj.weight" in line
  assert "unknown blk.0.attn_sinks" in line and "unknown model.layers.3.input_layernorm.weight" in line
  _write_gguf(path, arch="gemma")
  assert "'llama'" in fails(llama.main, path, out)
  whole = path.read_bytes()
  for damaged in (b"", b"GGUF", whole[:200], whole[:-100]):
    path.write_bytes(damaged)
    assert "a.gguf" in fails(llama.main, path, out)
  path.unlink()
  assert "No file" in fails(llama.main, path, out)
  assert not out.exists()
