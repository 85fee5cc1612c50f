"""Row-parallel decoding of images (`jaxspec.sampling.row_schedule`) as one compiled program.

1. The prefill draws token 0.
2. Until all images are whole: one pass of the target over the groups of their unfinished rows. Each group has the token
   before the next one of its row, or a stand-in, and ``K`` drafts (`jaxspec.drafters.row_windows`; none for ZipAR's form).
   The drafts of a row are tested in order, min(1, p / q), and a token is drawn after the last accepted one.
3. The cache keeps the committed tokens that were read, in the order in which they were committed, with raster positions.

An input sees the tokens that were kept and come before it in raster order, the first inputs of earlier groups, and its own
group up to itself. Drafts and stand-ins are therefore hidden from the rows below.

**Distribution.** Let H_i be all tokens at positions before i of all passes, drafts included. The row q_i that token i is
drawn from, or tested against, is a function of H_i, and the token follows it (`jaxspec.drafters.row_windows`). The images
have a distribution Q with

  KL(Q || P) <= E sum_i KL(q_i(. | H_i) || p_i(. | x_<i)),

because Q(x_i | x_<i) is the mean of q_i over H_i and the divergence is convex. The difference of the two sides is what H_i
says about x_i beyond x_<i. Without drafts, q_i is a function of x_<i and the two sides are equal. One teacher-forced pass of
the target over a drawn image gives every p_i: the sum over its tokens is an unbiased estimate of the right side.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import commits, rng
from jaxspec.core.state import Counters, DecodeResult, Origin, SpecParams
from jaxspec.core.trees import ended_by_rejection
from jaxspec.core.types import Array, Cache, Draft, Key, ModelFns, PyTree, Verdict
from jaxspec.drafters.row_windows import RowWindows, RowWindowState
from jaxspec.rules.audited import TokenAudit, audited
from jaxspec.rules.exact_distribution import kl_divergence, total_variation
from jaxspec.rules.lossless import lossless
from jaxspec.sampling import logit_processing, row_schedule
from jaxspec.sampling.logit_processing import ModelParams, Warp
from jaxspec.sampling.row_schedule import RowPass, RowProgress


class RowState(NamedTuple):
  """State between passes. ``L`` as in `RowProgress`."""

  progress: RowProgress
  number: Array  # [] int32, the passes after the prefill
  tokens: Array  # [B, N] int32
  origin: Array  # [B, N] int8
  commit_round: Array  # [B, N] int32
  counters: Counters
  cache: Cache
  num_kept: Array  # [L] int32, tokens in the cache
  kept: Array  # [L, N] int32, their raster indices
  windows: RowWindowState | None  # None: one token of a row per pass
  drawn_from: Array  # [B, N, V] processed logits that each token follows, or [B, 0, V] without an audit
  metrics: PyTree  # `TokenAudit` of the tests, leaves [B, N]; () without an audit


@dataclasses.dataclass(frozen=True)
class RowDecode:
  """A `jaxspec.methods.method.DecodeFn` of whole images.

  Attributes:
    model: the target.
    warp: static part of the logit processing.
    grid: rows and columns of the tokens.
    width: tokens by which a row stays behind the row above.
    windows: drafts of the rows; None: one token of a row per pass.
    known: the only legal id of the last token of each row; -1 if several are legal.
    audit: report a `TokenAudit` of every token.
  """

  model: ModelFns
  warp: Warp
  grid: tuple[int, int]
  width: int
  windows: RowWindows | None
  known: tuple[int, ...]
  audit: bool = False

  @property
  def drafts(self) -> int:
    """K."""
    return 0 if self.windows is None else self.windows.window

  @property
  def moves_entries(self) -> bool:
    """Whether the cache is compacted after a pass; without drafts, or with one group, kept inputs come first."""
    return self.drafts > 0 and row_schedule.num_groups(self.grid, self.width) > 1

  @property
  def window(self) -> int:
    """Inputs of a pass besides one token."""
    return row_schedule.num_groups(self.grid, self.width) * (1 + self.drafts) - 1

  def __call__(
    self, params: SpecParams, keys: Key, condition: PyTree, max_len: int, end_token: int | tuple[int, ...] | None
  ) -> DecodeResult:
    """Draws whole images.

    Raises:
      ValueError: for a part of an image, or an end token.
    """
    if max_len != (size := self.grid[0] * self.grid[1]):
      raise ValueError(f"Must have max_len {size}, whole images, for method rows, we instead got {max_len}")
    if end_token not in (None, ()):
      raise ValueError(f"Must have no end_token for images, we instead got {end_token}")
    prefix = self.model.prefix_len(condition)
    state = jax.lax.while_loop(
      lambda state: jnp.any(row_schedule.is_live(state.progress, self.grid)),
      lambda state: self._one_pass(params.target, keys, prefix, state),
      self._start(params.target, keys, condition),
    )
    metrics = self._audit(params.target, condition, state) if self.audit else ()
    lengths = jnp.full((keys.shape[0],), size, jnp.int32)
    is_draft = state.origin == Origin.DRAFT
    return DecodeResult(state.tokens, lengths, state.counters, is_draft, state.origin, state.commit_round, metrics)

  def _start(self, params: ModelParams, keys: Key, condition: PyTree) -> RowState:
    """The state after the prefill."""
    images, size = keys.shape[0], self.grid[0] * self.grid[1]
    logits, cache = self._prefill(params, condition, images)
    uniform = rng.final_uniform(rng.stream_keys(keys, rng.Stream.FIRST, jnp.int32(0)))
    lanes = 1 if self.windows is None else images
    none, blank = jnp.zeros((images,), jnp.int32), jnp.zeros((images, size))
    tokens = jnp.zeros((images, size), jnp.int32).at[:, 0].set(logit_processing.sample(logits[:, 0], uniform))
    return RowState(
      progress=row_schedule.start(self.grid, lanes),
      number=jnp.int32(0),
      tokens=tokens,
      origin=jnp.zeros((images, size), jnp.int8).at[:, 0].set(int(Origin.FIRST)),
      commit_round=jnp.zeros((images, size), jnp.int32),
      counters=Counters(none, none, none, none, none + 1, none),
      cache=cache,
      num_kept=jnp.zeros((lanes,), jnp.int32),
      kept=jnp.zeros((lanes, size), jnp.int32),
      windows=None if self.windows is None else self.windows.start(logits[:, 0]),
      drawn_from=jnp.pad(logits, ((0, 0), (0, size - 1), (0, 0))) if self.audit else logits[:, :0],
      metrics=TokenAudit.undrafted(blank, blank) if self.audit else (),
    )

  def _one_pass(self, params: ModelParams, keys: Key, prefix: int, state: RowState) -> RowState:
    """A pass of the target, and what it commits."""
    images, size = state.tokens.shape
    read = row_schedule.next_pass(state.progress, self.grid, self.width)  # [L, G]
    before = read.row * self.grid[1] + read.committed - 1
    index = before[..., None] + jnp.arange(1 + self.drafts)[None, None]  # [L, G, K + 1] of the inputs; of padding any
    position, drawn = (jnp.clip(at, 0, size - 1).reshape(before.shape[0], -1) for at in (index, index + 1))

    head = self._first_inputs(state.tokens, read)
    draft = self._draft(keys, state, read, head)
    output, cache = self.model.apply(
      params.model,
      jnp.concatenate([head.reshape(-1, 1), draft.tokens], axis=1).reshape(images, -1),
      state.cache,
      positions=prefix + position,
      mask=self._visible(state, read, position),
      slot=prefix + state.num_kept,
    )
    logits = self.warp(output.need_logits(), params.sampling, drawn)
    logits = logits.reshape(-1, 1 + self.drafts, logits.shape[-1])
    verdict = self._judge(keys, draft, logits, jnp.broadcast_to(before, head.shape), read)
    return self._commit(prefix, state._replace(cache=cache), read, index, draft, verdict)

  def _first_inputs(self, tokens: Array, read: RowPass) -> Array:
    """Ids ``[B, G]`` of the first input of each group: the token before the next one of the row, or its stand-in."""
    columns, above = self.grid[1], jnp.maximum(read.row - 1, 0)
    newest = above * columns + read.above - 1
    source = jnp.where(read.is_known, read.row * columns + read.committed - 1, newest)
    ids = jnp.take_along_axis(tokens, jnp.clip(source, 0, tokens.shape[1] - 1), axis=1)
    known = jnp.asarray(self.known)[jnp.minimum(above, self.grid[0] - 1)]
    return jnp.where(~read.is_known & (known >= 0), known, ids)

  def _draft(self, keys: Key, state: RowState, read: RowPass, head: Array) -> Draft:
    """Chains of all groups, ``[B G, K]``."""
    if self.windows is None or state.windows is None:
      return Draft.empty(head.reshape(-1))
    return self.windows.draft(rng.stream_keys(keys, rng.Stream.DRAFT, state.number), state.windows, state.progress, read)

  def _judge(self, keys: Key, draft: Draft, logits: Array, before: Array, read: RowPass) -> Verdict:
    """The verdicts about all groups, ``[B G]``; a row commits at most the tokens that it has room for."""
    # Token i has the random numbers of plain decoding, which draws it in round i - 1.
    of_round = lambda index: rng.stream_keys(keys, rng.Stream.VERIFY, index)
    verify_keys = jax.vmap(of_round, in_axes=1, out_axes=1)(before).reshape(-1)
    rule = audited(lossless) if self.audit else lossless
    verdict = rule((), verify_keys, draft, logits)
    room = jnp.broadcast_to(read.room, before.shape).reshape(-1)
    num_next = jnp.minimum(1, room - verdict.num_accepted)
    return verdict._replace(num_next=num_next, feedback=logits)

  def _commit(self, prefix: int, state: RowState, read: RowPass, index: Array, draft: Draft, verdict: Verdict) -> RowState:
    """The state with the tokens of a pass."""
    (images, size), lanes = state.tokens.shape, read.row.shape[0]
    gain = commits.num_committed(draft, verdict).reshape(images, -1)  # [B, G]
    offset = jnp.arange(1 + self.drafts)[None, None]
    is_new = (offset < gain[..., None]).reshape(images, -1)
    place = jnp.where(is_new, (index + 1).reshape(lanes, -1), size)
    image = jnp.arange(images)[:, None]
    put = lambda buffer, values: buffer.at[image, place].set(
      values.reshape(*place.shape, *values.shape[2:]).astype(buffer.dtype), mode="drop"
    )
    own = jnp.where(ended_by_rejection(draft, verdict), int(Origin.REPLACED), int(Origin.BONUS))
    origin = jnp.where(offset[0] < verdict.num_accepted[:, None], int(Origin.DRAFT), own[:, None])

    progress = row_schedule.advance(state.progress, read, gain[:lanes], self.grid)
    state = self._keep(prefix, state, read, index, gain[:lanes])
    windows = state.windows
    if self.windows is not None and windows is not None:
      columns = jnp.where(is_new, place % self.grid[1], self.grid[1])
      windows = self.windows.commit(windows, draft, verdict, read, columns, progress)
    live = row_schedule.is_live(state.progress, self.grid).astype(jnp.int32)
    total = lambda values: jnp.sum(values.reshape(images, -1), axis=1)
    counters = state.counters
    return state._replace(
      progress=progress,
      number=state.number + 1,
      tokens=put(state.tokens, commits.committed_block(draft, verdict)),
      origin=put(state.origin, origin),
      commit_round=put(state.commit_round, jnp.broadcast_to(state.number + 1, origin.shape)),
      counters=dataclasses.replace(
        counters,
        rounds=counters.rounds + live,
        drafted=counters.drafted + total(draft.num_drafted),
        accepted=counters.accepted + total(verdict.num_accepted),
        target_calls=counters.target_calls + live,
      ),
      windows=windows,
      drawn_from=put(state.drawn_from, verdict.feedback) if self.audit else state.drawn_from,
      metrics=jax.tree.map(put, state.metrics, verdict.metrics) if self.audit else (),
    )

  def _keep(self, prefix: int, state: RowState, read: RowPass, index: Array, gain: Array) -> RowState:
    """The state whose cache keeps the inputs of a pass that are committed now, all but the newest of each row."""
    lanes, size = state.kept.shape
    is_end = read.is_active & (read.committed == self.grid[1])  # the last token of a row was read
    offset = jnp.arange(1 + self.drafts)[None, None]
    keeps = (offset < (gain + is_end)[..., None]) & (read.is_known[..., None] | (offset > 0))
    keeps = keeps.reshape(lanes, -1)
    slot = jnp.where(keeps, state.num_kept[:, None] + jnp.cumsum(keeps, axis=1) - 1, size)
    cache = state.cache
    if self.moves_entries:
      assert self.model.compact is not None
      order = jnp.argsort(~keeps, axis=1, stable=True)
      cache = self.model.compact(cache, prefix + state.num_kept, order)
    return state._replace(
      cache=cache,
      kept=state.kept.at[jnp.arange(lanes)[:, None], slot].set(index.reshape(lanes, -1), mode="drop"),
      num_kept=state.num_kept + jnp.sum(keeps, axis=1),
    )

  def _visible(self, state: RowState, read: RowPass, position: Array) -> Array:
    """Mask ``[L, T, N + T]`` of a pass over the newest slots, see `jaxspec.core.types.ApplyFn`."""
    size, inputs = state.kept.shape[1], position.shape[1]
    # Raster index of the token in each of the newest slots; the condition comes before all tokens.
    held = jnp.pad(state.kept, ((0, 0), (size, 0)), constant_values=-1)
    held = jnp.take_along_axis(held, state.num_kept[:, None] + jnp.arange(size)[None], axis=1)
    kept = held[:, None] <= position[..., None]
    group, offset = jnp.divmod(jnp.arange(inputs), 1 + self.drafts)
    own = (group[:, None] == group[None]) & (offset[None] <= offset[:, None])
    above = (group[None] < group[:, None]) & (offset[None] == 0)
    return jnp.concatenate([kept, own[None] | (above[None] & read.is_known[:, None, group])], axis=2)

  def _prefill(self, params: ModelParams, condition: PyTree, rows: int) -> tuple[Array, Cache]:
    """Processed logits ``[B, 1, V]`` of token 0, and the cache of the condition."""
    prefix, size = self.model.prefix_len(condition), self.grid[0] * self.grid[1]
    output, cache = self.model.apply(
      params.model,
      condition,
      self.model.init_cache(rows, prefix + size + self.window),
      positions=jnp.arange(prefix)[None],
      logits_at=jnp.full((1,), prefix - 1),
    )
    return self.warp(output.need_logits(), params.sampling, jnp.zeros((1, 1), jnp.int32)), cache

  def _audit(self, params: ModelParams, condition: PyTree, state: RowState) -> TokenAudit:
    """Distances of the distributions that tokens follow to the target's: one teacher-forced pass, row by row."""
    rows, columns = self.grid
    prefix, last = self.model.prefix_len(condition), rows * columns - 1
    first, cache = self._prefill(params, condition, state.tokens.shape[0])

    def one_row(carry: tuple[Array, Cache], row: Array) -> tuple[tuple[Array, Cache], tuple[Array, Array]]:
      before, cache = carry  # logits [B, 1, V] of the row's first token
      index = row * columns + jnp.arange(columns)
      output, cache = self.model.apply(params.model, state.tokens[:, index], cache, positions=prefix + index[None])
      logits = self.warp(output.need_logits(), params.sampling, jnp.minimum(index + 1, last)[None])
      target = jnp.concatenate([before, logits[:, :-1]], axis=1)
      q, p = (logit_processing.probabilities(values) for values in (state.drawn_from[:, index], target))
      # Rounding may leave a negative divergence of equal distributions.
      return (logits[:, -1:], cache), (total_variation(q, p), jnp.maximum(kl_divergence(q, p), 0.0))

    _, distances = jax.lax.scan(one_row, (first, cache), jnp.arange(rows))
    tv, kl = (jnp.moveaxis(values, 0, 1).reshape(state.tokens.shape) for values in distances)
    return state.metrics._replace(tv=tv, kl=kl)
