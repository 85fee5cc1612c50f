"""Masked autoregressive generation of continuous tokens (MAR, arXiv 2406.11838) as one compiled program.

1. Every row draws or receives its generation order. No token is known yet.
2. In each iteration the network describes the next positions of the order from the known tokens (`MARFns.condition`). The
   diffusion head samples all of them at once (`jaxspec.diffusion.ddpm.sample`). They become known.
3. The tokens are returned in generation order, with the order, as a `DecodeResult`.

The number of tokens that are known before an iteration is static. Runs of iterations are therefore `jax.lax.scan` loops
over bodies of fitting size (`jaxspec.sampling.unmasking`). Rows of a batch advance together; each has its own order.

**Noise.** A token's chain consumes the normals of its own row and raster position, independent of the iteration and of the
batch. `token_noise` draws them from the row's key; `TokenNoise` arrays ``[B, L, ...]`` replace them. Two models with the
same key therefore share their noise (trajectory alignment, arXiv 2411.11925).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import orders, rng
from jaxspec.core.state import DecodeResult, scheduled_result
from jaxspec.core.types import Array, Key, Params, PyTree
from jaxspec.diffusion import ddpm
from jaxspec.diffusion.chain import Chain, TokenNoise, token_noise
from jaxspec.diffusion.ddpm import PredictFn
from jaxspec.diffusion.schedule import DiffusionTables, diffusion_tables
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.mar.mar import MARFns
from jaxspec.models.nn.vit import take_rows
from jaxspec.sampling import unmasking
from jaxspec.sampling.unmasking import Bucket, GuidanceFn, linear_guidance

NUM_BUCKETS = 4


class MaskedReport(NamedTuple):
  """`DecodeResult.report` of this decoder."""

  order: Array  # [B, L] int32, the raster position of the j-th generated token (`jaxspec.core.orders.to_raster`)


def noise_at(source: Key | TokenNoise, positions: Array, num_steps: int, token_dim: int) -> TokenNoise:
  """Noise of the tokens at ``positions [B, n]``: drawn from row keys, or read from arrays over all raster positions."""
  if isinstance(source, TokenNoise):
    return TokenNoise(*(orders.to_generation_order(values, positions) for values in source))
  return token_noise(source, positions, num_steps, token_dim)


def bind_head(
  model: MARFns,
  params: Params,
  tables: DiffusionTables,
  tokens: Array,
  order: Array,
  known: Array,
  condition: ClassLabels,
  *,
  start: Array,
  size: int,
  scale: Array | None,
) -> PredictFn:
  """The output distribution of ``size`` positions from slot ``start`` on, as a denoiser of states ``[B, size, C]``.

  This takes one pass of the transformer. Every use of the result (sampling, scoring another model's states) costs only the
  head.

  Args:
    tokens: ``[B, S, C]`` in generation order, ``S >= known``.
    order: ``[B, L]``.
    known: ``[B or 1]`` int32.
    start: ``[B or 1]`` int32, ``start + size <= L``.
    scale: ``[]`` guidance scale; None runs the conditional model alone, at half the cost.
  """
  if scale is None:
    z = model.condition(params, tokens, order, known, condition, start, size)
    return model.predictor(params, z, tables.timesteps)
  null = model.null_condition(params, condition)
  both = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), condition, null)
  twice = lambda x: x if x.shape[0] == 1 and x.ndim == 1 else jnp.concatenate([x, x])
  z = model.condition(params, twice(tokens), twice(order), twice(known), both, twice(start), size)
  return ddpm.guided(model.predictor(params, z, tables.timesteps), scale)


def generation_step(
  model: MARFns,
  params: Params,
  tables: DiffusionTables,
  tokens: Array,
  order: Array,
  known: Array,
  count: Array,
  condition: ClassLabels,
  noise: Key | TokenNoise,
  *,
  slots: int,
  width: int,
  scale: Array | None = None,
  temperature: Array | float = 1.0,
  record: bool = False,
  stop: int | None = None,
) -> tuple[Array, Chain]:
  """One iteration: samples the slots ``known .. known + count - 1`` of every row.

  Args:
    tokens: ``[B, L, C]`` float32 in generation order; entries from ``known`` on are not read.
    known: ``[B or 1]`` int32, at most ``slots``.
    count: ``[B or 1]`` int32, at most ``width``.
    noise: row keys ``[B]`` or arrays over all raster positions; see `noise_at`.
    slots: static number of encoder slots; the known tokens must fit into them.
    width: static number of sampled positions; those outside ``known .. known + count - 1`` are discarded.
    scale: guidance scale of this iteration ``[]``; None leaves guidance out.
    record: also return states and distributions of the chains.
    stop: static; where the chains end, see `jaxspec.diffusion.ddpm.distribution_fn`.
  Returns:
    The tokens, and the chains of the ``width`` positions from slot ``min(known, L - width)`` on.
  """
  # A window that would overrun the last slot is moved back; known tokens in it stay unchanged.
  start = jnp.minimum(known, model.num_tokens - width)
  positions = take_rows(order, start, width)  # [B, width]
  predict_fn = bind_head(
    model, params, tables, tokens[:, :slots], order, known, condition, start=start, size=width, scale=scale
  )
  drawn = noise_at(noise, positions, tables.num_steps - (stop or 0), model.token_dim)
  chain = ddpm.sample(predict_fn, tables, drawn, jnp.asarray(temperature, jnp.float32), record=record, stop=stop)
  slot = start[:, None] + jnp.arange(width)[None]  # [B or 1, width]
  fresh = (slot >= known[:, None]) & (slot < (known + count)[:, None])
  window = jnp.where(fresh[..., None], chain.token, take_rows(tokens, start, width))
  if start.shape[0] == 1:
    return jax.lax.dynamic_update_slice_in_dim(tokens, window, start[0], axis=1), chain
  put = lambda row, new, at: jax.lax.dynamic_update_slice_in_dim(row, new, at, axis=0)
  return jax.vmap(put)(tokens, window, start), chain


_Iterations = tuple[Array, Array, Array]  # int32 known tokens, int32 drawn tokens, float32 masked tokens; scanned


@functools.partial(jax.jit, static_argnames=("model", "schedule", "respacing", "guidance_fn", "stop"))
def _generate(
  params: Params, keys: Key, condition: PyTree, order: Array | None, noise: TokenNoise | None, temperature: Array,
  scale: Array | None, *, model: MARFns, schedule: tuple[Bucket, ...], respacing: str, guidance_fn: GuidanceFn,
  stop: int | None,
) -> DecodeResult:  # fmt: skip
  tables = diffusion_tables(respacing)
  if order is None:
    order = orders.random_order(keys, model.num_tokens)
  tokens = jnp.zeros((order.shape[0], model.num_tokens, model.token_dim))

  for bucket in schedule:

    def iteration(tokens: Array, inputs: _Iterations, bucket: Bucket = bucket) -> tuple[Array, None]:
      known, count, masked = inputs
      step_scale = None if scale is None else guidance_fn(masked, model.num_tokens, scale)
      tokens, _ = generation_step(
        model, params, tables, tokens, order, known[None], count[None], condition, keys if noise is None else noise,
        slots=bucket.slots, width=bucket.width, scale=step_scale, temperature=temperature,
        stop=stop,
      )  # fmt: skip
      return tokens, None

    column = lambda name, dtype, bucket=bucket: jnp.asarray([getattr(i, name) for i in bucket.iterations], dtype)
    inputs = (column("known", jnp.int32), column("count", jnp.int32), column("masked", jnp.float32))
    tokens, _ = jax.lax.scan(iteration, tokens, inputs)
  return _result(tokens, order, schedule)


def _result(tokens: Array, order: Array, schedule: tuple[Bucket, ...]) -> DecodeResult:
  """The result of a decode whose i-th iteration committed its ``count`` tokens in every row; iteration 0 is the prefill."""
  counts = [iteration.count for bucket in schedule for iteration in bucket.iterations]
  drawn_in = jnp.repeat(jnp.arange(len(counts)), jnp.asarray(counts), total_repeat_length=order.shape[1])
  return scheduled_result(tokens, drawn_in, len(counts), report=MaskedReport(order))


def generate_masked(
  model: MARFns,
  params: Params,
  key: Key,
  condition: ClassLabels,
  *,
  num_iter: int = 64,
  num_steps: int | str = 100,
  temperature: Array | float = 1.0,
  scale: Array | float | None = None,
  guidance_fn: GuidanceFn = linear_guidance,
  order: Array | None = None,
  noise: TokenNoise | None = None,
  num_buckets: int = NUM_BUCKETS,
  stop: int | None = None,
) -> DecodeResult:
  """Generates all tokens of every row in one compiled program, a block of them in each iteration.

  Args:
    model: the network's functions, static.
    key: one typed key (row r uses ``fold_in(key, r)``) or ``[B]`` row keys; consumed. A row depends on its own key and
      condition only.
    condition: `ClassLabels` of ``B`` rows.
    num_iter: iterations ``K``, static: 64 is MAR's usual parallel decoding, ``L`` generates token by token.
    num_steps: diffusion steps ``T``, static; a string as in `jaxspec.diffusion.schedule.kept_steps`.
    temperature: factor of the noise of every step; the noise of the first state is not scaled.
    scale: guidance scale; None runs the conditional model alone. A scale of 1 gives the same tokens at twice the cost.
    guidance_fn: schedule of the scale, static.
    order: optional ``[B, L]`` int32 generation orders; random ones by default.
    noise: optional normals over all raster positions, ``initial [B, L, C]`` and ``steps [B, L, T, C]``.
    num_buckets: largest number of compiled bodies, static; 1 compiles fastest.
    stop: the diffusion step, noise included, after which a token is done, static (`jaxspec.diffusion.ddpm.distribution_fn`);
      the noise then has ``T - stop`` steps. None is MAR's chain, whose last step adds no noise.
  Returns:
    `DecodeResult` with tokens ``[B, L, C]`` float32 in generation order, a round for each iteration, and a `MaskedReport`.
  Raises:
    ValueError: if a shape does not fit, or the schedule is impossible.

  Example:
    >>> import jax, jax.numpy as jnp
    >>> from jaxspec.models.mar.mar import MARConfig, mar_fns
    >>> fns = mar_fns(MARConfig(num_tokens=4, latent_channels=2, num_classes=3, buffer_size=2, encoder_dim=8,
    ...   encoder_depth=1, encoder_heads=2, decoder_dim=8, decoder_depth=1, decoder_heads=2, diffloss_width=8,
    ...   diffloss_depth=1))
    >>> out = generate_masked(fns, fns.init(jax.random.key(0)), jax.random.key(1), ClassLabels(jnp.array([0, 2])),
    ...   num_iter=2, num_steps=5, num_buckets=1)
    >>> out.tokens.shape, out.report.order.shape
    ((2, 4, 2), (2, 4))
  """
  rows, length = condition.batch_size, model.num_tokens
  respacing = str(num_steps)
  tables = diffusion_tables(respacing)
  keys = rng.row_keys(key, rows)
  if order is not None and order.shape != (rows, length):
    raise ValueError(f"Must have an order of shape {[rows, length]}, we instead got {list(order.shape)}")
  if noise is not None:
    num_noises = tables.num_steps - (stop or 0)
    shapes = (rows, length, model.token_dim), (rows, length, num_noises, model.token_dim)
    if (noise.initial.shape, noise.steps.shape) != shapes:
      raise ValueError(f"Must have noise of shapes {shapes}, we instead got {noise.initial.shape, noise.steps.shape}")
  # Guidance doubles the cost of every iteration, so the buckets do not depend on it.
  cost_fn = _cost_fn(model, tables.num_steps)
  schedule = unmasking.buckets(unmasking.iterations(length, num_iter), num_buckets, cost_fn)
  number = lambda x: None if x is None else jnp.asarray(x, jnp.float32)
  return _generate(
    params, keys, condition, order, noise, number(temperature), number(scale),
    model=model, schedule=schedule, respacing=respacing, guidance_fn=guidance_fn, stop=stop,
  )  # fmt: skip


@functools.cache
def _cost_fn(model: MARFns, num_steps: int) -> unmasking.CostFn:
  return lambda slots, predicted: model.cost(slots, predicted, num_steps)
