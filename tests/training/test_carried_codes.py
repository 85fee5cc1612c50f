"""Weights of a network of tokens, carried to another tokenizer's codes; the loss among synonyms; scenes as tokens."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.data.scene_tokens import scene_encoder
from experiments.train.carried_codes import SPREAD, carry, counts_of_codes
from experiments.train.synonyms import bare_cells, colours_of_codes, synonym_nats
from jaxspec.core.network import Network
from jaxspec.evaluation import scenes
from jaxspec.evaluation.scenes.world import BACKGROUNDS
from jaxspec.models.tokenizers.patch_vq import PatchVQConfig, patch_vq_fns


def tokenizer(num_codes: int, seed: int) -> Network:
  config = PatchVQConfig(96, (8, 8, 16), (1, 1, 1), (1, 1, 1), num_codes=num_codes, encoder_kernel=1)
  fns = patch_vq_fns(config)
  return Network(fns, fns.init(jax.random.key(seed)), config)


@pytest.mark.slow
def test_counts_are_of_the_same_patches():
  old, new = tokenizer(32, 0), tokenizer(48, 1)
  counts = counts_of_codes(old, new, scenes.TEXTURED_WORLD, num_images=50)
  textured = [scenes.draw_scene(0, number, materials=scenes.TEXTURED_WORLD)[1] for number in range(50)]
  flat = [scenes.Scene(scene.background, scene.objects) for scene in textured]
  of_new = scene_encoder(new)(textured, np.random.default_rng((0, 5)))
  of_old = scene_encoder(old)(flat, np.random.default_rng(0))
  code = np.bincount(of_new.reshape(-1)).argmax()
  np.testing.assert_array_equal(counts[code], np.bincount(of_old[of_new == code], minlength=32))
  unseen = np.setdiff1d(np.arange(48), of_new)
  overall = np.bincount(of_old.reshape(-1), minlength=32) / of_old.size
  np.testing.assert_allclose(counts[unseen], np.broadcast_to(0.5 * overall, (len(unseen), 32)), atol=1e-6)


def test_new_codes_share_the_probability_of_the_old_one():
  """Old code 0 splits 3 : 1, code 1 is renamed; features have the projection 1 on a direction, as after a final norm."""
  generator = np.random.default_rng(0)
  table, output = generator.standard_normal((2, 2, 4)).astype(np.float32)
  features = generator.standard_normal((50, 4)).astype(np.float32)
  features[:, 3] = 1 - features[:, 0]
  params = {"tok_embeddings": {"weight": table}, "output": {"weight": output}, "norm": {"weight": np.ones(4)}}
  counts = np.float32([[30, 0], [10, 0], [0, 7]])
  carried = carry(params, counts, features)
  old, new = (jax.nn.softmax(features @ weight.T) for weight in (output, carried["output"]["weight"]))
  np.testing.assert_allclose(new, np.stack([0.75 * old[:, 0], 0.25 * old[:, 0], old[:, 1]], axis=1), rtol=1e-4)
  noise = carried["tok_embeddings"]["weight"] - table[[0, 0, 1]]
  assert 0 < np.abs(noise).max() < 5 * SPREAD * np.abs(table).max()  # equal codes come apart
  assert (carried["tok_embeddings"]["weight"][0] != carried["tok_embeddings"]["weight"][1]).any()
  assert carried["norm"] is params["norm"]


def test_a_code_of_two_old_ones_has_the_mean_of_their_rows():
  params = {name: {"weight": np.float32([[1, 0], [0, 1]])} for name in ("tok_embeddings", "output")}
  carried = carry(params, np.float32([[4, 4]]), np.float32([[1, 0], [1, 1]]))
  np.testing.assert_allclose(carried["output"]["weight"], [[0.5, 0.5]])  # it has all of both: no offset


@pytest.mark.slow
def test_colours_are_those_of_bare_patches():
  network = tokenizer(48, 1)
  found = colours_of_codes(network, scenes.FLAT_WORLD, num_images=50)
  names = list(BACKGROUNDS)
  scene = scenes.Scene("white", (scenes.Object("house", "noto", None, "small", 2, 5),))
  for name in names:
    token = scene_encoder(network)([dataclasses.replace(scene, background=name)], np.random.default_rng(0))[0, 0]
    assert found[token] >= 0  # an untrained tokenizer may give two colours one code
  assert found.shape == (48,) and found.min() == -1 and found.max() < len(names)
  assert not bare_cells(scene)[2:5, 5:8].any() and bare_cells(scene).sum() == 144 - 9


def test_nats_of_synonyms_are_those_given_the_colour():
  generator = np.random.default_rng(0)
  logits = jnp.asarray(3 * generator.standard_normal((2, 5, 6)), jnp.float32)
  colours, targets = np.int32([0, 0, -1, 2, 2, 2]), generator.integers(0, 6, (2, 5))
  probs, expected = np.asarray(jax.nn.softmax(logits), np.float64), []
  for row, target in zip(probs.reshape(10, 6), targets.reshape(-1)):
    same = colours == colours[target]
    expected.append(0.0 if colours[target] < 0 else -np.log(row[target] / row[same].sum()))
  assert float(synonym_nats(logits, jnp.asarray(targets), colours)) == pytest.approx(np.mean(expected), rel=1e-5)
  assert float(synonym_nats(logits, jnp.full((2, 5), 2), colours)) == 0.0
