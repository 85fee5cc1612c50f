"""The KL autoencoder: published size, its posterior, pixels, faults."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.io import checkpoints
from jaxspec.models.tokenizers import kl_vae, tokenizer_fns
from jaxspec.models.tokenizers.kl_vae import SD_LATENT_SCALE, KLVAEConfig, kl_vae_fns
from tests.models import dit_golden


@pytest.mark.slow
def test_published_autoencoder_has_its_size():
  fns = kl_vae_fns(KLVAEConfig.named("KL-16"))
  shapes = checkpoints.flatten(jax.eval_shape(fns.init, jax.random.key(0)))
  assert len(shapes) == 312
  assert sum(leaf.size for leaf in shapes.values()) / 1e6 == pytest.approx(66.46, abs=0.01)
  params = jax.eval_shape(fns.init, jax.random.key(0))
  posterior = jax.eval_shape(fns.encode, params, jnp.zeros((2, 64, 32, 3)))
  assert posterior.mean.shape == posterior.log_variance.shape == (2, 4, 2, 16)
  assert jax.eval_shape(fns.decode, params, posterior.mean).shape == (2, 64, 32, 3)


@pytest.mark.slow
def test_the_autoencoder_of_stable_diffusion_agrees():
  """Images, posterior and pixels equal those of the diffusers library; MAR's autoencoder is compared in
  `test_mar_golden`."""
  model = dit_golden.autoencoder()
  arrays, last = model.arrays, lambda x: jnp.asarray(np.moveaxis(x, 1, -1))
  first = lambda x: np.moveaxis(np.asarray(x), -1, 1)

  @jax.jit
  def run(latents, image):
    decoded = model.fns.decode(model.params, latents / SD_LATENT_SCALE)
    return decoded, tokenizer_fns.to_uint8(decoded), model.fns.encode(model.params, image)

  decoded, pixels, posterior = run(last(arrays["latents"]), last(arrays["image"]))
  np.testing.assert_allclose(first(decoded), arrays["decoded"], rtol=0, atol=5e-5)
  np.testing.assert_allclose(first(posterior.mean), arrays["mean"], rtol=0, atol=5e-5)
  np.testing.assert_allclose(first(posterior.log_variance), arrays["log_variance"], rtol=0, atol=5e-5)
  assert np.abs(first(pixels).astype(int) - arrays["uint8"]).max() <= 1


@pytest.mark.slow
def test_the_autoencoder_of_stable_diffusion_has_its_size():
  config = KLVAEConfig.named("SD-VAE")
  shapes = jax.eval_shape(kl_vae_fns(config).init, jax.random.key(0))
  assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 83_653_863 and config.factor == 8


def test_posterior():
  moments = jnp.asarray([[[[0.5, -1.0, -99.0, 99.0]]]])
  posterior = kl_vae.posterior_of(moments)
  np.testing.assert_array_equal(posterior.log_variance[0, 0, 0], [-30.0, 20.0])
  np.testing.assert_allclose(posterior.sample(jnp.zeros((1, 1, 1, 2))), moments[..., :2])
  np.testing.assert_allclose(posterior.std, np.exp([[[[-15.0, 10.0]]]]), rtol=1e-5)


def test_pixels():
  np.testing.assert_array_equal(kl_vae.to_uint8(jnp.asarray([-2.0, -1.0, 0.0, 0.999, 1.0, 7.0])), [0, 0, 128, 255, 255, 255])


@pytest.mark.parametrize(
  "change, message",
  [
    (dict(multipliers=()), "multiplier"),
    (dict(base_channels=40), "divisible by num_groups"),
    (dict(attention_levels=(5,)), "attention levels below 5"),
    (dict(latent_channels=0), "latent_channels"),
  ],
)
def test_bad_configs_are_errors(change, message):
  with pytest.raises(ValueError, match=message):
    KLVAEConfig(**change)


def test_bad_images_are_errors():
  fns = kl_vae_fns(KLVAEConfig.named("KL-16"))
  with pytest.raises(ValueError, match="divisible by 16"):
    fns.encode({}, jnp.zeros((1, 24, 16, 3)))
  with pytest.raises(ValueError, match="in KL-16, SD-VAE"):
    KLVAEConfig.named("KL-8")
