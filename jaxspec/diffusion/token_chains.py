"""The contract of acceptance rules for continuous tokens. They read chains of Gaussian steps.

Given the target's chains after every prefix of the draft, a rule accepts leading drafts and draws one more token. It also
describes a drafted chain by what it needs, so that the draft side stores and sends no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp

from jaxspec.core.token_axes import at_position, num_leading
from jaxspec.core.types import Array, Draft, Key, PyTree, Verdict
from jaxspec.diffusion.chain import Chain, DistributionFn, TokenNoise, token_noise

_Report = TypeVar("_Report", bound=NamedTuple)


class DraftedChains(NamedTuple):
  """`Draft.proposal` of continuous tokens: a description of every drafted chain, and the keys of the chains' noise."""

  chains: PyTree  # descriptions by `TokenRule.describe`, leaves [B, K, ...]
  key_data: Array  # [B, ...] uint32, the keys of the round from which the noise of all K chains was drawn


class TargetChains(NamedTuple):
  """The target's chains after every prefix of a draft of ``K`` tokens."""

  z: Array  # [B, K + 1, Z] features; entry i belongs to the token after the first i drafts
  slot: Array  # [B, K + 1] int32, position of that token in its row
  distribution: Callable[
    [Array, Array], DistributionFn
  ]  # (z [B, T, Z], slot [B, T]) -> distributions for states [B, T, C] or [R, B, T, C]
  temperature: Array  # [] float32
  num_steps: int
  token_dim: int
  noisy_end: bool

  def column(self, position: Array) -> TargetChains:
    """The chains of one position ``[B]`` of every row, as chains of ``K = 0`` drafts."""
    return self._replace(z=at_position(self.z, position)[:, None], slot=at_position(self.slot, position)[:, None])

  def noise(self, keys: Key, draft: Draft, *, shared: bool = True) -> TokenNoise:
    """Noise of all ``K + 1`` chains: the drafts' noise for the first K, fresh noise for the last.

    Args:
      keys: ``[B]`` of this verification; used for streams of noise only.
      shared: static; False draws fresh noise for all chains.
    """
    window = draft.tokens.shape[1]
    draw = lambda keys, positions: token_noise(keys, positions[None], self.num_steps, self.token_dim)
    positions = jnp.arange(window + 1, dtype=jnp.int32)
    if not shared or window == 0:
      return draw(keys, positions)
    drafted = jax.random.wrap_key_data(draft.proposal.key_data, impl=jax.random.key_impl(keys))
    parts = draw(drafted, positions[:-1]), draw(keys, positions[-1:])
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), *parts)


class TokenReport(NamedTuple):
  """`DecodeResult.metrics` of the rules for continuous tokens, leaves ``[B, N]``; 0 where a draft was accepted."""

  tries: Array  # int32, proposals drawn to replace a rejected token
  fallback: Array  # bool, no proposal was accepted within the cap, so that the last one was taken (not exact)
  steps: Array  # int32, leading steps of the rejected draft's chain that were accepted or ran on shared noise


class TokenRule(Protocol):
  """An acceptance rule for continuous tokens; frozen and hashable."""

  def describe(self, drawn: Chain, noise: TokenNoise, temperature: Array) -> PyTree:
    """Describes a drafted token for the rule: an entry of `DraftedChains.chains`.

    Args:
      drawn: the token's recorded chain, states ``[T, B, 1, C]``.
      noise: the token's noise, leaves ``[B, 1, ...]``.
      temperature: ``[]`` float32 of the draft side.
    Returns:
      Leaves ``[B, ...]``.
    """
    ...

  def check(self, num_steps: int, noisy_end: bool) -> None:
    """Raises a ValueError for chains that the rule cannot judge."""
    ...

  def __call__(self, keys: Key, draft: Draft, target: TargetChains) -> Verdict:
    """Judges a draft, or draws one token if its ``K`` is 0; ``keys [B]`` are consumed."""
    ...


def leading(accepted: Array, draft: Draft) -> Array:
  """``[B]`` int32: number of leading drafts that are accepted, from flags ``accepted [B, K]``."""
  valid = jnp.arange(accepted.shape[1])[None] < draft.num_drafted[:, None]
  return num_leading(accepted & valid)


def report_at(window: int, position: Array, report: _Report) -> _Report:
  """`Verdict.metrics` ``[B, K + 1]`` from the report ``[B]`` about the token that ends a round, at ``position [B]``."""
  here = jnp.arange(window + 1)[None] == position[:, None]
  return jax.tree.map(lambda leaf: jnp.where(here, leaf[:, None], jnp.zeros((), leaf.dtype)), report)
