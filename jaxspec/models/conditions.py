"""What a network is conditioned on, and the teacher-forcing input built from it; all know their ``batch_size``."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, HostArray


class ClassLabels(NamedTuple):
  """Class-conditional prompt: one condition token per row."""

  labels: HostArray  # [B] int32; num_classes is the unconditional class

  @property
  def batch_size(self) -> int:
    return self.labels.shape[0]


class OrderedLabels(NamedTuple):
  """Class-conditional prompt of a network that generates its tokens in any order: one condition token per row."""

  labels: HostArray  # [B] int32; num_classes is the unconditional class
  order: HostArray  # [B, L] int32, the raster position of the j-th generated token (`jaxspec.core.orders`)

  @property
  def batch_size(self) -> int:
    return self.labels.shape[0]


class Caption(NamedTuple):
  """Text-conditional prompt: text-encoder features, left padded."""

  features: HostArray  # [B, P, caption_dim] float
  mask: HostArray  # [B, P] bool, False on padding (which comes first)

  @property
  def batch_size(self) -> int:
    return self.features.shape[0]


class Prompt(NamedTuple):
  """The beginning of a text that a language model continues; rows may have different lengths."""

  tokens: HostArray  # [B, P] int32
  mask: HostArray  # [B, P] bool, False on padding, on either side; every row must have a token

  @property
  def batch_size(self) -> int:
    return self.tokens.shape[0]

  @property
  def longest(self) -> int:
    """Most tokens of a row, padding left out."""
    return int(np.asarray(self.mask).sum(1).max())


def padded_length(num_tokens: int) -> int:
  """Length that a prompt is padded to: 8, 16, 32, ... Otherwise every length would need a separate program."""
  return max(8, 1 << (num_tokens - 1).bit_length())


class Prefixed(NamedTuple):
  """Condition and tokens in one pass without a cache (training, scoring)."""

  condition: ClassLabels | Caption | Prompt | Context
  tokens: HostArray  # [B, T] int32 (or [B, T, C] float) tokens that are fed; the last one of an image or text never is

  @property
  def batch_size(self) -> int:
    return self.condition.batch_size


class Pairs(NamedTuple):
  """Inputs of a drafter that continues another network's features (EAGLE)."""

  tokens: HostArray  # [B, T] int32, the token after each feature
  features: HostArray  # [B, T, D] hidden states of the target; [B, T, 2 D] with guidance

  @property
  def batch_size(self) -> int:
    return self.tokens.shape[0]


class Context(NamedTuple):
  """The target's features at known tokens, whose keys and values a head attends to."""

  features: HostArray  # [B, C, F] features of one or several layers of the target; [B, C, 2 F] with guidance

  @property
  def batch_size(self) -> int:
    return self.features.shape[0]


def left_pad(features: Array, mask: Array) -> Caption:
  """Turns right-padded features into LlamaGen's left-padded, masked form.

  The rows are rotated so that the valid ones come last, then multiplied by the mask.

  Args:
    features: ``[B, P, C]``, valid rows first.
    mask: ``[B, P]`` bool, True on the first ``v`` rows.
  """
  length = features.shape[1]
  valid = jnp.sum(mask.astype(jnp.int32), axis=1)  # [B]
  source = (jnp.arange(length)[None] + valid[:, None]) % length  # [B, P]
  rolled = jnp.take_along_axis(features, source[..., None], axis=1)
  flipped = jnp.flip(mask.astype(bool), axis=1)
  return Caption(rolled * flipped[..., None].astype(features.dtype), flipped)


def align_right(prompt: Prompt) -> tuple[Array, Array]:
  """Tokens and mask ``[B, P]`` with the tokens of every row at its end, in their order: all padding is on the left.

  The last prompt position is then next to the first generated token in every row, so rows of one batch share slots.
  """
  order = jnp.argsort(prompt.mask, axis=1, stable=True)  # False first
  take = lambda leaf: jnp.take_along_axis(leaf, order, axis=1)
  return take(prompt.tokens), take(prompt.mask)
