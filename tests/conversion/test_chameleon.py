"""Conversion of Chameleon networks: every layout of files gives the same network; errors are one line."""

import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conversion import chameleon, chameleon_files, derived, engine, torch_files
from jaxspec.io import checkpoints
from jaxspec.models.chameleon.chameleon import ChameleonConfig, chameleon_fns
from tests.conversion.array_tensor import ArrayTensor
from tests.conversion.commands import fails, run
from tests.models import chameleon_golden as golden
from tests.run import tiny_chameleon

VOCAB, DIM, HIDDEN, LAYERS, HEADS, KV_HEADS = golden.arrays("chameleon_layouts")["config"].tolist()
CASES = ("meta_mp1", "meta_mp2", "hf_old_mp1", "hf_old_mp2", "hf_new_mp1", "hf_new_mp2", "anole_mp1")


def _folder(path, case):
  """The stored network as a folder of its layout; ``mp2`` has norms after attention and MLP."""
  path.mkdir()
  swin = case.endswith("mp2")
  if not case.startswith("meta"):
    tensors = load_file(golden.FOLDER / f"chameleon_layout_{case}.safetensors")
    extra = {"model.vqmodel.encoder.conv_in.bias": np.zeros(3, np.float32)}
    save_file(tensors | extra, path / "model.safetensors")
    document = {"model_type": "chameleon", "vocab_size": VOCAB, "hidden_size": DIM, "num_hidden_layers": LAYERS}
    document |= {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "intermediate_size": HIDDEN}
    (path / "config.json").write_text(json.dumps(document | {"swin_norm": swin}))
    return path
  shards = sorted(golden.FOLDER.glob(f"chameleon_layout_{case}.*.safetensors"))
  for number, file in enumerate(shards):
    tensors = {name: array.astype(np.float32) for name, array in load_file(file).items()}
    torch_files.write(path / (f"consolidated.{number:02d}.pth" if swin else "consolidated.pth"), tensors)
  model = {"dim": DIM, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": KV_HEADS, "vocab_size": VOCAB, "swin_norm": swin}
  (path / "params.json").write_text(json.dumps({"model": model | {"multiple_of": HIDDEN, "ffn_dim_multiplier": 0.5}}))
  (path / "consolidate_params.json").write_text(json.dumps({"model_parallel_size": len(shards)}))
  return path


def test_every_layout_gives_the_same_network(tmp_path):
  config_file = tmp_path / "ids.json"
  config_file.write_text(json.dumps(golden.TINY_IDS))
  stored, networks = golden.arrays("chameleon_layouts"), {}
  for case in CASES:
    options = ("--config", config_file, "--dtype", "float32", "--layout", "anole")
    result = run(chameleon.main, _folder(tmp_path / case, case), tmp_path / "out" / case, *options)
    assert result.exit_code == 0, (case, result.output)
    networks[case] = checkpoints.load(tmp_path / "out" / case)
    config = networks[case].config
    assert config.post_norm == case.endswith("mp2") and (config.ffn_hidden, config.num_heads) == (HIDDEN, HEADS), case
  for kind in ("mp1", "mp2"):
    cases = [case for case in CASES if case.endswith(kind)]
    fns = chameleon_fns(networks[cases[0]].config)
    apply = jax.jit(functools.partial(fns.apply, inputs=stored["ids"], cache=None, positions=None))
    found = [np.asarray(apply(networks[case].params)[0].logits) for case in cases]
    for case, logits in zip(cases, found):
      np.testing.assert_allclose(logits, found[0], atol=2e-6, err_msg=case)
    # The stored logits have q/k norms that are not rounded to float16, unlike those in the files.
    np.testing.assert_allclose(found[0], stored[f"logits_{kind}"], atol={"mp1": 1e-3, "mp2": 1.2e-2}[kind])


@pytest.fixture
def hub(tmp_path):
  return _folder(tmp_path / "hub", "hf_new_mp1")


def test_weights_are_stored_as_asked(tmp_path, hub):
  (tmp_path / "ids.json").write_text(json.dumps(golden.TINY_IDS))
  assert run(chameleon.main, hub, tmp_path / "out", "--layout", "anole", "--config", tmp_path / "ids.json").exit_code == 0
  assert b'"BF16"' in (tmp_path / "out" / "params.safetensors").read_bytes()[:400]
  params = checkpoints.flatten(checkpoints.load(tmp_path / "out").params)
  expected = load_file(hub / "model.safetensors")["model.layers.1.mlp.up_proj.weight"]
  np.testing.assert_allclose(params["layers_1.mlp.up_proj.weight"], expected, rtol=2**-8)
  meta = checkpoints.read_config(tmp_path / "out")["meta"]
  assert meta["source"] == "hub" and len(meta["source_sha256"]) == 64


def test_all_wrong_tensors_are_named_at_once(tmp_path, hub):
  tensors = load_file(hub / "model.safetensors")
  del tensors["model.layers.1.self_attn.k_norm.bias"]
  tensors["model.layers.0.self_attn.q_norm.weight"] = np.zeros((3, 8), np.float16)
  tensors["model.norm.weight"] = tensors["model.norm.weight"][:5]
  tensors["extra"] = np.zeros(3, np.float16)
  save_file(tensors, hub / "model.safetensors")
  line = fails(chameleon.main, hub, tmp_path / "out", "--layout", "anole")
  assert "missing model.layers.1.self_attn.k_norm.bias" in line and "unknown extra" in line
  assert "model.layers.0.self_attn.q_norm.weight has shape [3, 8], must have [2, 8]" in line
  assert "model.norm.weight has shape [5], must have [16]" in line
  assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_shards_that_do_not_fit_are_errors(tmp_path):
  folder = _folder(tmp_path / "meta", "meta_mp2")
  second = {
    k: v.astype(np.float32) for k, v in load_file(golden.FOLDER / "chameleon_layout_meta_mp2.01.safetensors").items()
  }
  del second["norm.weight"]
  second["output.weight"] = second["output.weight"][:, :3]
  torch_files.write(folder / "consolidated.01.pth", second)
  line = fails(chameleon.main, folder, tmp_path / "out")
  assert "missing norm.weight in consolidated.01.pth" in line and "output.weight has shapes [20, 3] and [20, 16]" in line
  (folder / "consolidated.01.pth").unlink()
  assert "must have 2 files consolidated*.pth, we instead got 1" in fails(chameleon.main, folder, tmp_path / "out")
  (folder / "params.json").write_text('{"model": {"dim": 16}}')
  (folder / "consolidate_params.json").unlink()
  assert "params.json: 'multiple_of' is missing" in fails(chameleon.main, folder, tmp_path / "out")
  assert not (tmp_path / "out").exists()


def test_folders_that_do_not_tell_are_errors(tmp_path, hub):
  assert "must have --layout, one of anole, lumina" in fails(chameleon.main, hub, tmp_path / "out").lower()
  assert "is none" in fails(chameleon.main, tmp_path / "nothing", tmp_path / "out")
  for size in ("0", "500", "512x", "64x33"):
    assert "an image size such as 512 or 768x512" in fails(
      chameleon.main, hub, tmp_path / "out", "--layout", "anole", "--image-size", size
    )
  document = json.loads((hub / "config.json").read_text())
  for change, words in (
    ({"model_type": "llama"}, "model_type 'chameleon'"),
    ({"hidden_act": "gelu"}, "hidden_act 'silu'"),
    ({"hidden_size": 17}, "width divisible by the heads"),
    ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "plain rotary positions"),
  ):
    (hub / "config.json").write_text(json.dumps(document | change))
    assert words in fails(chameleon.main, hub, tmp_path / "out", "--layout", "anole")
  (tmp_path / "both" / "models" / "7b").mkdir(parents=True)
  (tmp_path / "both" / "models" / "30b").mkdir()
  assert "has 30b, 7b: name its folder" in fails(chameleon.main, tmp_path / "both", tmp_path / "out")
  assert not (tmp_path / "out").exists()


