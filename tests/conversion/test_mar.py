"""Conversion of MAR files: wrappers, averaged weights, inference of configs, round trips, errors."""

import functools
import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import jaxspec
from conversion import engine, mar, mar_vae, torch_files
from jaxspec.io import checkpoints
from jaxspec.models.mar.mar import PUBLISHED_SIZES, MARConfig
from jaxspec.models.tokenizers.kl_vae import KLVAEConfig
from tests.conversion.array_tensor import ArrayTensor
from tests.conversion.commands import fails, run, write_fields
from tests.models.mar_parity import GOLDEN

HEADS = {"encoder_heads": 4, "decoder_heads": 4}
TINY_VAE = KLVAEConfig(
  base_channels=4, multipliers=(1, 2, 2), num_res_blocks=1, attention_levels=(1, 2), z_channels=3, latent_channels=2,
  num_groups=4,
)  # fmt: skip


def _same(got, expected):
  assert got.keys() == expected.keys()
  for name, array in expected.items():
    assert got[name].shape == array.shape and got[name].tobytes() == array.tobytes(), name


def _state_dict(folder, family):
  return engine.to_state_dict(checkpoints.flatten(jaxspec.load(folder).params), family)


@pytest.fixture(scope="module")
def contents():
  """Raw and averaged tensors of the official training file."""
  content = torch_files.read(GOLDEN / "mar_target.pth")
  return {key: {name: tensor.read() for name, tensor in content[key].items()} for key in ("model", "model_ema")}


# Official files.


def test_averaged_weights_are_preferred(tmp_path, contents):
  options = ("--config", write_fields(tmp_path, HEADS))
  for flags, key in (((), "model_ema"), (("--ema",), "model_ema"), (("--no-ema",), "model")):
    result = run(mar.main, GOLDEN / "mar_target.pth", tmp_path / "out", *options, *flags)
    assert result.exit_code == 0 and result.output.count("\n") == 1, result.output
    _same(_state_dict(tmp_path / "out", mar.FAMILY), contents[key])
    meta = checkpoints.read_config(tmp_path / "out")["meta"]
    assert meta.get("source_weights") == ("model_ema" if key == "model_ema" else None)
  _same(load_file(GOLDEN / "mar_target.safetensors"), contents["model_ema"])


@pytest.mark.parametrize("key", ["model", "module", "state_dict", None])
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".ckpt"])
def test_wrappers_are_read(tmp_path, contents, key, suffix):
  tensors = contents["model_ema"]
  torch_files.write(tmp_path / f"a{suffix}", tensors if key is None else {key: tensors, "epoch": 3})
  content = engine.read_source(tmp_path / f"a{suffix}")
  config, leaves = engine.convert(engine.unwrap(content), mar.FAMILY, HEADS)
  assert config.num_tokens == 16
  _same(engine.to_state_dict(leaves, mar.FAMILY), tensors)


def test_averaged_weights_of_a_bare_file_can_be_requested(tmp_path):
  line = fails(mar.main, GOLDEN / "mar_draft.safetensors", tmp_path / "out", "--ema")
  assert "model_ema" in line and not (tmp_path / "out").exists()


def test_round_trips(tmp_path):
  options = ("--config", write_fields(tmp_path, HEADS))
  first = tmp_path / "first"
  assert run(mar.main, GOLDEN / "mar_target.pth", first, *options).exit_code == 0
  for name in ("a.pth", "a.safetensors"):
    assert run(mar.main, "--export", first, tmp_path / name).exit_code == 0
    assert run(mar.main, tmp_path / name, tmp_path / "again", *options).exit_code == 0
    _same(_state_dict(tmp_path / "again", mar.FAMILY), _state_dict(first, mar.FAMILY))
  # The official evaluation reads both entries.
  assert torch_files.read(tmp_path / "a.pth").keys() == {"model", "model_ema"}


def test_autoencoder_round_trip(tmp_path):
  assert run(mar_vae.main, GOLDEN / "vae.ckpt", tmp_path / "vae").exit_code == 0
  assert jaxspec.load(tmp_path / "vae").config.num_groups == 8
  assert run(mar_vae.main, "--export", tmp_path / "vae", tmp_path / "a.ckpt").exit_code == 0
  content = torch_files.read(tmp_path / "a.ckpt")["model"]
  official = torch_files.read(GOLDEN / "vae.ckpt")["model"]
  _same({k: v.read() for k, v in content.items()}, {k: v.read() for k, v in official.items()})


# Inference of configs.


_template = functools.cache(engine.template_of)


def _shapes(config, family):
  return engine.source_shapes(family, _template(config))


_SLOW_SIZES = [pytest.param(name, marks=pytest.mark.slow) for name in list(PUBLISHED_SIZES)[1:]]


@pytest.mark.parametrize("name", ["MAR-B", *_SLOW_SIZES])
def test_published_sizes_need_no_config(name):
  config = MARConfig.named(name)
  shapes = _shapes(config, mar.FAMILY)
  assert mar.infer_config(shapes, {}) == config
  larger = mar.infer_config(shapes, {"patch_size": 2})
  assert (larger.latent_channels, larger.token_dim) == (4, 16)


