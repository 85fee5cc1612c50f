"""Weights of a network of tokens, carried to another tokenizer's codes; scenes as tokens."""

import jax
import numpy as np
import pytest

from experiments.data.scene_tokens import scene_encoder
from experiments.train.carried_codes import SPREAD, carry, shares_of_codes
from jaxspec.core.network import Network
from jaxspec.evaluation import scenes
from jaxspec.models.tokenizers.patch_vq import PatchVQConfig, patch_vq_fns


def tokenizer(num_codes: int, seed: int) -> Network:
  config = PatchVQConfig(96, (8, 8, 16), (1, 1, 1), (1, 1, 1), num_codes=num_codes, encoder_kernel=1)
  fns = patch_vq_fns(config)
  return Network(fns, fns.init(jax.random.key(seed)), config)


@pytest.mark.slow
def test_shares_are_frequencies_on_the_same_patches():
  old, new = tokenizer(32, 0), tokenizer(48, 1)
  shares = shares_of_codes(old, new, scenes.TEXTURED_WORLD, num_images=50)
  np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
  textured = [scenes.draw_scene(0, number, materials=scenes.TEXTURED_WORLD)[1] for number in range(50)]
  flat = [scenes.Scene(scene.background, scene.objects) for scene in textured]
  of_new = scene_encoder(new)(textured, np.random.default_rng((0, 5)))
  of_old = scene_encoder(old)(flat, np.random.default_rng(0))
  code = np.bincount(of_new.reshape(-1)).argmax()
  expected = np.bincount(of_old[of_new == code], minlength=32) / (of_new == code).sum()
  np.testing.assert_allclose(shares[code], expected, atol=1e-6)
  unseen = np.setdiff1d(np.arange(48), of_new)
  overall = np.bincount(of_old.reshape(-1), minlength=32) / of_old.size
  np.testing.assert_allclose(shares[unseen], np.broadcast_to(overall, (len(unseen), 32)), atol=1e-6)


def test_rows_are_means_of_the_old_ones():
  generator = np.random.default_rng(0)
  table, output = generator.standard_normal((2, 5, 4)).astype(np.float32)
  params = {"tok_embeddings": {"weight": table}, "output": {"weight": output}, "norm": {"weight": np.ones(4)}}
  shares = np.float32([[1, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0, 0]])
  carried = carry(params, shares)
  np.testing.assert_allclose(carried["output"]["weight"], shares @ output, rtol=1e-6)
  noise = carried["tok_embeddings"]["weight"] - shares @ table
  assert 0 < np.abs(noise).max() < 5 * SPREAD * np.abs(table).max()  # equal codes come apart
  assert (carried["tok_embeddings"]["weight"][1] != carried["tok_embeddings"]["weight"][2]).any()
  assert carried["norm"] is params["norm"]