def test_a_download_becomes_one_folder(tmp_path):
  """The network, its vocabulary and its image tokenizer; ids follow from the names of tokens."""
  download = tiny_chameleon.save_anole(tmp_path / "anole")
  assert run(chameleon.main, download / "models" / "7b", tmp_path / "out", "--image-size", "64").exit_code == 0
  loaded = checkpoints.load(tmp_path / "out")
  assert loaded.config == ChameleonConfig(**(vars(tiny_chameleon.CONFIG) | {"rows": 4, "columns": 4, "max_positions": 4096}))
  assert checkpoints.load(tmp_path / "out" / "vq").config == tiny_chameleon.VQ
  assert (tmp_path / "out" / "tokenizer.json").is_file()
  shutil.copyfile(download / "models" / "7b" / "consolidated.pth", download / "tokenizer" / "vqgan.ckpt")
  assert "vqgan.ckpt" in fails(chameleon.main, download, tmp_path / "no") and not (tmp_path / "no").exists()
  (download / "tokenizer" / "text_tokenizer.json").write_text("{}")
  assert "text_tokenizer.json" in fails(chameleon.main, download, tmp_path / "no")


@pytest.mark.slow
def test_the_released_shapes():
  """Names and shapes of the 7B network in both forms, from its config, without values."""
  fields = chameleon_files.read_params(
    {"dim": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 65536, "multiple_of": 256, "ffn_dim_multiplier": 1.0}
  )
  assert fields["ffn_hidden"] == 11008
  template = engine.template_of(ChameleonConfig(**fields))
  count = sum(int(np.prod(shape)) for shape in template.values())
  assert count == 7_013_158_912 + 32 * 4 * 31 * 128  # a norm for every head
  meta, hub = (engine.source_shapes(family, template) for family in (chameleon.META, chameleon.HUB))
  assert meta["layers.31.feed_forward.w2.weight"] == hub["model.layers.31.mlp.down_proj.weight"] == (4096, 11008)
  assert hub["model.layers.0.self_attn.q_norm.weight"] == (32, 128) and meta["tok_embeddings.weight"] == (65536, 4096)
  sources = {name: ArrayTensor(np.broadcast_to(np.float32(0), shape)) for name, shape in hub.items()}
  for name in [name for name in sources if "_norm." in name and "self_attn" in name]:
    sources[name] = ArrayTensor(np.zeros((1, 128), np.float32))  # Lumina-mGPT's
  config, leaves = engine.match(
    chameleon_files.in_halves(sources, ChameleonConfig()), chameleon.HUB, vars(ChameleonConfig())
  )
  assert len(leaves) == len(template) and isinstance(leaves["layers_0.self_attn.q_norm.weight"].tensor, derived.Derived)


