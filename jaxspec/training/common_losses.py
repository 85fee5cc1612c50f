"""Training losses: pixels, tokens, distillation. All are means, all are computed in float32."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array


class PixelLosses(NamedTuple):
  """Scalar float32 reconstruction losses."""

  l1: Array  # mean absolute error
  l2: Array  # mean squared error
  gradient: Array  # mean absolute error of the differences between neighbouring pixels
  log_l2: Array  # mean over images of log10 of the squared error; equals minus PSNR / 10 up to a constant


def pixel_losses(images: Array, targets: Array, *, floor: float = 1e-4) -> PixelLosses:
  """Reconstruction losses between images.

  Args:
    images: ``[B, H, W, C]`` reconstructions.
    targets: ``[B, H, W, C]``.
    floor: added to the squared error inside the logarithm; it bounds the gradient of images that are nearly perfect.
  """
  error = images.astype(jnp.float32) - targets.astype(jnp.float32)
  squared = jnp.square(error)
  rows, columns = jnp.diff(error, axis=1), jnp.diff(error, axis=2)  # the difference is linear: diff of the error
  return PixelLosses(
    jnp.mean(jnp.abs(error)),
    jnp.mean(squared),
    0.5 * (jnp.mean(jnp.abs(rows)) + jnp.mean(jnp.abs(columns))),
    jnp.mean(jnp.log10(jnp.mean(squared, axis=(1, 2, 3)) + floor)),
  )


def token_losses(logits: Array, targets: Array) -> Array:
  """Negative log-likelihood of every target token ``[B, N]``, float32 nats; ``logits [B, N, V]``, ``targets [B, N]``."""
  log_p = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
  return -jnp.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]


def token_cross_entropy(logits: Array, targets: Array, valid: Array | None = None) -> Array:
  """Mean negative log-likelihood of the target tokens, in nats.

  With ``valid``, the sum over the tokens of valid rows divided by their number (at least 1), as LlamaGen trains its
  text-to-image models (arXiv 2406.06525, official repository FoundationVision/LlamaGen).

  Args:
    logits: ``[B, N, V]``.
    targets: ``[B, N]`` int32.
    valid: optional ``[B]`` or ``[B, N]`` bool; rows or tokens that count.
  """
  losses = token_losses(logits, targets)
  if valid is None:
    return jnp.mean(losses)
  if valid.ndim == 1:
    valid = valid[:, None]
  valid = jnp.broadcast_to(valid, losses.shape)
  return jnp.sum(jnp.where(valid, losses, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def distillation_kl(
  teacher_logits: Array, student_logits: Array, temperature: float | Array = 1.0, valid: Array | None = None
) -> Array:
  """Mean over tokens of ``KL(teacher || student)`` at ``temperature``, in nats, times ``temperature ** 2``.

  The factor keeps the size of the gradients (Hinton et al., arXiv 1503.02531, section 2). No gradient reaches the teacher.

  Args:
    teacher_logits: ``[B, N, V]``.
    student_logits: ``[B, N, V]``.
    temperature: softens both distributions.
    valid: optional ``[B]`` or ``[B, N]`` bool; rows or tokens that count.
  """
  teacher = jax.nn.log_softmax(jax.lax.stop_gradient(teacher_logits).astype(jnp.float32) / temperature, axis=-1)
  student = jax.nn.log_softmax(student_logits.astype(jnp.float32) / temperature, axis=-1)
  # A token that the teacher excludes (-inf) contributes nothing.
  gap = jnp.where(jnp.isneginf(teacher), 0.0, teacher - student)
  divergence = jnp.sum(jnp.exp(teacher) * gap, axis=-1) * temperature**2
  if valid is None:
    return jnp.mean(divergence)
  if valid.ndim == 1:
    valid = valid[:, None]
  valid = jnp.broadcast_to(valid, divergence.shape)
  return jnp.sum(jnp.where(valid, divergence, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


class FeatureLosses(NamedTuple):
  """Scalar float32 losses of a drafter that continues its target's features."""

  feature: Array  # smooth L1 between predicted and target features, mean over channels
  token: Array  # cross-entropy of the predicted distribution against the target's, in nats


def feature_losses(features: Array, host_features: Array, logits: Array, host_logits: Array, valid: Array) -> FeatureLosses:
  """The two losses of EAGLE (arXiv 2401.15077, section 4.2), means over the valid positions. No gradient reaches the target.

  Args:
    features: ``[B, T, D]`` predicted.
    host_features: ``[B, T, D]`` of the target at the predicted positions.
    logits: ``[B, T, V]`` the target's output matrix on ``features``.
    host_logits: ``[B, T, V]``.
    valid: ``[B or 1, T]`` bool; positions that count.
  """
  error = jnp.abs(features.astype(jnp.float32) - jax.lax.stop_gradient(host_features).astype(jnp.float32))
  smooth = jnp.mean(jnp.where(error < 1, 0.5 * jnp.square(error), error - 0.5), axis=-1)
  distribution = jax.nn.softmax(jax.lax.stop_gradient(host_logits).astype(jnp.float32), axis=-1)
  entropy = -jnp.sum(distribution * jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1), axis=-1)
  valid = jnp.broadcast_to(valid, smooth.shape)
  mean = lambda x: jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid), 1)
  return FeatureLosses(mean(smooth), mean(entropy))
