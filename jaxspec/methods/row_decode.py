"""Row-parallel decoding of images by a fixed schedule (`jaxspec.sampling.row_schedule`) as one compiled program.

The cache holds the tokens in the order in which they are fed, with their raster positions. An input sees the tokens that
are fed and come before it in raster order. The entry of a stand-in is seen by itself alone; the next pass overwrites it.

**Distribution.** The output that token i is drawn from, q_i, depends on tokens before i in raster order only. The images
therefore have the distribution ``Q(x) = prod_i q_i(x_i | x_<i)``, and their divergence from the target P is

  KL(Q || P) = E_{x ~ Q} sum_i KL(q_i(. | x_<i) || p_i(. | x_<i)).

One teacher-forced pass of the target over a drawn image gives every p_i. The sum over its tokens is an unbiased estimate of
KL(Q || P), and each term one of its token.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core import rng
from jaxspec.core.state import DecodeResult, SpecParams, scheduled_result
from jaxspec.core.types import Array, Cache, Key, ModelFns, PyTree
from jaxspec.rules.audited import TokenAudit
from jaxspec.rules.exact_distribution import kl_divergence, total_variation
from jaxspec.sampling import logit_processing
from jaxspec.sampling.logit_processing import ModelParams, Warp
from jaxspec.sampling.row_schedule import RowSchedule, row_schedule


@dataclasses.dataclass(frozen=True)
class RowDecode:
  """A `jaxspec.methods.method.DecodeFn` of whole images.

  Attributes:
    model: the target.
    warp: static part of the logit processing.
    grid: rows and columns of the tokens.
    width: tokens of a row before the next row starts.
    known: the only legal id of the last token of each row; -1 if several are legal.
    audit: report a `TokenAudit` of every token.
  """

  model: ModelFns
  warp: Warp
  grid: tuple[int, int]
  width: int
  known: tuple[int, ...]
  audit: bool = False

  @property
  def schedule(self) -> RowSchedule:
    """The passes."""
    return row_schedule(self.grid, self.width)

  @property
  def window(self) -> int:
    """Inputs of a pass besides one token."""
    return self.schedule.num_inputs - 1

  def __call__(
    self, params: SpecParams, keys: Key, condition: PyTree, max_len: int, end_token: int | tuple[int, ...] | None
  ) -> DecodeResult:
    """Draws whole images in raster order.

    Raises:
      ValueError: for a part of an image, or an end token.
    """
    if max_len != (size := self.grid[0] * self.grid[1]):
      raise ValueError(f"Must have max_len {size}, whole images, for method rows, we instead got {max_len}")
    if end_token not in (None, ()):
      raise ValueError(f"Must have no end_token for images, we instead got {end_token}")
    tokens, drawn_from = self._draw(params.target, keys, condition)
    metrics = self._audit(params.target, condition, tokens, drawn_from) if self.audit else ()
    passes = self.schedule.num_passes
    drawn_in = jnp.asarray(self.schedule.drawn_in)
    return scheduled_result(tokens, drawn_in, passes, num_rounds=passes - 1, metrics=metrics)

  def _draw(self, params: ModelParams, keys: Key, condition: PyTree) -> tuple[Array, Array]:
    """Tokens ``[B, N]``, and in an audit the processed logits ``[B, N, V]`` that they are drawn from, else ``[B, 0, V]``."""
    plan, size = self.schedule, len(self.schedule.fed)
    known = np.where(plan.source != plan.position, np.asarray(self.known)[plan.position // self.grid[1]], -1)
    tables: RowSchedule = jax.tree.map(jnp.asarray, plan)
    known, prefix = jnp.asarray(known), self.model.prefix_len(condition)

    logits, cache = self._prefill(params, condition, keys.shape[0])
    uniform = rng.final_uniform(rng.stream_keys(keys, rng.Stream.FIRST, jnp.int32(0)))
    tokens = jnp.zeros((keys.shape[0], size), jnp.int32).at[:, 0].set(logit_processing.sample(logits[:, 0], uniform))
    drawn_from = jnp.pad(logits, ((0, 0), (0, size - 1), (0, 0))) if self.audit else logits[:, :0]

    def one_pass(number: Array, carry: tuple[Array, Array, Cache]) -> tuple[Array, Array, Cache]:
      tokens, drawn_from, cache = carry
      position, draw = tables.position[number], tables.draw[number]
      inputs = jnp.where(known[number] >= 0, known[number], tokens[:, tables.source[number]])  # [B, T]
      output, cache = self.model.apply(
        params.model,
        inputs,
        cache,
        positions=prefix + position[None],
        mask=_visible(tables, number),
        slot=prefix + tables.start[number][None],
      )
      logits = self.warp(output.need_logits(), params.sampling, jnp.minimum(draw, size - 1)[None])
      # Token i has the random numbers of plain decoding, which draws it in round i - 1.
      of_round = lambda index: rng.final_uniform(rng.stream_keys(keys, rng.Stream.VERIFY, index - 1))
      found = logit_processing.sample(logits, jax.vmap(of_round, out_axes=1)(draw))
      if self.audit:
        drawn_from = drawn_from.at[:, draw].set(logits, mode="drop")
      return tokens.at[:, draw].set(found, mode="drop"), drawn_from, cache

    tokens, drawn_from, _ = jax.lax.fori_loop(0, len(plan.start), one_pass, (tokens, drawn_from, cache))
    return tokens, drawn_from

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

  def _audit(self, params: ModelParams, condition: PyTree, tokens: Array, drawn_from: Array) -> TokenAudit:
    """Distances of the distributions that tokens were drawn from to the target's: one teacher-forced pass, row by row."""
    rows, columns = self.grid
    prefix, last = self.model.prefix_len(condition), rows * columns - 1
    first, cache = self._prefill(params, condition, tokens.shape[0])

    def one_row(carry: tuple[Array, Cache], row: Array) -> tuple[tuple[Array, Cache], tuple[Array, Array]]:
      before, cache = carry  # logits [B, 1, V] of the row's first token
      index = row * columns + jnp.arange(columns)
      output, cache = self.model.apply(params.model, tokens[:, index], cache, positions=prefix + index[None])
      logits = self.warp(output.need_logits(), params.sampling, jnp.minimum(index + 1, last)[None])
      target = jnp.concatenate([before, logits[:, :-1]], axis=1)
      q, p = (logit_processing.probabilities(values) for values in (drawn_from[:, index], target))
      # Rounding may leave a negative divergence of equal distributions.
      return (logits[:, -1:], cache), (total_variation(q, p), jnp.maximum(kl_divergence(q, p), 0.0))

    _, distances = jax.lax.scan(one_row, (first, cache), jnp.arange(rows))
    tv, kl = (jnp.moveaxis(values, 0, 1).reshape(tokens.shape) for values in distances)
    return TokenAudit.undrafted(tv, kl)


def _visible(tables: RowSchedule, number: Array) -> Array:
  """Mask ``[1, T, N + T]`` of a pass over the newest slots, see `jaxspec.core.types.ApplyFn`."""
  size, width = tables.fed.shape[0], tables.position.shape[1]
  newest = size + width
  start = tables.start[number]
  slot = start - size + jnp.arange(newest)  # negative before the image
  # Raster index of the token in each slot; the condition comes before all tokens.
  held = jnp.concatenate([jnp.full((newest,), -1), tables.fed, jnp.full((width,), size)])
  held = jax.lax.dynamic_slice_in_dim(held, start + width, newest)
  fed = slot < start + tables.count[number]
  return ((held[None] <= tables.position[number][:, None]) & fed[None])[None]
