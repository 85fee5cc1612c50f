"""Rotary position embedding of text, with the published ways of stretching it over longer texts.

Channel p turns together with channel ``p + head_dim / 2`` (half-split pairs, as in Hugging Face weights) by the angle
``position * f_p``. A `Rope` says how the frequencies ``f_p = theta^(-2 p / head_dim)`` are changed:

- ``default``: not at all (arXiv 2104.09864).
- ``linear``: divided by ``factor`` (position interpolation, arXiv 2306.15595).
- ``dynamic``: beyond ``original_max_positions`` the base grows with the length (NTK-aware scaling).
- ``yarn``: slow pairs are divided by ``factor``, fast ones stay as they are, with a ramp between;  cos and sin are scaled
  (arXiv 2309.00071, section 3.2 and equation 22).
- ``llama3``: like yarn with a ramp over wavelengths and without the scale (Llama 3.1).
- ``factors``: every pair has its own divisor (GGUF files of Llama 3.1 store these).

Dynamic frequencies depend on the length. Here a position has the frequencies of its own length, position + 1, as in decoding
token by token with a cache. A cached pass therefore equals a full one, the distribution of a token never depends on the
drafts after it, and rows of a batch stay independent. In the transformers library a full pass over a text longer than
``original_max_positions`` differs, because every position has the frequencies of the whole length.
"""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array

SCALINGS = ("default", "linear", "dynamic", "yarn", "llama3", "factors")


@dataclasses.dataclass(frozen=True)
class Rope:
  """Frequencies of one network.

  Attributes:
    theta: base.
    scaling: one of `SCALINGS`.
    factor: how many times longer texts may become.
    original_max_positions: length the network was first trained on (dynamic, yarn, llama3).
    low_freq_factor: llama3: pairs that turn fewer times than this over the original length are divided by ``factor``.
    high_freq_factor: llama3: pairs that turn more often stay as they are.
    beta_fast: yarn: pairs with more turns over the original length stay as they are. ``beta_slow``: with fewer are divided.
    truncate: yarn: whether the ramp starts and ends at whole pairs.
    attention_factor: yarn: factor of cos and sin; None is ``0.1 ln(factor) + 1``.
    factors: divisors of the pairs.
  """

  theta: float = 10000.0
  scaling: str = "default"
  factor: float = 1.0
  original_max_positions: int | None = None
  low_freq_factor: float = 1.0
  high_freq_factor: float = 4.0
  beta_fast: float = 32.0
  beta_slow: float = 1.0
  truncate: bool = True
  attention_factor: float | None = None
  factors: tuple[float, ...] = ()

  def __post_init__(self):
    object.__setattr__(self, "factors", tuple(self.factors))  # a list in JSON
    if self.scaling not in SCALINGS:
      raise ValueError(f"Must have a RoPE scaling in {', '.join(SCALINGS)}, we instead got {self.scaling!r}")
    if not (self.theta > 1 and self.factor > 0):
      raise ValueError(f"Must have a RoPE base above 1 and a positive factor, we instead got {self.theta}, {self.factor}")
    if self.scaling in ("dynamic", "yarn", "llama3") and self.trained_length() < 1:
      raise ValueError(f"Must have positive original_max_positions, we instead got {self.original_max_positions}")
    if self.scaling == "llama3" and not self.high_freq_factor > self.low_freq_factor:
      raise ValueError(
        f"Must have high_freq_factor above low_freq_factor, we instead got {self.high_freq_factor} and "
        f"{self.low_freq_factor}"
      )

  def trained_length(self) -> int:
    """``original_max_positions``.

    Raises:
      ValueError: for a scaling that does not have it.
    """
    if self.original_max_positions is None:
      raise ValueError(f"Must have original_max_positions for RoPE scaling {self.scaling!r}, we instead got none")
    return self.original_max_positions

  @property
  def amplitude(self) -> float:
    """Factor of cos and sin."""
    if self.scaling != "yarn":
      return 1.0
    if self.attention_factor is not None:
      return self.attention_factor
    return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1 else 1.0


def rope_table(rope: Rope, positions: Array, head_dim: int) -> Array:
  """Cosine and sine of every position.

  Args:
    positions: ``[..., T]`` int, from 0.
  Returns:
    ``[..., T, head_dim / 2, 2]`` float32, last axis (cos, sin).
  """
  if rope.scaling == "dynamic":
    frequencies = _dynamic_frequencies(rope, positions, head_dim)
  else:
    frequencies = jnp.asarray(fixed_frequencies(rope, head_dim)).reshape((1,) * positions.ndim + (-1,))
  angles = positions[..., None].astype(jnp.float32) * frequencies  # [..., T, head_dim / 2]
  return jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1) * jnp.float32(rope.amplitude)


def rotate_halves(x: Array, table: Array) -> Array:
  """Rotates half-split pairs of ``x [B, T, H, head_dim]`` by ``table [B or 1, T, head_dim / 2, 2]``."""
  cos, sin = table[..., None, :, 0], table[..., None, :, 1]
  first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  out = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
  return out.astype(x.dtype)


def _exponents(head_dim: int) -> np.ndarray:
  return np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)


def fixed_frequencies(rope: Rope, head_dim: int) -> np.ndarray:
  """``[head_dim / 2]`` float32 radians per position of every scaling that does not depend on the length."""
  plain = np.float32(1.0) / np.float32(rope.theta) ** _exponents(head_dim)
  if rope.scaling == "default":
    return plain
  if rope.scaling == "linear":
    return plain / np.float32(rope.factor)
  if rope.scaling == "factors":
    if len(rope.factors) != len(plain):
      raise ValueError(f"Must have {len(plain)} RoPE factors, we instead got {len(rope.factors)}")
    return plain / np.asarray(rope.factors, np.float32)
  keep = _kept_share(rope, plain, head_dim)
  return (plain / np.float32(rope.factor) * (1 - keep) + plain * keep).astype(np.float32)


def _kept_share(rope: Rope, plain: np.ndarray, head_dim: int) -> np.ndarray:
  """Share of every pair's own frequency ``[head_dim / 2]``; the rest is the frequency divided by the factor."""
  if rope.scaling == "llama3":
    turns = np.float32(rope.trained_length()) * plain / np.float32(2 * math.pi)  # over the original length
    low, high = np.float32(rope.low_freq_factor), np.float32(rope.high_freq_factor)
    return np.clip((turns - low) / (high - low), 0, 1)

  def pair_with_turns(turns: float) -> float:
    """The (fractional) index of the pair that makes ``turns`` turns over the original length."""
    return head_dim * math.log(rope.trained_length() / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

  first, last = pair_with_turns(rope.beta_fast), pair_with_turns(rope.beta_slow)
  if rope.truncate:
    first, last = math.floor(first), math.ceil(last)
  first, last = max(first, 0), min(last, head_dim - 1)
  if first == last:
    last += 0.001  # a step instead of a ramp
  index = np.arange(head_dim // 2, dtype=np.float32)
  return 1 - np.clip((index - np.float32(first)) / np.float32(last - first), 0, 1)


def _dynamic_frequencies(rope: Rope, positions: Array, head_dim: int) -> Array:
  """``[..., T, head_dim / 2]`` float32."""
  length = jnp.maximum(positions + 1, rope.trained_length()).astype(jnp.float32)
  stretch = rope.factor * length / rope.trained_length() - (rope.factor - 1)
  base = rope.theta * stretch ** (head_dim / (head_dim - 2))
  exponents = jnp.asarray(_exponents(head_dim)).reshape((1,) * positions.ndim + (-1,))
  return 1.0 / base[..., None] ** exponents
