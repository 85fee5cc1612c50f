"""Drafts of one pass of spatial heads: a window in raster order (`jaxspec.models.heads.spatial_heads`).

1. The pool holds the pairs (token, target's feature before it) of the newest committed tokens, as many as the rows of the
   image that the vertical heads span. Only committed tokens enter it, so that nothing is rolled back.
2. One pass of the heads reads the newest pair and the pairs above each place of the window. It gives one row of logits for
   each place. Where the image has no row above, a row comes from the horizontal head alone.
3. Each place is drawn from its own row, which is its proposal. Rows were computed without the tokens of the places before,
   and from features of shorter contexts; a proposal may depend on anything but its own draw and later ones.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core import commits, rng
from jaxspec.core.types import Cursor, Draft, Drafter, Key, ModelFns, PyTree, Verdict
from jaxspec.models.conditions import Pairs
from jaxspec.sampling.logit_processing import ModelParams, Warp, sample


@dataclasses.dataclass(frozen=True)
class SpatialDrafter(Drafter):
  """Drafter that samples ``window`` tokens from the rows of one pass of the heads.

  Its state is the pool: the pair of the token at index ``i`` of a row is in slot ``i % S``. The heads say how many slots
  they read (`ModelFns.init_cache`): ``R`` rows of the image. The verifier must return features
  (``target_model(..., feedback_fn=target_features)``); any rule for chains is valid.

  Attributes:
    head: the heads (`spatial_fns`), or their `guided` form if the target is guided.
    window: drafts per round ``K``.
    columns: tokens of a row of the image.
    warp: logit processing of the proposals, the same as the target's.
  Raises:
    ValueError: if ``window`` is not positive.
  """

  head: ModelFns
  window: int
  columns: int
  warp: Warp
  calls_per_round = 1
  has_cache = False

  def __post_init__(self):
    if self.window < 1:
      raise ValueError(f"Must have a draft window of at least 1, we instead got {self.window}")

  def init(self, params: ModelParams, keys: Key, condition: PyTree, max_len: int, prefill: Verdict) -> tuple[Pairs, None]:
    slots = jax.eval_shape(lambda: self.head.init_cache(1, max_len)).tokens.shape[1]
    pad = lambda leaf: jnp.pad(leaf, ((0, 0), (0, slots - 1), *((0, 0),) * (leaf.ndim - 2)))
    return Pairs(pad(prefill.next_tokens[:, :1]), pad(commits.features_of(prefill)[:, -1:])), None

  def draft(self, params: ModelParams, keys: Key, state: Pairs, cursor: Cursor) -> tuple[Draft, Pairs, tuple]:
    slots, place = state.tokens.shape[1], jnp.arange(self.window)
    up = jnp.arange(self.columns, slots + 1, self.columns)  # [R]
    offset = jnp.concatenate([jnp.full((1,), -1), (place[None] - up[:, None]).ravel()])  # [1 + R K]
    slot = (cursor.length[:, None] + offset[None]) % slots
    take = lambda leaf: jnp.take_along_axis(leaf, slot.reshape(*slot.shape, *(1,) * (leaf.ndim - 2)), axis=1)
    pairs = Pairs(take(state.tokens), take(state.features))
    positions = cursor.length[:, None] - 1 + place[None]
    output, _ = self.head.apply(params.model, pairs, None, positions=positions)
    logits = self.warp(output.need_logits(), params.sampling, positions + 1)  # [B, K, V]
    tokens = sample(logits, rng.uniforms(keys, self.window))
    return Draft.chain(tokens, logits, self.window, self.calls_per_round), state, ()

  def commit(self, params: ModelParams, state: Pairs, cursor: Cursor, draft: Draft, trace: tuple, verdict: Verdict) -> Pairs:
    # The pair of an accepted token has the feature of the token before it, that of the next token the last accepted one's.
    block, features = commits.committed_block(draft, verdict), commits.features_of(verdict)
    slots, number, gain = state.tokens.shape[1], features.shape[1], commits.num_committed(draft, verdict)[:, None]
    offset = jnp.arange(number)[None]
    stays = (offset < gain) & (offset >= gain - slots) & cursor.live[:, None]  # each slot at most once
    slot = jnp.where(stays, (cursor.length[:, None] + offset) % slots, slots)
    row = jnp.arange(slot.shape[0])[:, None]
    put = lambda leaf, values: leaf.at[row, slot].set(values, mode="drop")
    return Pairs(put(state.tokens, block[:, :number]), put(state.features, features))
