"""Conversion of DiT and of Stable Diffusion's autoencoder: both directions, inference of configs, files that do not fit."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import jaxspec
from conversion import dit, dit_vae, engine, mar_vae, torch_files
from jaxspec.io import checkpoints
from jaxspec.models.dit.dit import DiTConfig
from jaxspec.models.tokenizers.kl_vae import KLVAEConfig
from jaxspec.render import working
from tests.conversion.commands import fails, run, write_fields
from tests.models.dit_golden import GOLDEN, GROUPS, HEADS

COMMANDS = {"dit": (dit, HEADS), "vae": (dit_vae, GROUPS)}
OLD_NAMES = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}


def _works(command, *args):
  result = run(command, *args)
  assert result.exit_code == 0 and result.output.count("\n") == 1, (result.output, result.exception)
  return result.output


def _same(got, expected):
  assert got.keys() == expected.keys()
  for name, array in expected.items():
    np.testing.assert_array_equal(got[name], array, err_msg=name)


@pytest.mark.parametrize("stem", COMMANDS)
def test_round_trip(tmp_path, stem):
  module, fields = COMMANDS[stem]
  source, options = GOLDEN / f"{stem}.safetensors", ("--config", write_fields(tmp_path, fields))
  _works(module.main, source, tmp_path / "ours", *options)
  for name in ("a.safetensors", "a.pt"):
    _works(module.main, "--export", tmp_path / "ours", tmp_path / name)
    _works(module.main, tmp_path / name, tmp_path / "again", *options)
    _same(load_file(tmp_path / "again" / checkpoints.PARAMS_FILE), load_file(tmp_path / "ours" / checkpoints.PARAMS_FILE))
  _same(load_file(tmp_path / "a.safetensors"), {k: v.astype(np.float32) for k, v in load_file(source).items()})
  keys = {"dit": {"model", "ema"}, "vae": {"state_dict"}}
  assert torch_files.read(tmp_path / "a.pt").keys() == keys[stem]


def test_tells_how_far_it_is(tmp_path, monkeypatch):
  """Progress on stderr; the written files on stdout."""
  monkeypatch.setattr(working, "LINE_EVERY_S", 0.0)
  source = GOLDEN / "dit.safetensors"
  result = run(dit.main, source, tmp_path / "ours", "--config", write_fields(tmp_path, HEADS))
  number, lines = len(load_file(source)), result.stderr.splitlines()
  assert result.exit_code == 0 and result.stdout.startswith("Wrote ") and result.stdout.count("\n") == 1
  assert all(line.startswith("writing weights") for line in lines)
  assert lines[1] == f"writing weights  0 of {number} tensors" and len(lines) == number + 2
  assert f"  {number} of {number} tensors  " in lines[-1] and lines[-1].endswith(" left")


def test_averaged_weights_are_preferred(tmp_path):
  averaged = {name: array.astype(np.float32) for name, array in load_file(GOLDEN / "dit.safetensors").items()}
  raw = {name: array + 1 for name, array in averaged.items()}
  torch_files.write(tmp_path / "a.pt", {"model": raw, "ema": averaged, "opt": {}})
  options = ("--config", write_fields(tmp_path, HEADS))
  for flags, name, value in (((), "ema", averaged), (("--no-ema",), None, raw)):
    _works(dit.main, tmp_path / "a.pt", tmp_path / "out", *options, *flags)
    assert checkpoints.read_config(tmp_path / "out")["meta"].get("source_weights") == name
    got = load_file(tmp_path / "out" / checkpoints.PARAMS_FILE)["y_embedder.weight"]
    np.testing.assert_array_equal(got, value["y_embedder.embedding_table.weight"])


def test_older_names_of_the_attention(tmp_path):
  """The attention is a linear layer in files and a convolution here."""
  tensors, renamed = load_file(GOLDEN / "vae.safetensors"), {}
  for name, array in tensors.items():
    for new, old in OLD_NAMES.items():
      name = name.replace(f".attentions.0.{new}.", f".attentions.0.{old}.")
    renamed[name] = array
  assert len(renamed.keys() - tensors.keys()) == 16
  _, expected = engine.convert(engine.read_source(GOLDEN / "vae.safetensors"), dit_vae.FAMILY, GROUPS)
  save_file(renamed, tmp_path / "old.safetensors")
  config, leaves = engine.convert(engine.read_source(tmp_path / "old.safetensors"), dit_vae.FAMILY, GROUPS)
  _same(leaves, expected)
  key = tensors["encoder.mid_block.attentions.0.to_k.weight"]
  np.testing.assert_array_equal(leaves["encoder.mid.attn_1.k.weight"], key.T[None, None])
  assert (config.multipliers, config.attention_levels, config.num_groups) == ((1, 2), (), 16)


class _Shape:
  """A tensor without values, for matching only."""

  def __init__(self, shape):
    self.shape = tuple(shape)

  def read(self):
    raise AssertionError("must not be read")


@pytest.mark.parametrize("name, family, config", [
  pytest.param("DiT-XL-2-256x256", dit.FAMILY, DiTConfig.named("DiT-XL/2"), marks=pytest.mark.slow),
  pytest.param("DiT-XL-2-512x512", dit.FAMILY, DiTConfig.named("DiT-XL/2", latent_size=64), marks=pytest.mark.slow),
  pytest.param("sd-vae-ft", dit_vae.FAMILY, KLVAEConfig.named("SD-VAE"), marks=pytest.mark.slow),
])  # fmt: skip
def test_official_shapes(name, family, config):
  """The config follows from the file alone, and names and shapes agree in both directions."""
  shapes = {key: tuple(shape) for key, shape in json.loads((GOLDEN / "shapes.json").read_text())[name].items()}
  found, leaves = engine.match({key: _Shape(shape) for key, shape in shapes.items()}, family)
  assert found == config
  template = engine.template_of(config)
  assert {path: leaf.shape for path, leaf in leaves.items()} == template
  assert engine.source_shapes(family, template) == shapes


def test_configs_of_official_shapes():
  """As above, without the networks."""
  official = json.loads((GOLDEN / "shapes.json").read_text())
  of = lambda name: {key: tuple(shape) for key, shape in official[name].items()}
  assert dit.infer_config(of("DiT-XL-2-256x256"), {}) == DiTConfig()
  assert dit.infer_config(of("DiT-XL-2-512x512"), {}) == DiTConfig(latent_size=64)
  assert dit_vae.infer_config(of("sd-vae-ft"), {}) == KLVAEConfig.named("SD-VAE")
  for name, family in (("DiT-XL-2-256x256", dit.FAMILY), ("sd-vae-ft", dit_vae.FAMILY)):
    family = family.fitted(of(name))
    for key in of(name):
      (rule,) = [rule for rule in family.rules if rule.to_target(key)]
      assert rule.to_source(rule.to_target(key)) == key


# Errors: exit status 2, one line, nothing written.


def test_every_fault_is_named_at_once(tmp_path):
  tensors = load_file(GOLDEN / "dit.safetensors")
  del tensors["t_embedder.mlp.2.bias"]
  tensors["blocks.1.attn.qkv.weight"] = tensors["blocks.1.attn.qkv.weight"][:9]
  tensors["blocks.2.attn.qkv.scale"] = np.ones(3, np.float32)
  tensors["t_embedder.mlp.1.weight"] = np.ones((3, 3), np.float32)
  save_file(tensors, tmp_path / "a.safetensors")
  line = fails(dit.main, tmp_path / "a.safetensors", tmp_path / "out", "--config", write_fields(tmp_path, HEADS))
  for part in (
    "missing t_embedder.mlp.2.bias",
    "blocks.1.attn.qkv.weight has shape [9, 48], must have [144, 48]",
    "unknown blocks.2.attn.qkv.scale",
    "unknown t_embedder.mlp.1.weight",
  ):
    assert part in line
  assert line.count(";") == 3 and not (tmp_path / "out").exists()


def test_every_fault_of_an_autoencoder_is_named_at_once(tmp_path):
  tensors = load_file(GOLDEN / "vae.safetensors")
  del tensors["decoder.up_blocks.0.resnets.1.conv2.weight"]
  tensors["encoder.mid_block.attentions.0.to_v.weight"] = np.ones((64, 64, 1, 1), np.float32)
  tensors["decoder.mid_block.attentions.0.query.weight"] = tensors.pop("decoder.mid_block.attentions.0.to_q.weight")
  tensors["encoder.down_blocks.0.resnets.5.norm1.bias"] = np.ones(32, np.float32)
  save_file(tensors, tmp_path / "a.safetensors")
  fields = GROUPS | {"num_res_blocks": 1}
  line = fails(dit_vae.main, tmp_path / "a.safetensors", tmp_path / "out", "--config", write_fields(tmp_path, fields))
  for part in (
    "missing decoder.up_blocks.0.resnets.1.conv2.weight",
    "unknown encoder.down_blocks.0.resnets.5.norm1.bias",
    "decoder.mid_block.attentions.0",  # names of two versions in one file
  ):
    assert part in line
  assert not (tmp_path / "out").exists()


def test_fields_that_cannot_be_inferred_must_be_given(tmp_path):
  source, out = GOLDEN / "dit.safetensors", tmp_path / "out"
  assert "num_heads in --config" in fails(dit.main, source, out)
  for fields, expected in (
    ({"num_heads": 5}, "width divisible by its heads"),
    (HEADS | {"heads": 3}, "heads"),
    (HEADS | {"num_classes": 11}, "must have [12, 48]"),
    (HEADS | {"latent_size": 16}, "pos_embed has shape [1, 16, 48], must have [1, 64, 48]"),
  ):
    assert expected in fails(dit.main, source, out, "--config", write_fields(tmp_path, fields))
  assert "divisible by num_groups" in fails(
    dit_vae.main, GOLDEN / "vae.safetensors", out, "--config", write_fields(tmp_path, {"num_groups": 5})
  )
  assert not out.exists()


def test_the_wrong_converter(tmp_path):
  out = tmp_path / "out"
  assert "tensors of a dit network" in fails(dit.main, GOLDEN / "vae.safetensors", out)
  assert "tensors of a kl_vae network" in fails(dit_vae.main, GOLDEN / "dit.safetensors", out)
  _works(dit_vae.main, GOLDEN / "vae.safetensors", tmp_path / "vae", "--config", write_fields(tmp_path, GROUPS))
  # Names of the first release, as in another converter for the same checkpoint folders.
  _works(mar_vae.main, "--export", tmp_path / "vae", tmp_path / "first.safetensors")
  assert "use mar-vae" in fails(dit_vae.main, tmp_path / "first.safetensors", out)
  _works(mar_vae.main, tmp_path / "first.safetensors", tmp_path / "again", "--config", write_fields(tmp_path, GROUPS))
  _same(load_file(tmp_path / "again" / checkpoints.PARAMS_FILE), load_file(tmp_path / "vae" / checkpoints.PARAMS_FILE))
  assert jaxspec.load(tmp_path / "again").config == jaxspec.load(tmp_path / "vae").config
  assert not out.exists()


@pytest.mark.slow
def test_autoencoders_that_the_library_has_no_names_for(tmp_path):
  """Attention in the levels."""
  config = KLVAEConfig(base_channels=4, multipliers=(1, 2), num_res_blocks=1, attention_levels=(1,), num_groups=4)
  leaves = {path: np.zeros(shape, np.float32) for path, shape in engine.template_of(config).items()}
  checkpoints.save(tmp_path / "vae", config, checkpoints.unflatten(leaves), meta={})
  line = fails(dit_vae.main, "--export", tmp_path / "vae", tmp_path / "a.safetensors")
  assert "no name for encoder.down_1.attn_0" in line and not (tmp_path / "a.safetensors").exists()
