"""Vector quantization with l2-normalised codes, as in VQGAN-style image tokenizers.

Latents and codebook rows are both projected to the unit sphere, so the nearest code is the one with the largest cosine
(improved VQGAN, arXiv 2110.04627; LlamaGen, arXiv 2406.06525, official repository FoundationVision/LlamaGen). Stored
rows are not guaranteed to have unit length: they are normalised at every use, also when decoding.

1. ``zn = z / max(|z|, 1e-12)``, ``e = row / max(|row|, 1e-12)``;
2. ``index = argmin |zn|^2 + |e|^2 - 2 zn.e`` (the first one on ties);
3. the value handed on is ``zn + stop_gradient(e - zn)``.

Everything is channels-last and computed in float32. Products have full precision whatever the default precision is, so that
an index does not depend on the hardware.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array

_EPS = 1e-12


class QuantizerLosses(NamedTuple):
  """Scalar float32 training losses of the quantizer; their plain sum goes into the tokenizer's objective."""

  vq: Array  # moves the codes to the latents
  commit: Array  # moves the latents to the codes, times beta
  entropy: Array  # confident per position, uniform over the codebook, times its ratio


def normalise(x: Array) -> Array:
  """``x [..., C]`` divided by ``max(|x|, 1e-12)`` along the last axis, in float32; the gradient is finite at zero."""
  x = x.astype(jnp.float32)
  return x / jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(x), axis=-1, keepdims=True), _EPS**2))


def distances(latent: Array, codebook: Array) -> Array:
  """Squared distances between normalised latents and normalised codes.

  Args:
    latent: ``[..., C]`` latents, not normalised.
    codebook: ``[V, C]`` stored rows, not normalised.
  Returns:
    ``[..., V]`` float32.
  """
  return squared_distances(normalise(latent), normalise(codebook))


def squared_distances(z: Array, e: Array) -> Array:
  """Squared distances ``[..., V]`` between vectors ``z [..., C]`` and ``e [V, C]`` as they are, all float32."""
  products = jnp.einsum("...c,vc->...v", z, e, precision=jax.lax.Precision.HIGHEST)
  squares = jnp.sum(jnp.square(e), axis=-1).reshape((1,) * (z.ndim - 1) + (-1,))
  return jnp.sum(jnp.square(z), axis=-1, keepdims=True) + squares - 2 * products


def nearest_codes(latent: Array, codebook: Array) -> Array:
  """Index of the nearest code.

  Args:
    latent: ``[..., C]`` latents, not normalised.
    codebook: ``[V, C]`` stored rows, not normalised.
  Returns:
    ``[...]`` int32; the first one on ties.
  """
  return jnp.argmin(distances(latent, codebook), axis=-1).astype(jnp.int32)


def nearest_rows(latent: Array, codebook: Array) -> Array:
  """Like `nearest_codes`, between latents and rows as they are, not normalised."""
  distance = squared_distances(latent.astype(jnp.float32), codebook.astype(jnp.float32))
  return jnp.argmin(distance, axis=-1).astype(jnp.int32)


def rows(codebook: Array, indices: Array) -> Array:
  """Rows ``[..., C]`` of ``codebook [V, C]`` at ``indices [...]`` int32, as they are."""
  return jnp.take(codebook, indices, axis=0, mode="clip")


def lookup(codebook: Array, indices: Array) -> Array:
  """Normalised rows ``[..., C]`` float32 of ``codebook [V, C]`` at ``indices [...]`` int32."""
  return normalise(rows(codebook, indices))


def straight_through(z: Array, e: Array) -> Array:
  """The value of ``e`` with the gradient of ``z``: ``z + stop_gradient(e - z)``, all ``[..., C]``."""
  return z + jax.lax.stop_gradient(e - z)


def quantizer_losses(
  latent: Array,
  codebook: Array,
  indices: Array | None = None,
  *,
  beta: float = 0.25,
  entropy_ratio: float = 0.0,
  temperature: float = 0.01,
) -> QuantizerLosses:
  """Losses of one batch of latents (FoundationVision/LlamaGen, tokenizer training).

  ``vq = mean((e - sg(zn))^2)``; ``commit = beta mean((sg(e) - zn)^2)``; ``entropy = ratio (H_sample - H_avg)`` with
  ``p = softmax(-distance / temperature)``, ``H_sample`` the mean entropy of p and ``H_avg`` that of the mean of p.

  Args:
    latent: ``[..., C]`` latents, not normalised.
    codebook: ``[V, C]`` stored rows, not normalised.
    indices: ``[...]`` int32 nearest codes, if they are known already.
    beta: weight of the commitment loss.
    entropy_ratio: weight of the entropy loss; the official setting is 0, which skips its computation.
    temperature: of the soft assignment in the entropy loss.
  """
  if indices is None:
    indices = nearest_codes(latent, codebook)
  stop = jax.lax.stop_gradient
  z, e = normalise(latent), lookup(codebook, indices)
  vq = jnp.mean(jnp.square(e - stop(z)))
  commit = beta * jnp.mean(jnp.square(stop(e) - z))
  if entropy_ratio == 0:
    return QuantizerLosses(vq, commit, jnp.float32(0))
  log_p = jax.nn.log_softmax(-distances(latent, codebook).reshape(-1, codebook.shape[0]) / temperature, axis=-1)
  p = jnp.exp(log_p)
  mean_p = jnp.mean(p, axis=0)
  sample_entropy = -jnp.mean(jnp.sum(p * log_p, axis=-1))
  mean_entropy = -jnp.sum(mean_p * jnp.log(mean_p + 1e-5))
  return QuantizerLosses(vq, commit, entropy_ratio * (sample_entropy - mean_entropy))
