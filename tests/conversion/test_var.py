"""Conversion of VAR networks and their tokenizer: both directions, buffers, inference of configs, files that do not fit."""

import dataclasses
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conversion import engine, var, var_vae
from jaxspec.io import checkpoints
from jaxspec.models.tokenizers.var_vae import VARVAEConfig
from jaxspec.models.var.var import PUBLISHED_SIZES, VARConfig, scales
from tests.conversion.commands import fails, works
from tests.models.var_golden import GOLDEN, SIDES

SHAPES = json.loads((GOLDEN / "official_shapes.json").read_text())
MILLIONS = {"var_d16": 310, "var_d20": 600, "var_d24": 1033, "var_d30": 2010, "var_d36": 2353}
# Contents of a file that are not weights.
BUFFERS = ("lvl_1L", "attn_bias_for_masking", "zero_k_bias", "ema_vocab_hit_SV")


@pytest.fixture
def fields(tmp_path):
  path = tmp_path / "fields.json"
  path.write_text(json.dumps({"sides": SIDES}))
  return path


class _Shape:
  """A tensor without values, for matching only."""

  def __init__(self, shape):
    self.shape = tuple(shape)

  def read(self):
    raise AssertionError("must not be read")


SAYS = {
  "var_tiny": "ours: 3 layers, width 48, 3 heads, 91 tokens in 6 scales up to 6 x 6\n",
  "var_saln_tiny": "ours: 2 layers, width 32, 2 heads, 91 tokens in 6 scales up to 6 x 6\n",
  "var_tiny_vae": "ours: 6 scales up to 6 x 6 tokens, 48 codes of width 8, images of 24 pixels\n",
}


@pytest.mark.parametrize("stem", [pytest.param("var_tiny", marks=pytest.mark.slow), "var_saln_tiny", "var_tiny_vae"])
def test_round_trips(tmp_path, fields, stem):
  command = var_vae.main if stem.endswith("vae") else var.main
  source = load_file(GOLDEN / f"{stem}.safetensors")
  assert works(command, GOLDEN / f"{stem}.safetensors", tmp_path / "ours", "--config", fields).endswith(SAYS[stem])
  for name in ("back.pth", "back.safetensors")[: 1 if command is var_vae.main else 2]:
    works(command, "--export", tmp_path / "ours", tmp_path / name)
    content = engine.read_source(tmp_path / name)  # bare: the official loader reads no key
    back = {key: tensor.read() for key, tensor in content.items()}
    assert back.keys() == source.keys() | ({"attn_bias_for_masking"} if command is var.main else set())
    for key, array in source.items():
      np.testing.assert_array_equal(back[key], array.astype(np.float32) if array.dtype == np.float16 else array, err_msg=key)
    works(command, tmp_path / name, tmp_path / "again", "--config", fields)
    again, first = (load_file(tmp_path / folder / checkpoints.PARAMS_FILE) for folder in ("again", "ours"))
    assert again.keys() == first.keys() and all(np.array_equal(again[key], first[key]) for key in first)


def test_sizes_of_images_that_do_not_fit(tmp_path, fields):
  source = GOLDEN / "var_tiny_vae.safetensors"
  words = fails(var_vae.main, source, tmp_path / "out", "--image-size", 256, "--config", fields)
  assert "either --image-size or sides in --config" in words
  assert "neither --config nor --image-size" in fails(var_vae.main, "--export", tmp_path, "x.pth", "--image-size", 256)
  assert "'384'" in fails(var_vae.main, source, tmp_path / "out", "--image-size", 384) and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_size_of_images(tmp_path):
  line = works(var_vae.main, GOLDEN / "var_tiny_vae.safetensors", tmp_path / "out", "--image-size", 512)
  assert line.endswith("out: 10 scales up to 32 x 32 tokens, 48 codes of width 8, images of 128 pixels\n")


def test_buffers():
  config = VARConfig(depth=2, dim=6, num_heads=2, vocab_size=5, code_dim=2, num_classes=3, sides=(1, 2))
  buffers = var.buffers(config)
  assert buffers["lvl_1L"].tolist() == [[0, 1, 1, 1, 1]] and buffers["lvl_1L"].dtype == np.int64
  mask = buffers["attn_bias_for_masking"]
  assert mask.shape == (1, 1, 5, 5) and mask.dtype == np.float32
  assert np.array_equal(np.isinf(mask[0, 0]), [[False] + 4 * [True]] + 4 * [5 * [False]]) and not np.any(mask[mask == 0])
  assert {name for name in buffers if name.endswith("zero_k_bias")} == {f"blocks.{i}.attn.zero_k_bias" for i in range(2)}


