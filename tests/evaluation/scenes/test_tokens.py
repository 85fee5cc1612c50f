"""Tokens of scenes from a table of tiles equal those of the tokenizer."""

import jax
import numpy as np
import pytest

from experiments.data.scene_tokens import encode_tiles
from jaxspec.evaluation import scenes
from jaxspec.io import checkpoints
from jaxspec.models.tokenizers.patch_vq import PatchVQConfig, patch_vq_fns
from jaxspec.models.tokenizers.tokenizer_fns import from_uint8


def saved(path, **options):
  config = PatchVQConfig(96, (8, 8, 16), (1, 1, 1), (1, 1, 1), num_codes=64, **options)
  path = path / "tokenizer"  # a new folder
  checkpoints.save(path, config, patch_vq_fns(config).init(jax.random.key(0)))
  return checkpoints.load(path)


@pytest.mark.slow
def test_tokens_of_scenes_are_those_of_their_images(tmp_path):
  tokenizer = saved(tmp_path, encoder_kernel=1)
  drawn = [scenes.draw_scene(0, number)[1] for number in range(32)]
  expected, _ = jax.jit(lambda pixels: tokenizer.fns.encode(tokenizer.params, from_uint8(pixels)))(scenes.paint_batch(drawn))
  table = encode_tiles(tokenizer)
  np.testing.assert_array_equal(np.stack([table.of(scene) for scene in drawn]), expected)
  assert len(np.unique(expected)) > 10


@pytest.mark.slow
def test_an_encoder_that_sees_neighbours_is_refused(tmp_path):
  with pytest.raises(ValueError, match="single patches of 8 pixels"):
    encode_tiles(saved(tmp_path))
