"""Objective of a KL autoencoder (latent diffusion, arXiv 2112.10752) for small images.

Reconstruction losses on the pixels, plus a small weight on the divergence of the latents from a standard normal
distribution. There is no adversarial and no perceptual loss. ``min_std`` adds noise to every latent before it is decoded.
Tokens whose chains stop early still carry noise, and a decoder that was trained with it removes nearly all of it.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.models.tokenizers.kl_vae import Posterior, VAEFns
from jaxspec.models.tokenizers.tokenizer_fns import from_uint8
from jaxspec.training.common_losses import pixel_losses
from jaxspec.training.train_step import LossFn


@dataclasses.dataclass(frozen=True)
class VAEObjective:
  """Weights of the losses.

  Attributes:
    kl: weight of the divergence, a mean over latent numbers in nats.
    min_std: deviation of the noise that is added to latents on top of the posterior's own.
  """

  l1: float = 1.0
  l2: float = 1.0
  gradient: float = 0.5
  kl: float = 1e-3
  min_std: float = 0.2

  def __post_init__(self):
    if self.kl < 0 or self.min_std < 0:
      raise ValueError(f"Must have kl and min_std of at least 0, we instead got {self.kl} and {self.min_std}")


def normal_divergence(posterior: Posterior) -> Array:
  """``KL(posterior || N(0, 1))`` in nats, mean over latent numbers ``[]``."""
  variance = jnp.exp(posterior.log_variance)
  return 0.5 * jnp.mean(jnp.square(posterior.mean) + variance - 1.0 - posterior.log_variance)


def kl_vae_loss_fn(vae: VAEFns, objective: VAEObjective) -> LossFn:
  """The objective; a batch is ``{"images": uint8 [B, H, W, 3]}``, there is no extra state."""

  def loss_fn(params, extra, batch, key):
    images = from_uint8(batch["images"])
    posterior = vae.encode(params, images)
    own, added = jax.random.split(key)
    shape = posterior.mean.shape
    latents = posterior.sample(jax.random.normal(own, shape)) + objective.min_std * jax.random.normal(added, shape)
    pixels = pixel_losses(vae.decode(params, latents), images)
    divergence = normal_divergence(posterior)
    loss = objective.l1 * pixels.l1 + objective.l2 * pixels.l2 + objective.gradient * pixels.gradient
    metrics = {"l1": pixels.l1, "l2": pixels.l2, "kl": divergence, "latent_std": jnp.std(posterior.mean)}
    return loss + objective.kl * divergence, (metrics, extra)

  return loss_fn
