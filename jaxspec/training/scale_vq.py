"""Objective of a tokenizer of scales (VAR, arXiv 2404.02905, section 3.2): residual quantisation from coarse to fine.

With the latent image f and the sums ``s_k`` of the values of scales 0 .. k:

  code = mean over k of mean((s_k - sg(f))^2) + beta mean((sg(s_k) - f)^2)

The decoder reads the last sum, with straight-through gradients. Losses on pixels, weights, and the restart of dead codes are
those of `jaxspec.training.vq_loss`. A restarted code becomes what is left of a random latent after a random number of
scales, because all scales share the codes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.models.nn import quantizer
from jaxspec.models.tokenizers.tokenizer_fns import from_uint8
from jaxspec.models.tokenizers.var_vae import ScaleTokenizerFns
from jaxspec.training.common_losses import pixel_losses
from jaxspec.training.train_step import LossFn
from jaxspec.training.vq_loss import VQObjective, count_codes, pixel_term, reconstruction_metrics

CODEBOOK = ("quantize", "embedding", "weight")  # where the codes are among the parameters


def scale_code_loss(latent: Array, totals: list[Array], beta: float) -> Array:
  """The loss ``[]`` of the codes, for latents ``[B, H, H, C]`` and the sums after every scale, each ``[B, H, H, C]``."""
  stop = jax.lax.stop_gradient
  terms = [jnp.mean(jnp.square(s - stop(latent))) + beta * jnp.mean(jnp.square(stop(s) - latent)) for s in totals]
  return jnp.asarray(sum(terms)) / len(terms)


def scale_vq_loss_fn(tokenizer: ScaleTokenizerFns, objective: VQObjective) -> LossFn:
  """The objective; a batch is ``{"images": uint8 [B, S, S, 3]}``, the extra state a `jaxspec.training.vq_loss.CodeUsage`.

  Raises:
    ValueError: for a weight of the entropy loss, which codes of scales do not have.
  """
  if objective.entropy_ratio:
    raise ValueError(f"Must have an entropy_ratio of 0 for codes of scales, we instead got {objective.entropy_ratio}")

  def loss_fn(params, usage, batch, key):
    images = from_uint8(batch["images"])
    indices, latent = tokenizer.encode(params, images)
    totals = tokenizer.totals(params, indices)
    code = scale_code_loss(latent, totals, objective.beta)
    pixels = pixel_losses(tokenizer.decode_latent(params, quantizer.straight_through(latent, totals[-1])), images)
    rests = jax.lax.stop_gradient(jnp.stack([latent - total for total in (jnp.zeros_like(latent), *totals[:-1])]))
    usage = count_codes(usage, indices, rests, key, objective)
    metrics = reconstruction_metrics(pixels, usage, objective) | {"vq": code}
    return pixel_term(pixels, objective) + code, (metrics, usage)

  return loss_fn