@pytest.mark.slow
def test_files_that_do_not_fit(tmp_path, fields):
  own, out = load_file(GOLDEN / "var_saln_tiny.safetensors"), tmp_path / "out"

  def refused(changes, *options):
    save_file({k: v for k, v in (own | changes).items() if v is not None}, tmp_path / "a.safetensors")
    return fails(var.main, tmp_path / "a.safetensors", out, *options)

  proj = own["blocks.0.attn.proj.weight"]
  line = refused({"blocks.0.attn.proj.weight": proj[:5], "head.bias": None, "head.extra": proj}, "--config", fields)
  assert "missing head.bias" in line and "unknown head.extra" in line
  assert "blocks.0.attn.proj.weight has shape [5, 32], must have [32, 32]" in line
  assert "Must have sides in --config, the tensors do not tell" in refused({})
  factors = {name: None for name in own if name.endswith("scale_mul_1H11")}
  assert "Must have num_heads in --config" in refused(factors, "--config", fields)
  assert "blocks.1.attn.scale_mul_1H11" in refused({"blocks.1.attn.scale_mul_1H11": None}, "--config", fields)
  fields.write_text(json.dumps({"sides": [1, 2, 3]}))
  assert "pos_1LC has shape [1, 91, 32], must have [1, 14, 32]" in refused({}, "--config", fields)
  assert "tensors of a var network" in fails(var.main, GOLDEN / "var_tiny_vae.safetensors", out)
  assert "unknown quantize.quant_resi.qresi_ls.0.gain" in _vae_fails(tmp_path, "0.gain")
  assert "missing quantize.quant_resi.qresi_ls.4.weight" in _vae_fails(tmp_path, "4.bias")
  assert not out.exists()


def _vae_fails(folder, name):
  own = load_file(GOLDEN / "var_tiny_vae.safetensors")
  bias = own["quantize.quant_resi.qresi_ls.0.bias"]
  save_file(own | {f"quantize.quant_resi.qresi_ls.{name}": bias}, folder / "a.safetensors")
  return fails(var_vae.main, folder / "a.safetensors", folder / "out")


def _one_block(config):
  """Shapes of a deep network, with one traced block, since blocks are equal."""
  shapes = _template(dataclasses.replace(config, depth=1))
  block = {path: shape for path, shape in shapes.items() if path.startswith("blocks_0.")}
  names = ((path, path.replace("blocks_0.", f"blocks_{i}.")) for i in range(config.depth) for path in block)
  return shapes | {name: block[path] for path, name in names}


_template = engine.template_of
_SIZES = [name if name == "VAR-d36" else pytest.param(name, marks=pytest.mark.slow) for name in PUBLISHED_SIZES]


@pytest.mark.parametrize("name", _SIZES)
def test_official_shapes(name, monkeypatch):
  """Every tensor of the official classes is known, and the config follows from the shapes."""
  monkeypatch.setattr(engine, "template_of", _one_block)
  official = SHAPES[f"var_{name.removeprefix('VAR-')}"]
  config, leaves = engine.match({key: _Shape(shape) for key, shape in official.items()}, var.FAMILY)
  assert config == VARConfig.named(name)
  names = {key: list(array.shape) for key, array in var.buffers(dataclasses.replace(config, depth=1)).items()}
  assert {key: shape for key, shape in official.items() if key.endswith(BUFFERS) and "blocks" not in key} == {
    key: shape for key, shape in names.items() if "blocks" not in key
  }
  assert len(leaves) == sum(not key.endswith(BUFFERS) for key in official)
  total = sum(int(np.prod(leaf.shape)) for leaf in leaves.values())
  assert total / 1e6 == pytest.approx(MILLIONS[f"var_{name.removeprefix('VAR-')}"], rel=0.005)


@pytest.mark.slow
def test_official_shapes_of_the_tokenizer():
  official = SHAPES["vae_ch160v4096z32"]
  source = {key: _Shape(shape) for key, shape in official.items()}
  for pixels in scales.PUBLISHED_SIDES:
    fields = {} if pixels == 256 else {"sides": scales.PUBLISHED_SIDES[pixels]}
    inferred = var_vae.infer_config({key: shape for key, shape in official.items() if not key.endswith(BUFFERS)}, fields)
    assert inferred == VARVAEConfig.named(f"VAR-{pixels}")
  config, leaves = engine.match(source, var_vae.FAMILY)
  assert len(leaves) == 323 and config == VARVAEConfig()
  assert {key: list(array.shape) for key, array in var_vae.buffers(config).items()} == {
    "quantize.ema_vocab_hit_SV": official["quantize.ema_vocab_hit_SV"]
  }
