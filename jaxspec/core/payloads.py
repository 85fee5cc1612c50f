"""Payloads of drafts and verdicts that drafters, rules and verifiers share."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax.numpy as jnp

from jaxspec.core.types import Array, Key, PyTree


class PendingTokens(NamedTuple):
  """`Draft.payload` of a drafter that accepts tokens locally: the committed tokens by position, and the number that the
  target has read."""

  tokens: Array  # [B, N] int32, the committed tokens
  read: Array  # [B] int32, leading tokens that the target has read
  features: PyTree = ()  # [B, N, D] float32 interval features of committed and drafted tokens, 0 where a token has none


class DraftedScale(NamedTuple):
  """A drafted scale, with the distributions of draft and target."""

  tokens: Array  # [B, S] int32
  draft: Array  # [B, S, V] processed logits of the draft network
  target: Array  # [B, S, V] processed logits of the target


class Replaced(NamedTuple):
  """Replacement of a rejected scale."""

  tokens: Array  # [B, S] int32
  tries: Array  # [B] int32, drawn proposals
  fallback: Array  # [B] bool, none was accepted within the cap: the last one is used, which is not exact


class AcceptScale(Protocol):
  """An acceptance rule for scales; frozen and hashable. Keys are those of the scale (`jaxspec.core.rng.of_token`)."""

  def accepts(self, keys: Key, drafted: DraftedScale) -> Array:
    """``[B]`` bool."""
    ...

  def replace(self, keys: Key, drafted: DraftedScale, needed: Array) -> Replaced:
    """Replacements of rejected scales; only rows ``needed [B]`` are used."""
    ...


def as_token(tokens: Array, width: int) -> Array:
  """A scale ``[B, S]`` as a token ``[B, C]``, padded with -1."""
  return jnp.pad(tokens, ((0, 0), (0, width - tokens.shape[1])), constant_values=-1)
