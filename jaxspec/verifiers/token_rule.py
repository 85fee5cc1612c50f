"""What a rule for vector tokens is: no network, no loop; it reads chains of Gaussian steps.

A rule decides how many drafts are kept and draws one more token, given the target's chains behind every prefix of the
draft. It also says what of a drafted chain it needs to see, so that the drafting side remembers (and sends) no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxspec.diffusion.chain import Chain, LawFn, TokenNoise, token_noise
from jaxspec.types import Array, Draft, Key, PyTree, Verdict


class TargetChains(NamedTuple):
  """The target's chains behind every prefix of a draft of ``K`` tokens."""

  z: Array  # [B, K + 1, Z] features; entry i belongs to the token behind the first i drafts
  slot: Array  # [B, K + 1] int32, number of that token in its row
  law: Callable[[Array, Array], LawFn]  # (z [B, T, Z], slot [B, T]) -> laws for states [B, T, C] or [R, B, T, C]
  temperature: Array  # [] float32
  num_steps: int
  token_dim: int
  noisy_end: bool

  def column(self, place: Array) -> TargetChains:
    """The chains of one place ``[B]`` of every row, as chains of ``K = 0`` drafts."""
    return self._replace(z=column(self.z, place)[:, None], slot=column(self.slot, place)[:, None])

  def noise(self, keys: Key, draft: Draft, *, shared: bool = True) -> TokenNoise:
    """Noise of all ``K + 1`` chains: that of the drafts for the first K, fresh for the last.

    Args:
      keys: ``[B]`` of this verification; used for streams of noise only.
      shared: static; False draws fresh noise for all.
    """
    window = draft.tokens.shape[1]
    draw = lambda keys, places: token_noise(keys, places[None], self.num_steps, self.token_dim)
    places = jnp.arange(window + 1, dtype=jnp.int32)
    if not shared or window == 0:
      return draw(keys, places)
    drafted = jax.random.wrap_key_data(draft.aux, impl=jax.random.key_impl(keys))
    parts = draw(drafted, places[:-1]), draw(keys, places[-1:])
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), *parts)


class TokenReport(NamedTuple):
  """`DecodeResult.metrics` of the rules for vector tokens, leaves ``[B, N]``; 0 where a token was drafted and kept."""

  tries: Array  # int32, proposals until a token was replaced
  fallback: Array  # bool, no proposal passed within the cap: the last one was taken, which the law does not allow
  steps: Array  # int32, leading steps of the refused draft's chain that were kept or ran on shared noise


class TokenRule(Protocol):
  """A rule; frozen and hashable."""

  def describe(self, drawn: Chain, noise: TokenNoise, temperature: Array) -> PyTree:
    """`Draft.proposal` of a drafted token.

    Args:
      drawn: its recorded chain, states ``[T, B, 1, C]``.
      noise: its noise, ``[B, 1, ...]``.
    Returns:
      Leaves ``[B, ...]``.
    """
    ...

  def check(self, num_steps: int, noisy_end: bool) -> None:
    """Raises a ValueError for chains that the rule cannot judge."""
    ...

  def __call__(self, keys: Key, draft: Draft, target: TargetChains) -> Verdict:
    """Judges a draft, or draws a token if its ``K`` is 0; ``keys [B]`` are consumed."""
    ...


def column(values: Array, place: Array) -> Array:
  """Entry ``[B, ...]`` at ``place [B]`` of ``values [B, K, ...]``."""
  return jax.vmap(lambda row, at: row[at])(values, place)


def leading(accepted: Array, draft: Draft) -> Array:
  """``[B]`` int32: how many leading drafts are accepted, of flags ``[B, K]``."""
  valid = jnp.arange(accepted.shape[1])[None] < draft.num_drafted[:, None]
  return jnp.sum(jnp.cumprod((accepted & valid).astype(jnp.int32), axis=1), axis=1)


def report_at(window: int, place: Array, report: TokenReport) -> TokenReport:
  """The report ``[B]`` about the token that ends a round, as `Verdict.metrics` ``[B, K + 1]``."""
  here = jnp.arange(window + 1)[None] == place[:, None]
  return jax.tree.map(lambda leaf: jnp.where(here, leaf[:, None], jnp.zeros((), leaf.dtype)), report)
