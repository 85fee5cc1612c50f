"""The image tokenizer of Chameleon against stored outputs, and its conversion in both directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

from conversion import chameleon_vq, engine, torch_files
from jaxspec.io import checkpoints
from jaxspec.models.tokenizers.chameleon_vq import ChameleonVQConfig
from jaxspec.models.tokenizers.tokenizer_fns import truncate_to_uint8
from tests.models import chameleon_golden as golden

STORED = golden.arrays("chameleon_vq_tiny")
WEIGHTS = {k[2:].replace("__", "."): v.astype(np.float32) for k, v in STORED.items() if k.startswith("w_")}


def _run(*args):
  return CliRunner().invoke(chameleon_vq.main, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
  """The stored tokenizer as a training file, converted; and the file."""
  path = tmp_path_factory.mktemp("vq")
  torch_files.write(path / "vqgan.ckpt", {"state_dict": WEIGHTS | {"loss.perceptual.weight": np.zeros(3, np.float32)}})
  assert _run(path / "vqgan.ckpt", path / "vq").exit_code == 0
  return path


def test_images_and_codes_agree(converted):
  vq = checkpoints.load(converted / "vq")
  assert vq.config == ChameleonVQConfig(32, (1, 1), 1, (), 8, 48, 8) and vq.config.factor == 2
  codes = jnp.asarray(STORED["codes"], jnp.int32).reshape(1, -1)
  image = jnp.asarray(STORED["image"].transpose(0, 2, 3, 1))
  indices, latent = jax.jit(vq.fns.encode)(vq.params, image)
  np.testing.assert_allclose(latent, STORED["encoder_out"].transpose(0, 2, 3, 1), atol=2e-5)
  np.testing.assert_array_equal(indices[0], STORED["image_codes"].ravel())
  decoded = jax.jit(vq.fns.decode, static_argnames="grid")(vq.params, codes, grid=(4, 6))
  np.testing.assert_allclose(decoded, STORED["decoded"].transpose(0, 2, 3, 1), atol=2e-5)
  with pytest.raises(ValueError, match="4 x 5 tokens, we instead got 24"):
    vq.fns.decode(vq.params, codes, (4, 5))


def test_pixels_are_truncated():
  values = jnp.asarray([-2.0, -1.0, 0.0, 0.999, 1.0, 3.0])
  assert truncate_to_uint8(values).tolist() == [0, 0, 127, 254, 255, 255]


def test_conversion_round_trips(converted, tmp_path):
  assert _run("--export", converted / "vq", tmp_path / "back.safetensors").exit_code == 0
  back = load_file(tmp_path / "back.safetensors")
  assert back.keys() == WEIGHTS.keys() and all((back[name] == array).all() for name, array in WEIGHTS.items())
  hub = tmp_path / "hub"
  hub.mkdir()
  inside = {f"model.vqmodel.{name}": array for name, array in WEIGHTS.items()}
  save_file(inside | {"lm_head.weight": np.zeros((2, 2), np.float32)}, hub / "model.safetensors")
  assert _run(hub, tmp_path / "again").exit_code == 0
  first, second = (checkpoints.flatten(checkpoints.load(p).params) for p in (converted / "vq", tmp_path / "again"))
  assert all((first[name] == second[name]).all() for name in first)
  encoder_only = {name: array for name, array in inside.items() if "decoder." not in name}
  save_file(encoder_only, hub / "model.safetensors")
  result = _run(hub, tmp_path / "no")
  assert result.exit_code == 2 and result.stderr.count("\n") == 1 and not (tmp_path / "no").exists()
  assert "missing decoder.conv_in.bias" in result.stderr


@pytest.mark.slow
def test_the_released_tokenizer_has_these_shapes():
  template = engine.template_of(ChameleonVQConfig())
  assert template["quantize.embedding.weight"] == (8192, 256) and template["encoder.down_4.block_1.conv1.weight"][3] == 512
  assert template["quant_conv.weight"] == (1, 1, 256, 256) and not any("down_4.attn" in name for name in template)
  for fields, words in ((dict(multipliers=()), "one positive multiplier"), (dict(z_channels=0), "z_channels of at least 1")):
    with pytest.raises(ValueError, match=words):
      ChameleonVQConfig(**fields)
  with pytest.raises(ValueError, match="divisible by num_groups"):
    ChameleonVQConfig(base_channels=20)
