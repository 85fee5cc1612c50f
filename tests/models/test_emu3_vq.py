"""The vision tokenizer of Emu3 against stored outputs of the official code, and its conversion in both directions."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conversion import emu3_vq, engine
from jaxspec.io import checkpoints
from jaxspec.models import registry
from jaxspec.models.tokenizers.emu3_vq import Emu3VQConfig
from jaxspec.models.tokenizers.tokenizer_fns import truncate_to_uint8
from tests.conversion.commands import fails, works
from tests.models import emu3_golden as golden

STORED = golden.arrays("vq_recipe")


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
  """The released form of the stored tokenizer, and its conversion."""
  path = tmp_path_factory.mktemp("vq")
  (path / "hub").mkdir()
  counters = {"decoder.time_res_stack.0.norm1.num_batches_tracked": np.zeros((), np.int64)}
  save_file(golden.vq_tensors() | counters, path / "hub" / "model.safetensors")
  (path / "hub" / "config.json").write_text(json.dumps(golden.vq_document()))
  line = works(emu3_vq.main, path / "hub", path / "vq")
  assert line.endswith("vq: 2 x 2 pixels per token, 24 codes of width 4\n")
  return path


@pytest.mark.slow
def test_images_and_codes_agree(converted):
  vq = checkpoints.load(converted / "vq")
  assert vq.config == golden.VQ
  codes, image = jnp.asarray(STORED["codes"], jnp.int32).reshape(3, -1), jnp.asarray(STORED["image"].transpose(0, 2, 3, 1))
  indices, latent = jax.jit(vq.fns.encode)(vq.params, image)
  features = jax.jit(vq.fns.features)(vq.params, image)
  np.testing.assert_allclose(features, STORED["features"].transpose(0, 2, 3, 1), atol=1e-5)
  np.testing.assert_allclose(latent, STORED["latent"].transpose(0, 2, 3, 1), atol=1e-5)
  np.testing.assert_array_equal(indices, STORED["indices"].reshape(2, -1))
  decoded = jax.jit(vq.fns.decode, static_argnames="grid")(vq.params, codes, grid=(4, 6))
  np.testing.assert_allclose(decoded, STORED["decoded"].transpose(0, 2, 3, 1), atol=1e-5)
  # The first of the frames that the official code decodes, of which the others differ.
  np.testing.assert_allclose(decoded[0], STORED["video"][0].transpose(1, 2, 0), atol=1e-5)
  assert np.abs(STORED["video"][1:] - STORED["video"][:1]).max() > 0.1
  apart = np.abs(np.asarray(truncate_to_uint8(decoded)).astype(int) - STORED["pixels"].astype(int))
  assert apart.max() <= 1 and np.mean(apart > 0) < 1e-3


def test_conversion_round_trips(converted, tmp_path):
  works(emu3_vq.main, "--export", converted / "vq", tmp_path / "back")
  back, source = (load_file(folder / "model.safetensors") for folder in (tmp_path / "back", converted / "hub"))
  assert source.keys() - back.keys() == {"decoder.time_res_stack.0.norm1.num_batches_tracked"}
  assert all(np.array_equal(array, source[name]) for name, array in back.items())
  works(emu3_vq.main, tmp_path / "back", tmp_path / "again")
  first, second = (load_file(folder / checkpoints.PARAMS_FILE) for folder in (converted / "vq", tmp_path / "again"))
  assert first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_the_published_shapes():
  """All 495 names of the official constructor, without values."""
  official = json.loads((golden.FOLDER / "official_shapes.json").read_text())["Emu3-VisionTokenizer"]
  assert registry.make_config("emu3_vq", emu3_vq.read_config(official["config"])) == Emu3VQConfig()
  found = engine.source_shapes(emu3_vq.FAMILY, engine.template_of(Emu3VQConfig()))
  counters = {name for name in official["shapes"] if name.endswith("num_batches_tracked")}
  assert len(official["shapes"]) == 495 and len(counters) == 8
  assert {name: list(shape) for name, shape in found.items()} == {
    name: shape for name, shape in official["shapes"].items() if name not in counters
  }


def test_folders_that_do_not_fit(converted, tmp_path):
  tensors, document = golden.vq_tensors(), golden.vq_document()
  flat = np.zeros((4, 4, 2, 1, 1), np.float32)
  lacking = {"decoder.conv_in.weight": None, "extra": np.zeros(3, np.float32)}
  for changes, fields, words in (
    (lacking, {}, ("missing decoder.conv_in.weight", "unknown extra")),
    ({"quant_conv.conv.weight": flat}, {}, ("has shape [4, 4, 2, 1, 1], must have [4, 4, 3, 1, 1]",)),
    ({}, {"model_type": "Emu3"}, ("model_type 'Emu3VisionVQ'",)),
    ({}, {"double_z": True}, ("double_z False, we instead got True",)),
    ({}, {"embed_dim": 8}, ("codes of width z_channels, we instead got 8 and 4",)),
    ({}, {"temporal_downsample_factor": 3}, ("power of 2",)),
  ):  # fmt: skip
    folder = tmp_path / "hub"
    folder.mkdir(exist_ok=True)
    made = {name: array for name, array in (tensors | changes).items() if array is not None}
    save_file(made, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(document | fields))
    line = fails(emu3_vq.main, folder, tmp_path / "out")
    assert all(word in line for word in words), line
    assert not (tmp_path / "out").exists()
