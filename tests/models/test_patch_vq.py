"""The patch tokenizer: shapes, consistency of its functions, gradients, checkpoints."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.io import checkpoints
from jaxspec.models.nn import quantizer
from jaxspec.models.tokenizers.patch_vq import PatchVQConfig, depth_to_space, patch_vq_fns, space_to_depth

TINY = PatchVQConfig(image_size=16, widths=(4, 8), encoder_blocks=(1, 1), decoder_blocks=(1, 1), num_codes=16, code_dim=4)


@pytest.fixture(scope="module")
def tiny():
  """Functions, random parameters and images. The parameters are not those of `init`, whose second convolutions are zero."""
  fns = patch_vq_fns(TINY)
  generator = np.random.default_rng(0)
  random = lambda leaf: jax.device_put(generator.normal(size=leaf.shape, scale=0.3).astype(leaf.dtype))
  params = jax.tree.map(random, jax.eval_shape(fns.init, jax.random.key(0)))
  return fns, params, jnp.asarray(generator.uniform(-1, 1, (3, 16, 16, 3)), jnp.float32)


def test_space_to_depth_keeps_blocks_together():
  x = jnp.arange(2 * 4 * 6 * 3.0).reshape(2, 4, 6, 3)
  y = space_to_depth(x)
  assert y.shape == (2, 2, 3, 12)
  np.testing.assert_array_equal(y[1, 1, 2].reshape(2, 2, 3), x[1, 2:4, 4:6])
  np.testing.assert_array_equal(depth_to_space(y), x)


def test_encode_and_decode(tiny):
  fns, params, images = tiny

  @jax.jit
  def everything(params, images):
    indices, latent = fns.encode(params, images)
    codes = quantizer.lookup(fns.codebook(params), indices.reshape(3, 4, 4))
    head = params["to_code"]
    by_hand = jnp.einsum("bhwc,ce->bhwe", fns.features(params, images), head["kernel"][0, 0])
    by_hand = by_hand + head["bias"].reshape(1, 1, 1, -1)
    return indices, latent, fns.decode(params, indices), fns.decode_latent(params, codes), by_hand

  indices, latent, decoded, decoded_codes, by_hand = everything(params, images)
  chex.assert_shape(indices, (3, 16))
  chex.assert_shape(latent, (3, 4, 4, 4))
  chex.assert_shape(decoded, images.shape)
  assert indices.dtype == jnp.int32
  assert latent.dtype == jnp.float32
  np.testing.assert_array_equal(indices, quantizer.nearest_codes(latent, fns.codebook(params)).reshape(3, 16))
  np.testing.assert_allclose(decoded, decoded_codes, atol=1e-5)
  np.testing.assert_allclose(latent, by_hand, atol=1e-5)


def test_images_are_independent_of_each_other(tiny):
  fns, params, images = tiny
  encode = jax.jit(fns.encode)
  together, _ = encode(params, images)
  other, _ = encode(params, images.at[0].set(0.0))
  np.testing.assert_array_equal(together[1:], other[1:])


def test_other_shapes(tiny):
  fns, params, _ = tiny
  indices, latent = jax.eval_shape(fns.encode, params, jnp.zeros((1, 8, 24, 3)))
  assert latent.shape == (1, 2, 6, 4)
  decode = functools.partial(fns.decode, grid=(2, 6))
  assert jax.eval_shape(decode, params, indices).shape == (1, 8, 24, 3)
  with pytest.raises(ValueError, match="square"):
    fns.decode(params, indices)


@pytest.mark.slow
def test_gradient_reaches_every_parameter(tiny):
  fns, params, images = tiny

  @jax.jit
  @jax.grad
  def grad(params):
    indices, latent = fns.encode(params, images)
    indices = indices.reshape(latent.shape[:-1])
    z, e = quantizer.normalise(latent), quantizer.lookup(params["codebook"], indices)
    losses = quantizer.quantizer_losses(latent, params["codebook"], indices)
    out = fns.decode_latent(params, quantizer.straight_through(z, e))
    return jnp.mean(jnp.square(out - images)) + losses.vq + losses.commit

  for path, leaf in jax.tree_util.tree_leaves_with_path(grad(params)):
    assert jnp.any(leaf != 0), jax.tree_util.keystr(path)
    assert jnp.all(jnp.isfinite(leaf)), jax.tree_util.keystr(path)


def test_checkpoint_round_trip(tiny, tmp_path):
  fns, params, images = tiny
  checkpoints.save(tmp_path / "tokenizer", TINY, params, meta={"psnr": 1.0})
  loaded = checkpoints.load(tmp_path / "tokenizer")
  assert loaded.config == TINY
  assert loaded.fns is fns
  chex.assert_trees_all_equal(loaded.params, params)


@pytest.mark.parametrize(
  "fields, message",
  [
    (dict(widths=(4,)), "per level"),
    (dict(image_size=30), "divisible by 4"),
    (dict(num_codes=1), "codes"),
  ],
)
def test_bad_configs_are_errors(fields, message):
  with pytest.raises(ValueError, match=message):
    PatchVQConfig(**fields)


def test_an_encoder_of_single_patches_gives_equal_patches_equal_tokens():
  """A flat area has one token, and an image that is moved by whole patches has its tokens moved."""
  config = PatchVQConfig(16, (8,), (1,), (1,), num_codes=64, encoder_kernel=1)
  fns = patch_vq_fns(config)
  image = jax.random.uniform(jax.random.key(1), (16, 16, 3), minval=-1.0).at[8:].set(0.3)
  both = jnp.stack([image, jnp.roll(image, 4, axis=1)])
  tokens, moved = jax.jit(lambda key: fns.encode(fns.init(key), both)[0])(jax.random.key(0)).reshape(2, 8, 8)
  assert len(np.unique(tokens[4:])) == 1 < len(np.unique(tokens[:4]))
  np.testing.assert_array_equal(moved, np.roll(tokens, 2, axis=1))
  with pytest.raises(ValueError, match="odd size"):
    PatchVQConfig(encoder_kernel=2)