def test_nothing_is_lost_at_the_destination(tmp_path, hub):
  """A folder that is not a checkpoint, the source itself, and a checkpoint that contains the source."""
  before = sorted(path.name for path in hub.iterdir())
  assert "is neither" in fails(chameleon.main, hub, hub, "--layout", "anole")
  page = tmp_path / "page"
  page.mkdir()
  (page / "config.json").write_text("{}")
  (page / "thesis.tex").write_text("mine")
  assert "is neither" in fails(chameleon.main, hub, page, "--layout", "anole")
  around = tmp_path / "around"
  assert run(chameleon.main, hub, around, "--layout", "anole").exit_code == 0
  shutil.copytree(hub, around / "hub")
  line = fails(chameleon.main, around / "hub", around, "--layout", "anole")
  assert "would be replaced" in line and (around / "hub" / "model.safetensors").is_file()
  assert (page / "thesis.tex").read_text() == "mine" and sorted(path.name for path in hub.iterdir()) == before


def test_files_that_hold_something_else(tmp_path):
  """Values that are not tensors, names that are not text, shards of two half-precision dtypes."""
  folder = _folder(tmp_path / "meta", "meta_mp2")
  good = torch_files.read(folder / "consolidated.01.pth")
  arrays = {name: tensor.read() for name, tensor in good.items()}
  for wrong in ({"norm.weight": 5}, {7: arrays["norm.weight"]}):
    torch_files.write(folder / "consolidated.01.pth", arrays | wrong)
    assert f"{next(iter(wrong))} is no tensor" in fails(chameleon.main, folder, tmp_path / "out", "--layout", "anole")
  half = [ArrayTensor(np.ones((2, 2), dtype)) for dtype in ("float16", jnp.bfloat16)]
  assert derived.joined(half, 0).read().shape == (4, 2) and derived.stacked(half).read().dtype == np.float32
