"""The VQ tokenizer and its quantizer: golden arrays, published sizes, exact properties."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxspec.models.nn import quantizer
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig, llamagen_vq_fns
from jaxspec.models.tokenizers.tokenizer_fns import from_uint8, square_grid, to_uint8
from tests.models import llamagen_parity as parity


def _failures(rows):
  assert rows
  return [row for row in rows if not row.passed]


@pytest.mark.slow
@pytest.mark.parametrize("check", parity.TOKENIZER_CHECKS, ids=lambda check: check.__name__)
def test_every_array_agrees(check):
  assert not _failures(check())


@pytest.mark.slow
@pytest.mark.parametrize("check", [parity.vq16, parity.vq8], ids=lambda check: check.__name__)
def test_published_size_with_recipe_weights(check):
  assert not _failures(check())


@pytest.mark.slow
@pytest.mark.parametrize(
  "name, factor, num_params, num_leaves", [("VQ-16", 16, 71_883_403, 343), ("VQ-8", 8, 70_109_835, 299)]
)
def test_published_sizes(name, factor, num_params, num_leaves):
  config = LlamaGenVQConfig.named(name)
  leaves = jax.tree.leaves(jax.eval_shape(llamagen_vq_fns(config).init, jax.random.key(0)))
  assert (config.factor, sum(x.size for x in leaves), len(leaves)) == (factor, num_params, num_leaves)


@pytest.mark.slow
def test_shapes_of_a_published_tokenizer():
  fns = llamagen_vq_fns(LlamaGenVQConfig.named("VQ-16"))
  params = jax.eval_shape(fns.init, jax.random.key(0))
  image = jax.ShapeDtypeStruct((2, 256, 256, 3), jnp.float32)
  indices, latent = jax.eval_shape(fns.encode, params, image)
  assert (indices.shape, indices.dtype, latent.shape) == ((2, 256), jnp.int32, (2, 16, 16, 8))
  assert jax.eval_shape(fns.features, params, image).shape == (2, 16, 16, 256)
  decoded = jax.eval_shape(fns.decode, params, indices)
  assert (decoded.shape, decoded.dtype) == (image.shape, jnp.float32)


@pytest.mark.slow
def test_bfloat16_keeps_float32_outputs():
  config = LlamaGenVQConfig(base_channels=32, multipliers=(1, 1), num_res_blocks=1, dtype="bfloat16")
  fns = llamagen_vq_fns(config)
  params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.bfloat16), jax.eval_shape(fns.init, jax.random.key(0)))
  indices, latent = jax.eval_shape(fns.encode, params, jax.ShapeDtypeStruct((1, 4, 4, 3), jnp.float32))
  assert latent.dtype == jax.eval_shape(fns.decode, params, indices).dtype == jnp.float32


def test_same_functions_for_equal_configs():
  assert llamagen_vq_fns(LlamaGenVQConfig()) is llamagen_vq_fns(LlamaGenVQConfig.named("VQ-16"))


@pytest.mark.parametrize(
  "overrides", [{"base_channels": 40}, {"multipliers": ()}, {"multipliers": (1, 0)}, {"codebook_size": 0}]
)
def test_bad_configs_are_errors(overrides):
  with pytest.raises(ValueError, match="Must have"):
    LlamaGenVQConfig(**overrides)


def test_bad_inputs_are_errors():
  fns = llamagen_vq_fns(LlamaGenVQConfig.named("VQ-8"))
  params = jax.eval_shape(fns.init, jax.random.key(0))
  for shape in ((1, 3, 64, 64), (1, 60, 64, 3), (64, 64, 3)):
    with pytest.raises(ValueError, match="sides divisible by 8"):
      jax.eval_shape(fns.encode, params, jax.ShapeDtypeStruct(shape, jnp.float32))
  for indices, grid in (((1, 15), None), ((1, 16), (3, 5))):
    with pytest.raises(ValueError, match="Must have"):
      jax.eval_shape(lambda p, i, grid=grid: fns.decode(p, i, grid), params, jax.ShapeDtypeStruct(indices, jnp.int32))


# The quantizer.


@pytest.fixture(scope="module")
def codes():
  return jnp.asarray(np.random.default_rng(0).normal(size=(7, 4)), jnp.float32)


def test_scaling_rows_and_latents_changes_nothing(codes):
  latent = jnp.asarray(np.random.default_rng(1).normal(size=(2, 3, 4)), jnp.float32)
  scales = jnp.asarray(np.random.default_rng(2).uniform(0.1, 10, size=(7, 1)), jnp.float32)
  indices = quantizer.nearest_codes(latent, codes)
  assert indices.dtype == jnp.int32 and indices.shape == (2, 3)
  np.testing.assert_array_equal(indices, quantizer.nearest_codes(5 * latent, codes * scales))
  np.testing.assert_allclose(quantizer.lookup(codes, indices), quantizer.lookup(codes * scales, indices), atol=1e-6)
  cosine = np.einsum("bnc,vc->bnv", quantizer.normalise(latent), quantizer.normalise(codes))
  np.testing.assert_array_equal(indices, cosine.argmax(-1))


def test_codes_map_to_themselves_and_ties_to_the_first(codes):
  doubled = jnp.concatenate([codes, 2 * codes])
  np.testing.assert_array_equal(quantizer.nearest_codes(codes, codes), np.arange(7))
  np.testing.assert_array_equal(quantizer.nearest_codes(4 * codes, doubled), np.arange(7))


def test_rows_have_unit_length(codes):
  norms = np.linalg.norm(quantizer.lookup(codes, jnp.arange(7)), axis=-1)
  np.testing.assert_allclose(norms, 1, atol=1e-6)
  assert not np.asarray(quantizer.normalise(jnp.zeros(4))).any()


def test_straight_through_passes_the_gradient(codes):
  z = quantizer.normalise(jnp.ones((2, 4)))
  e = quantizer.lookup(codes, jnp.array([3, 5]))
  value, (dz, de) = jax.value_and_grad(lambda z, e: jnp.sum(quantizer.straight_through(z, e) * 3), (0, 1))(z, e)
  np.testing.assert_allclose(value, 3 * jnp.sum(e), rtol=1e-6)
  np.testing.assert_array_equal(dz, np.full((2, 4), 3.0))
  assert not np.asarray(de).any()


@pytest.mark.slow
def test_each_loss_has_gradients_for_its_side_only(codes):
  latent = jnp.asarray(np.random.default_rng(3).normal(size=(2, 5, 4)), jnp.float32)
  loss = lambda name: lambda z, c: getattr(quantizer.quantizer_losses(z, c, entropy_ratio=0.1), name)  # noqa: E731
  for name, moves in (("vq", (False, True)), ("commit", (True, False)), ("entropy", (True, True))):
    gradients = jax.jit(jax.grad(loss(name), (0, 1)))(latent, codes)
    assert tuple(bool(np.asarray(g).any()) for g in gradients) == moves, name
  assert quantizer.quantizer_losses(latent, codes).entropy == 0


@pytest.mark.slow
def test_gradients_are_right_and_finite_at_zero(codes):
  latent = jnp.asarray(np.random.default_rng(4).normal(size=(5, 4)), jnp.float32)
  indices = quantizer.nearest_codes(latent, codes)

  def smooth(z, c):  # without stop_gradient; a warm temperature, since finite differences need a smooth function
    gap = quantizer.lookup(c, indices) - quantizer.normalise(z)
    return jnp.mean(jnp.square(gap)) + quantizer.quantizer_losses(z, c, entropy_ratio=0.1, temperature=1.0).entropy

  check_grads(jax.jit(smooth), (latent, codes), order=1, modes=["rev"], atol=2e-2, rtol=2e-2)
  total = jax.jit(jax.grad(lambda z: sum(quantizer.quantizer_losses(z, codes, entropy_ratio=0.1))))
  gradient = total(jnp.zeros((2, 4)))
  assert np.isfinite(gradient).all()


# Pixels.


def test_pixel_conversion():
  pixels = np.arange(256, dtype=np.uint8)
  np.testing.assert_array_equal(to_uint8(from_uint8(jnp.asarray(pixels))), pixels)
  np.testing.assert_array_equal(to_uint8(jnp.array([-3.0, -1.0, 0.0, 1.0, 3.0])), [0, 0, 128, 255, 255])


def test_square_grid():
  assert square_grid(256) == (16, 16)
  with pytest.raises(ValueError, match="square"):
    square_grid(255)
