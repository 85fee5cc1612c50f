"""The target as a verifier of given chunks: rows of many decodes in one batch of a fixed shape.

One pass reads a `Chunk` of every row: pending committed tokens, then drafts, then padding. Rows start at different
positions. The logits after the last committed token and after every draft are gathered row by row, and an acceptance rule
judges the drafts. It corresponds to the last pass of `jaxspec.verifiers.ciar_target`, which chunks its input itself.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import commits
from jaxspec.core.token_axes import over_rows
from jaxspec.core.types import AcceptFn, Array, Cache, Cursor, Draft, Key, ModelFns, Params, PyTree, Verdict, Verifier
from jaxspec.sampling.logit_processing import ModelParams, Warp
from jaxspec.verifiers.target import TargetState, TargetVerifier


class Chunk(NamedTuple):
  """`Draft.payload`: input of one pass of ``W`` tokens."""

  tokens: Array  # [B, W] int32: pending committed tokens, then drafts, then padding
  start: Array  # [B] int32, position of the first one in its row
  skipped: Array  # [B] int32, inputs before the last committed token, which gives the logits of the first draft
  features: PyTree = ()  # [B, W, D] interval features, added to the embeddings


class ChunkState(NamedTuple):
  """The cache of the rows, and checks of the newest pass's logits."""

  cache: Cache
  prefix_len: Array  # [B] int32
  finite: Array  # [B] bool, no logit was NaN or +inf
  bits: Array  # [B] uint32, a sum over the bits of the logits: rows with equal logits have equal sums


def judged_logits(
  model: ModelFns, params: Params, cache: Cache, tokens: Array, positions: Array, inject: Array | None, skipped: Array,
  window: int,
) -> tuple[Array, Cache]:  # fmt: skip
  """One pass over ``tokens [B, W]``; returns the logits for the verdict.

  Args:
    positions: ``[B, W]`` int32 of the tokens, the condition included.
    inject: ``[B, W, D]`` added to the embeddings, or None.
    skipped: ``[B]`` int32, inputs before the one with the logits of the first draft.
    window: most drafts.
  Returns:
    Logits ``[B, window + 1, V]``, where those beyond the pass are garbage; and the new cache.
  """
  output, cache = model.apply(params, tokens, cache, positions=positions, inject=inject)
  index = jnp.clip(skipped[:, None] + jnp.arange(window + 1)[None], 0, tokens.shape[1] - 1)
  return jnp.take_along_axis(output.need_logits(), index[..., None], axis=1), cache


@dataclasses.dataclass(frozen=True)
class ChunkVerifier(Verifier):
  """Verifier of drafts whose payload is a `Chunk`; its state is a `ChunkState`, after the prefill a `TargetState`.

  Attributes:
    model: the target.
    accept_fn: acceptance rule for chains.
    warp: static part of the logit processing.
    returns_logits: whether the feedback is the processed logits ``[B, K + 1, V]``, for verdicts that may request
      distributions (`jaxspec.serving.wire.two_phase`); False gives no feedback.
    bonus: also draw a token after full acceptance, see `jaxspec.core.commits.without_bonus`.
  """

  model: ModelFns
  accept_fn: AcceptFn
  warp: Warp
  returns_logits: bool = False
  bonus: bool = True

  @property
  def plain(self):
    return TargetVerifier(self.model, self.accept_fn, warp=self.warp)

  def init(
    self, params: ModelParams, keys: Key, condition: PyTree, max_len: int, window: int
  ) -> tuple[Verdict, TargetState]:
    return self.plain.init(params, keys, condition, max_len, window)

  def verify(
    self, params: ModelParams, keys: Key, state: ChunkState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, ChunkState]:
    chunk = draft.payload
    if not isinstance(chunk, Chunk):
      raise ValueError(f"Must have a draft whose payload is a Chunk, we instead got {type(chunk).__name__}")
    window = draft.tokens.shape[1]
    index = chunk.start[:, None] + jnp.arange(chunk.tokens.shape[1], dtype=jnp.int32)[None]
    inject = chunk.features if jax.tree.leaves(chunk.features) else None
    positions = over_rows(state.prefix_len, index) + index
    raw, cache = judged_logits(self.model, params.model, state.cache, chunk.tokens, positions, inject, chunk.skipped, window)
    judged = (chunk.start + chunk.skipped + 1)[:, None] + jnp.arange(window + 1, dtype=jnp.int32)[None]
    logits = self.warp(raw, params.sampling, judged)
    verdict = self.accept_fn(params.rule, keys, draft, logits)
    verdict = verdict if self.bonus else commits.without_bonus(draft, verdict)
    finite, bits = _seen(raw, jnp.arange(window + 1)[None] <= draft.num_drafted[:, None])
    feedback = logits if self.returns_logits else ()
    return verdict._replace(feedback=feedback), ChunkState(cache, state.prefix_len, finite, bits)


def _seen(logits: Array, valid: Array) -> tuple[Array, Array]:
  """`ChunkState.finite` and `ChunkState.bits` of logits ``[B, T, V]`` float32 at the positions ``valid [B, T]``."""
  broken = jnp.any(jnp.isnan(logits) | jnp.isposinf(logits), axis=-1)  # -inf is an excluded token
  # Sums of integers do not depend on their order. The factors make a swap of two logits detectable.
  bits = jax.lax.bitcast_convert_type(logits, jnp.uint32)
  entry = jnp.arange(logits.shape[-1], dtype=jnp.uint32)[None, None]
  position = jnp.arange(logits.shape[1], dtype=jnp.uint32)[None, :, None]
  factors = (2 * entry + 1) * (2 * position + 1)
  sums = jnp.sum(jnp.where(valid[..., None], bits * factors, jnp.uint32(0)), axis=(1, 2), dtype=jnp.uint32)
  return ~jnp.any(broken & valid, axis=-1), sums
