"""Encoders of images and captions: vectors, gradients, checkpoints."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec
from jaxspec import checkpoints
from jaxspec.models.caption_encoder import CaptionEncoderConfig, caption_encoder_fns
from jaxspec.models.image_classifier import ImageClassifierConfig, image_classifier_fns
from jaxspec.models.image_encoder import Depthwise, ImageEncoderConfig, image_encoder_fns

SHAPE = dict(image_size=16, widths=(4, 8), blocks=(1, 1), expansion=2, embed_dim=6)
CONFIGS = {
  "image_encoder": ImageEncoderConfig(**SHAPE),
  "image_classifier": ImageClassifierConfig(**SHAPE, styles=("a", "b"), groups=("c", "d", "e")),
  "caption_encoder": CaptionEncoderConfig(**SHAPE, vocab_size=11, max_tokens=5, text_dim=4, text_layers=1, text_heads=1),
}


def _random(fns, seed=0):
  generator = np.random.default_rng(seed)
  random = lambda leaf: jnp.asarray(generator.normal(size=leaf.shape, scale=0.4), leaf.dtype)
  return jax.tree.map(random, jax.eval_shape(fns.init, jax.random.key(0)))


def _images(rows=3):
  return jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (rows, 16, 16, 3)), jnp.float32)


def test_depthwise_is_a_grouped_convolution():
  x = jax.random.normal(jax.random.key(0), (2, 5, 6, 4))
  module = Depthwise()
  weight = jax.random.normal(jax.random.key(1), (3, 3, 4))
  kernel = weight[:, :, None]  # [3, 3, 1, C]
  expected = jax.lax.conv_general_dilated(
    x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=4
  )
  np.testing.assert_allclose(jax.jit(module.apply)({"params": {"weight": weight}}, x), expected, atol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_vectors_and_checkpoints(name, tmp_path):
  """Root mean square 1, rows independent of their neighbours, and `jaxspec.load` gives the same network."""
  checkpoints.save(tmp_path / "part", CONFIGS[name], _random(checkpoints.registry.FAMILIES[name].make_fns(CONFIGS[name])))
  loaded = jaxspec.load(tmp_path / "part")
  assert (loaded.family, loaded.config) == (name, CONFIGS[name])
  vectors = jax.jit(loaded.fns.embed)(loaded.params, _images())
  chex.assert_shape(vectors, (3, 6))
  np.testing.assert_allclose(jnp.mean(vectors**2, axis=1), 1, rtol=1e-5)
  changed = jax.jit(loaded.fns.embed)(loaded.params, _images().at[0].set(0.5))
  np.testing.assert_allclose(changed[1:], vectors[1:], atol=1e-5)
  assert float(jnp.abs(vectors[0] - vectors[1]).max()) > 0.1


def test_vectors_depend_on_where_something_is_drawn():
  fns = image_encoder_fns(CONFIGS["image_encoder"])
  params, image = _random(fns), jnp.zeros((1, 16, 16, 3))
  both = jnp.concatenate([image.at[:, :8, :8].set(1.0), image.at[:, 8:, 8:].set(1.0)])
  left, right = jax.jit(fns.embed)(params, both)
  assert float(jnp.abs(left - right).max()) > 0.1


def test_classifier_gives_logits_of_styles_and_groups():
  fns = image_classifier_fns(CONFIGS["image_classifier"])
  params = _random(fns)
  logits, vectors = jax.jit(lambda p, x: (fns.classify(p, x), fns.embed(p, x)))(params, _images())
  chex.assert_shape(logits.style, (3, 2))
  chex.assert_shape(logits.group, (3, 3))
  expected = vectors @ params["group"]["weight"].T
  np.testing.assert_allclose(logits.group, expected, atol=1e-5)


def test_captions_ignore_padding():
  config = CONFIGS["caption_encoder"]
  fns = caption_encoder_fns(config)
  params = _random(fns)
  ids = jnp.array([[0, 0, 3, 4, 5], [9, 9, 3, 4, 5], [0, 0, 5, 4, 3]])
  mask = jnp.arange(5)[None] >= jnp.array([2, 2, 2])[:, None]
  vectors = jax.jit(fns.embed_text)(params, ids, mask)
  np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-5)
  assert float(jnp.abs(vectors[0] - vectors[2]).max()) > 1e-2
  np.testing.assert_allclose(jnp.mean(vectors**2, axis=1), 1, rtol=1e-5)


@pytest.mark.slow
def test_gradients_reach_every_leaf():
  fns = image_encoder_fns(CONFIGS["image_encoder"])
  grads = jax.jit(jax.grad(lambda params: jnp.sum(fns.embed(params, _images())[:, 0])))(_random(fns))
  for leaf in jax.tree.leaves(grads):
    assert bool(jnp.isfinite(leaf).all()) and float(jnp.abs(leaf).max()) > 0


@pytest.mark.parametrize("make, words", [
  (lambda: ImageEncoderConfig(widths=(4,), blocks=(1, 1)), "one width and block count"),
  (lambda: ImageEncoderConfig(image_size=60), "divisible by 16"),
  (lambda: ImageClassifierConfig(styles=("a",), groups=("b", "c")), "two styles"),
  (lambda: CaptionEncoderConfig(text_dim=5, text_heads=2), "divisible by the heads"),
])  # fmt: skip
def test_bad_arguments_are_errors(make, words):
  with pytest.raises(ValueError, match=words):
    make()
