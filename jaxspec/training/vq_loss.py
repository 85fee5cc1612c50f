"""Objective of a VQ tokenizer and the restart of dead codes.

Reconstruction losses on the pixels plus the quantiser's losses, with straight-through gradients (VQ-VAE, arXiv 1711.00937).
There is no adversarial and no perceptual loss. Codes that hardly any position uses are replaced by random encoder outputs
(as Jukebox does, arXiv 2005.00341, section 3.1):

1. ``usage = 0.97 usage + counts`` of every code, after each batch;
2. every 20 steps until `restart_until`, codes with a usage below 0.5 become random latents of the last batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import flax.struct
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Key, Params
from jaxspec.models.nn import quantizer
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns, from_uint8
from jaxspec.training.common_losses import PixelLosses, pixel_losses
from jaxspec.training.train_step import AfterUpdateFn, LossFn, Metrics


@dataclasses.dataclass(frozen=True)
class VQObjective:
  """Weights of the losses and settings of the restarts."""

  l1: float = 1.0
  l2: float = 1.0
  gradient: float = 0.5
  log_l2: float = 0.1
  beta: float = 0.25
  entropy_ratio: float = 0.0
  usage_decay: float = 0.97
  restart_below: float = 0.5
  restart_every: int = 20
  restart_until: int = 800


@flax.struct.dataclass
class CodeUsage:
  """How often each code was used recently, and latents that can replace dead codes."""

  counts: Array  # [V] float32 decayed counts
  candidates: Array  # [V, e] float32 random latents of the last batch


def init_usage(num_codes: int, code_dim: int) -> CodeUsage:
  """No code has been used."""
  return CodeUsage(jnp.zeros((num_codes,)), jnp.zeros((num_codes, code_dim)))


def vq_loss_fn(tokenizer: TokenizerFns, objective: VQObjective) -> LossFn:
  """The objective; a batch is ``{"images": uint8 [B, H, W, 3]}``, the extra state a `CodeUsage`."""

  def loss_fn(params, usage, batch, key):
    images = from_uint8(batch["images"])
    indices, latent = tokenizer.encode(params, images)
    indices = indices.reshape(latent.shape[:-1])
    codebook = tokenizer.codebook(params)
    quantised = quantizer.straight_through(quantizer.normalise(latent), quantizer.lookup(codebook, indices))
    pixels = pixel_losses(tokenizer.decode_latent(params, quantised), images)
    code = quantizer.quantizer_losses(latent, codebook, indices, beta=objective.beta, entropy_ratio=objective.entropy_ratio)
    loss = pixel_term(pixels, objective) + code.vq + code.commit + code.entropy
    usage = count_codes(usage, indices, jax.lax.stop_gradient(quantizer.normalise(latent)), key, objective)
    return loss, (reconstruction_metrics(pixels, usage, objective) | {"vq": code.vq}, usage)

  return loss_fn


def pixel_term(pixels: PixelLosses, objective: VQObjective) -> Array:
  """The weighted losses on pixels, ``[]``."""
  loss = objective.l1 * pixels.l1 + objective.l2 * pixels.l2 + objective.gradient * pixels.gradient
  return loss + objective.log_l2 * pixels.log_l2


def count_codes(usage: CodeUsage, indices: Array, latents: Array, key: Key, objective: VQObjective) -> CodeUsage:
  """Step 1 of the module docstring, with random candidates.

  Args:
    indices: of the batch, int32.
    latents: ``[..., e]``, vectors that can replace dead codes.
    key: consumed.
  """
  counts = jnp.zeros_like(usage.counts).at[indices.reshape(-1)].add(1.0)
  flat = latents.reshape(-1, latents.shape[-1])
  chosen = jax.random.randint(key, (usage.counts.shape[0],), 0, flat.shape[0])
  return CodeUsage(objective.usage_decay * usage.counts + counts, flat[chosen])


def reconstruction_metrics(pixels: PixelLosses, usage: CodeUsage, objective: VQObjective) -> Metrics:
  """Metrics of images and codes."""
  return {
    "l1": pixels.l1,
    "psnr": -10.0 * (pixels.log_l2 - jnp.log10(4.0)),  # of float pixels, per image, up to the floor
    "used": jnp.mean(usage.counts >= objective.restart_below),
  }


def restart_dead_codes(objective: VQObjective, codebook: tuple[str, ...] = ("codebook",)) -> AfterUpdateFn:
  """Step 2 of the module docstring, for parameters with a table ``[V, e]`` at the path ``codebook``."""

  def after_update(params, usage, step, key):
    due = (step % objective.restart_every == objective.restart_every - 1) & (step < objective.restart_until)
    dead = due & (usage.counts < objective.restart_below)
    jitter = 1e-3 * jax.random.normal(key, usage.candidates.shape)  # equal candidates must not become equal codes
    restart = lambda codes: jnp.where(dead[:, None], usage.candidates + jitter, codes)
    # A new code counts as used until the next look, a little above the threshold after decay.
    counts = jnp.where(dead, 2 * objective.restart_below, usage.counts)
    return _changed(params, codebook, restart), usage.replace(counts=counts)

  return after_update


def _changed(params: Params, path: tuple[str, ...], change: Callable[[Array], Array]) -> Params:
  """The parameters with another leaf at a path."""
  name, *rest = path
  return {**params, name: _changed(params[name], tuple(rest), change) if rest else change(params[name])}
