"""Classes that are dropped in training, so that a network also learns to draw without one (arXiv 2207.12598)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, Key
from jaxspec.models.conditions import ClassLabels


def drop_labels(key: Key, labels: Array, num_classes: int, probability: float) -> ClassLabels:
  """Classes ``[B]`` of which some are dropped, for guidance.

  Args:
    key: consumed.
    num_classes: the label of "no class".
    probability: how often a row loses its class.
  """
  dropped = jax.random.bernoulli(key, probability, labels.shape)
  return ClassLabels(jnp.where(dropped, num_classes, labels))