def test_official_names_and_shapes():
  shapes = _shapes(MARConfig.named("MAR-B"), mar.FAMILY)
  assert len(shapes) == 364
  assert shapes["diffloss.net.res_blocks.5.adaLN_modulation.1.weight"] == (3072, 1024)
  assert shapes["diffloss.net.time_embed.mlp.2.bias"] == (1024,)
  assert shapes["encoder_pos_embed_learned"] == (1, 320, 768)
  assert shapes["decoder_blocks.11.attn.qkv.weight"] == (2304, 768)
  vae = _shapes(KLVAEConfig.named("KL-16"), mar_vae.FAMILY)
  assert len(vae) == 312
  assert vae["encoder.down.4.attn.1.proj_out.weight"] == (512, 512, 1, 1)
  assert vae["decoder.up.1.block.0.nin_shortcut.weight"] == (128, 256, 1, 1)
  assert mar_vae.infer_config(vae, {}) == KLVAEConfig.named("KL-16")


def test_configs_of_other_autoencoders_are_inferred():
  rng = np.random.default_rng(0)
  shapes = engine.source_shapes(mar_vae.FAMILY, engine.template_of(TINY_VAE))
  source = {name: ArrayTensor(rng.normal(size=shape).astype(np.float32)) for name, shape in shapes.items()}
  config, _ = engine.convert(source, mar_vae.FAMILY)
  assert config == TINY_VAE


def test_arguments_of_the_official_constructor(tmp_path):
  """The complete set of arguments, as in a training script."""
  document = json.loads((GOLDEN / "config.json").read_text())
  options = ("--config", write_fields(tmp_path, document["common"] | document["target"]))
  assert run(mar.main, GOLDEN / "mar_target.pth", tmp_path / "out", *options).exit_code == 0
  config = jaxspec.load(tmp_path / "out").config
  assert (config.encoder_heads, config.decoder_dim, config.diffloss_width, config.num_tokens) == (4, 40, 48, 16)
  with pytest.raises(ValueError, match="we instead got both"):
    mar.own_fields({"class_num": 3, "num_classes": 3})
  with pytest.raises(ValueError, match="we instead got both"):
    mar.own_fields({"img_size": 256, "num_tokens": 256})
  with pytest.raises(ValueError, match="divisible"):
    mar.own_fields({"img_size": 250, "vae_stride": 16})


# Errors: exit status 2, one line, nothing written.


def test_every_fault_is_named_at_once(tmp_path):
  tensors = load_file(GOLDEN / "mar_draft.safetensors")
  del tensors["mask_token"], tensors["diffloss.net.input_proj.bias"]
  tensors["encoder_norm.weight"] = np.ones((3,), np.float32)
  tensors["decoder_blocks.0.attn.qkv.scale"] = np.ones((3,), np.float32)
  tensors["diffloss.net.res_blocks.7.in_ln.weight"] = np.ones((32,), np.float32)
  tensors["diffloss.net.time_embed.mlp.1.weight"] = np.ones((3, 3), np.float32)
  save_file(tensors, tmp_path / "a.safetensors")
  options = ("--config", write_fields(tmp_path, {"encoder_heads": 2, "decoder_heads": 2, "diffloss_depth": 2}))
  line = fails(mar.main, tmp_path / "a.safetensors", tmp_path / "out", *options)
  for part in (
    "missing mask_token",
    "missing diffloss.net.input_proj.bias",
    "encoder_norm.weight has shape [3], must have [24]",
    "unknown decoder_blocks.0.attn.qkv.scale",
    "unknown diffloss.net.res_blocks.7.in_ln.weight",
    "unknown diffloss.net.time_embed.mlp.1.weight",
  ):
    assert part in line
  assert line.count(";") == 5 and not (tmp_path / "out").exists()


def test_fields_that_cannot_be_inferred_must_be_given(tmp_path):
  line = fails(mar.main, GOLDEN / "mar_target.pth", tmp_path / "out")
  assert "encoder_heads, decoder_heads in --config" in line
  for fields, expected in (
    (HEADS | {"encoder_heads": 3}, "encoder width divisible"),
    (HEADS | {"heads": 3}, "heads"),
    (HEADS | {"num_classes": 11}, "must have [11, 32]"),
  ):
    assert expected in fails(
      mar.main, GOLDEN / "mar_target.pth", tmp_path / "out", "--config", write_fields(tmp_path, fields)
    )
  assert not (tmp_path / "out").exists()


def test_the_wrong_converter(tmp_path):
  assert "tensors of a mar network" in fails(mar.main, GOLDEN / "vae.ckpt", tmp_path / "out")
  assert "tensors of a kl_vae network" in fails(mar_vae.main, GOLDEN / "mar_draft.safetensors", tmp_path / "out")
  assert run(mar_vae.main, GOLDEN / "vae.ckpt", tmp_path / "vae").exit_code == 0
  assert "another family" in fails(mar.main, "--export", tmp_path / "vae", tmp_path / "a.pth")
  assert "neither --config nor --ema" in fails(mar.main, "--export", tmp_path / "vae", tmp_path / "a.pth", "--ema")
  assert not (tmp_path / "a.pth").exists()
