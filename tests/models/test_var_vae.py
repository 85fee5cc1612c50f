"""VAR's tokenizer agrees with the official one on stored arrays."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.nn import scales
from jaxspec.models.tokenizers.var_vae import VARVAEConfig, var_vae_fns
from tests.models import var_golden as golden

STORED = golden.arrays("var_tiny_vae")


def test_codes_agree():
  vae = golden.load("var_tiny_vae")
  indices, latent = jax.jit(vae.fns.encode)(vae.params, jnp.asarray(golden.channels_last(STORED["image"])))
  np.testing.assert_allclose(latent, golden.channels_last(STORED["features"]), atol=golden.IMAGES)
  np.testing.assert_array_equal(indices, STORED["indices"])
  with pytest.raises(ValueError, match=r"images \[B, 24, 24, 3\], we instead got \[2, 24, 20, 3\]"):
    vae.fns.encode(vae.params, jnp.zeros((2, 24, 20, 3)))


def test_sums_and_images_agree():
  vae = golden.load("var_tiny_vae")
  totals, inputs = jax.jit(lambda *args: (vae.fns.totals(*args), vae.fns.inputs(*args)))(vae.params, STORED["indices"])
  np.testing.assert_allclose(jnp.stack(totals), golden.channels_last(STORED["f_hats"], 2), atol=golden.IMAGES)
  np.testing.assert_allclose(inputs, STORED["var_input"], atol=golden.IMAGES)
  both = jax.jit(vae.fns.decode_latent)(vae.params, jnp.concatenate([totals[-1], totals[0]]))
  last, first = jnp.split(both, 2)
  np.testing.assert_allclose(last, golden.channels_last(STORED["recon_unclamped"]), atol=golden.IMAGES)
  np.testing.assert_allclose(jnp.clip(last, -1, 1), golden.channels_last(STORED["recon"]), atol=golden.IMAGES)
  np.testing.assert_allclose(jnp.clip(first, -1, 1), golden.channels_last(STORED["recon_first"]), atol=golden.IMAGES)
  with pytest.raises(ValueError, match=r"indices \[B, 91\] of all scales, we instead got \[2, 90\]"):
    vae.fns.decode(vae.params, STORED["indices"][:, 1:])


@pytest.mark.slow
def test_decoding_codes_is_decoding_their_sum():
  vae = golden.load("var_tiny_vae")
  images = jax.jit(vae.fns.decode)(vae.params, STORED["indices"])
  np.testing.assert_allclose(images, golden.channels_last(STORED["recon_unclamped"]), atol=golden.IMAGES)


def test_published_tokenizers():
  small, large = VARVAEConfig.named("VAR-256"), VARVAEConfig.named("VAR-512")
  assert (small, small.factor, small.image_size, large.image_size) == (VARVAEConfig(), 16, 256, 512)
  assert large == dataclasses.replace(small, sides=scales.PUBLISHED_SIDES[512])
  assert small.channels == (160, 160, 320, 320, 640) and small.attention_levels == (4,)
  assert var_vae_fns(small) is var_vae_fns(VARVAEConfig())
  with pytest.raises(ValueError, match="a tokenizer in VAR-256, VAR-512, we instead got 'VAR'"):
    VARVAEConfig.named("VAR")


@pytest.mark.parametrize(
  ("fields", "words"),
  [
    ({"sides": (1, 1)}, "grow from 1 on"),
    ({"num_phis": 1}, "num_phis of at least 2, we instead got 1"),
    ({"multipliers": ()}, "one positive multiplier per level"),
    ({"codebook_size": 0}, "codebook_size of at least 1"),
    ({"base_channels": 48}, "base_channels divisible by num_groups, we instead got 48 and 32"),
  ],
)
def test_configs_that_cannot_be(fields, words):
  with pytest.raises(ValueError, match=words):
    VARVAEConfig(**fields)
