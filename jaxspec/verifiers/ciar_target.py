"""The target as a verifier of drafters that accept tokens locally (CIAR, arXiv 2603.25463, Algorithm 1).

When a row needs verification, any number of locally accepted tokens may be missing in the target's cache. One round:

1. While a row has more unread tokens than fit into one pass beside a window, a pass reads the oldest of them.
2. One pass reads ``[unread tokens ..., window ...]``. If the draft has interval features, they are added to the embeddings.
   The logits after the last locally accepted token and after every token of the window are gathered, row by row.
3. The acceptance rule judges the window. Locally accepted tokens count as accepted.

Passes have a few static widths; each pass takes the narrowest that fits. After the round the cache holds every committed
token except the last, as with any other verifier.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from jaxspec.core.control_flow import run_if
from jaxspec.core.payloads import PendingTokens
from jaxspec.core.token_axes import over_rows
from jaxspec.core.types import AcceptFn, Array, Cursor, Draft, Key, ModelFns, PyTree, Verdict, Verifier
from jaxspec.sampling.logit_processing import ModelParams, Warp
from jaxspec.verifiers.chunk_target import judged_logits
from jaxspec.verifiers.target import TargetState, TargetVerifier


@dataclasses.dataclass(frozen=True)
class CiarVerifier(Verifier):
  """Verifier of `jaxspec.drafters.ciar_drafter.CiarDrafter` drafters.

  Attributes:
    model: the target.
    accept_fn: acceptance rule for chains, applied to the window of a draft only.
    warp: static part of the logit processing.
    window: most tokens that need verification in one round, the same as the drafter's.
    widths: widths of passes, ascending; the last one holds more than a window. On a CPU choose widths just below a step of
      the cost of a pass.
  Raises:
    ValueError: for widths that are not ascending or do not hold a window.
  """

  model: ModelFns
  accept_fn: AcceptFn
  warp: Warp
  window: int
  widths: tuple[int, ...] = (1, 8, 16)

  def __post_init__(self):
    widths, window = self.widths, self.window
    if not widths or widths[-1] < window + 1 or any(a >= b for a, b in zip(widths, widths[1:])) or widths[0] < 1:
      raise ValueError(f"Must have ascending widths, the last above the window of {window}, we instead got {widths}")

  @property
  def widest(self):
    return self.widths[-1]

  @property
  def most_unread(self):
    return self.widest - self.window - 1

  @property
  def plain(self):
    return TargetVerifier(self.model, self.accept_fn, warp=self.warp)

  def init(self, params: ModelParams, keys: Key, condition: PyTree, max_len: int, block: int) -> tuple[Verdict, TargetState]:
    # An ordinary prefill. The cache must also hold a pass from the last position of a row.
    return self.plain.init(params, keys, condition, max_len, max(block, self.widest))

  def verify(
    self, params: ModelParams, keys: Key, state: TargetState, cursor: Cursor, draft: Draft
  ) -> tuple[Verdict, TargetState]:
    if draft.tokens.shape[1] == 0:  # the target draws alone, so it has read everything
      return self.plain.verify(params, keys, state, cursor, draft)
    if not isinstance(draft.payload, PendingTokens):
      raise ValueError("Must have a drafter that says what the target has not read (`PendingTokens`), we instead got none")
    unread = draft.payload
    local, judged = draft.num_local, cursor.live & draft.needs_verify
    num_window = draft.num_drafted - local  # [B]
    first = cursor.length + local  # position of the first window token
    tokens = _by_position(draft, cursor, self.widest)
    # Interval features of the edge, by position; zeros beyond the last position of a row.
    beyond = tokens.shape[1] - unread.tokens.shape[1]
    features = jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, 0), (0, beyond), (0, 0))), unread.features)

    def inputs_of(read: Array, width: int) -> tuple[Array, Array, Array | None]:
      """Tokens, positions and injected features of a pass from position ``read`` on."""
      index = read[:, None] + jnp.arange(width)[None]
      inputs = jnp.take_along_axis(tokens, index, axis=1)
      inject = jnp.take_along_axis(features, index[..., None], axis=1) if jax.tree.leaves(features) else None
      return inputs, over_rows(state.prefix_len, index) + index, inject

    def has_too_many_unread(read: Array) -> Array:
      return judged & (first - 1 - read > self.most_unread)

    def read_oldest(carry):
      cache, read = carry
      none = jnp.zeros((1,), jnp.int32)  # logits of unread tokens are not needed
      inputs, positions, inject = inputs_of(read, self.widest)
      _, cache = self.model.apply(params.model, inputs, cache, positions=positions, inject=inject, logits_at=none)
      step = jnp.minimum(self.widest, first - 1 - read)
      return cache, read + jnp.where(has_too_many_unread(read), step, 0)

    cache, read = jax.lax.while_loop(
      lambda carry: jnp.any(has_too_many_unread(carry[1])), read_oldest, (state.cache, unread.read)
    )
    skipped = jnp.where(judged, first - 1 - read, 0)  # [B] inputs before the token with the logits of the window

    def judge_pass(width: int, carry):
      return judged_logits(self.model, params.model, carry[1], *inputs_of(read, width), skipped, self.window)

    needed = jnp.max(jnp.where(judged, skipped + num_window + 1, 1))
    shapes = jax.eval_shape(functools.partial(judge_pass, self.widest), (None, cache))[0]
    carry = (jnp.zeros(shapes.shape, shapes.dtype), cache)
    for narrower, width in zip((0, *self.widths), self.widths):
      fits = (needed > narrower) & (needed <= width)
      carry = run_if(fits, functools.partial(judge_pass, width), carry)
    logits, cache = carry
    logits = self.warp(logits, params.sampling, first[:, None] + jnp.arange(self.window + 1)[None])
    verdict = self.accept_fn(params.rule, keys, _window_of(draft, self.window, num_window), logits)
    if jax.tree.leaves(verdict.metrics):
      raise ValueError("Must have a rule that reports nothing about tokens after a gate, we instead got an audited one")
    accepted = local + jnp.where(draft.needs_verify, verdict.num_accepted, 0)
    return verdict._replace(num_accepted=accepted), state._replace(cache=cache)


def num_catch_ups(unread: int, window: int, widest: int) -> int:
  """Number of passes before the pass of the window, with ``unread`` tokens before the token with the logits of the
  window."""
  return max(0, -(-(unread - (widest - window - 1)) // widest))


def _by_position(draft: Draft, cursor: Cursor, beyond: int) -> Array:
  """Committed tokens, locally accepted tokens and those of the window by position, ``[B, N + beyond]`` int32."""
  committed = draft.payload.tokens
  rows, size = committed.shape
  offset = jnp.arange(draft.tokens.shape[1])[None]
  position = jnp.where(offset < draft.num_drafted[:, None], cursor.length[:, None] + offset, size + beyond)  # or dropped
  buffer = jnp.pad(committed, ((0, 0), (0, beyond)))
  return buffer.at[jnp.arange(rows)[:, None], position].set(draft.tokens, mode="drop")


def _window_of(draft: Draft, window: int, num_window: Array) -> Draft:
  """The part of a draft for the rule: the tokens after the locally accepted ones."""
  index = draft.num_local[:, None] + jnp.arange(window)[None]
  index = jnp.minimum(index, draft.tokens.shape[1] - 1)
  tokens = jnp.take_along_axis(draft.tokens, index, axis=1)
  return Draft.chain(tokens, draft.proposal, num_window, 0)
