"""A network of scales with its tokenizer, as drafters and verifiers of scales read it (VAR, arXiv 2404.02905).

One step decodes a scale: a map of tokens, ``int32 [B, side^2]``. The input at a scale is the sum of all earlier maps, at the
resolution of the scale. One pass over m + 1 scales therefore gives the distributions of m drafted maps and of one more.
Given the earlier maps, the tokens of a map are independent: its distribution is a product.

Shapes depend on the scale. It is static everywhere here, so all rows of a batch are at the same scale.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import footprint
from jaxspec.core.types import Array, Intervals, Params
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.nn.kv_cache import KVCache
from jaxspec.models.tokenizers.scale_quantizer import scale_inputs
from jaxspec.models.tokenizers.var_vae import ScaleTokenizerFns
from jaxspec.models.var.var import Conditioned, VARFns, scales
from jaxspec.sampling.logit_processing import Sampling, Warp


class ScaleSampling(NamedTuple):
  """Traced sampling parameters, a number for each of the K scales."""

  # [K] float32, weights t of logits (1 + t) c - t u; None: the conditional half alone, at half the cost
  guidance: Array | None
  top_p: Array | None  # [K] float32; None: no such truncation
  temperature: Array  # [K] float32, divides what the truncation left; clamped at 1e-5 (so 0 is greedy)


def scale_sampling(
  num_scales: int, *, cfg: float | None = None, top_p: float | None = None, temperature: float = 1.0
) -> ScaleSampling:
  """The official setting: guidance grows linearly from 0 at the first scale to ``cfg`` at the last. There the conditional
  logits have weight ``1 + cfg``, which other networks here call a scale of ``1 + cfg``.
  """
  everywhere = lambda value: jnp.full((num_scales,), value, jnp.float32)
  guidance = None if cfg is None else jnp.linspace(0.0, cfg, num_scales, dtype=jnp.float32)
  return ScaleSampling(guidance, None if top_p is None else everywhere(top_p), everywhere(temperature))


class ReaderState(NamedTuple):
  """State of one network during generation; with guidance it has the rows ``[conditional; unconditional]``."""

  conditioned: Conditioned
  cache: KVCache


def start_reader(model: VARFns, params: Params, classes: ClassLabels, *, guided: bool) -> ReaderState:
  """The initial state of a network."""
  if guided:
    null = model.null_condition(params, classes)
    classes = ClassLabels(jnp.concatenate([classes.labels, null.labels]))
  return ReaderState(model.condition(params, classes), model.init_cache(classes.batch_size))


def read_scales(
  model: VARFns,
  params: Params,
  state: ReaderState,
  inputs: Array,
  guidance: Array | None,
  *,
  first: int,
  end: int,
  logits_from: int | None = None,
) -> tuple[Array, Array | None, ReaderState]:
  """One pass over the scales ``first .. end - 1``.

  Args:
    inputs: as `VARFns` takes them, for the ``B`` rows of the result.
    guidance: ``[K]`` as in `ScaleSampling`.
    logits_from: static, the first scale whose logits are returned; ``first`` by default.
  Returns:
    Guided logits ``[B, T, V]`` float32; the radii of the conditional half ``[B, T, H, V]``, None without an Inter-Head; and
    the state.
  """
  inputs = inputs if guidance is None else jnp.concatenate([inputs, inputs])
  output, cache = model.apply(params, state.conditioned, inputs, state.cache, first=first, end=end, logits_from=logits_from)
  logits = output.need_logits()
  radius = None if output.intervals is None else output.intervals.radius[: inputs.shape[0] // (1 + (guidance is not None))]
  if guidance is not None:
    starts = scales.starts(model.sides)
    position = slice(starts[first if logits_from is None else logits_from], starts[end])
    weight = guidance[scales.scale_of_position(model.sides)[position]][None, :, None]  # [1, T, 1]
    conditional, unconditional = jnp.split(logits, 2)
    logits = (1 + weight) * conditional - weight * unconditional
  return logits, radius, state._replace(cache=cache)


def processed(logits: Array, sampling: ScaleSampling, scale: int, top_k: int) -> Array:
  """Processed logits of a map: ``logits [B, T, V]`` truncated, then divided by the temperature."""
  top_p = jnp.float32(1.0) if sampling.top_p is None else sampling.top_p[scale]
  kept = Warp(top_k, sampling.top_p is not None)(logits, Sampling(jnp.float32(1.0), top_p))
  return kept / jnp.maximum(sampling.temperature[scale], 1e-5)


class ScaleWeights(NamedTuple):
  """Weights of a network and of its tokenizer."""

  network: Params
  tokenizer: Params


class ScaleSide(NamedTuple):
  """Traced parameters of one side of a decode."""

  weights: ScaleWeights
  sampling: ScaleSampling


class ScaleReader(NamedTuple):
  """Carried state of a side. Both parts hold every scale, so that a roll-back reads again from an earlier scale."""

  reader: ReaderState
  totals: Array  # [K, B, H, H, C] float32, the sum over the values of maps 0 .. k


@dataclasses.dataclass(frozen=True)
class ScaleNetwork:
  """A network and a tokenizer of the same scales as pure functions; static.

  Attributes:
    model: the network.
    tokenizer: tokenizer that sums the maps.
    top_k: the largest logits that stay; 0 keeps all.
  Raises:
    ValueError: for different scales.
  """

  model: VARFns
  tokenizer: ScaleTokenizerFns
  top_k: int = 0

  def __post_init__(self):
    if self.tokenizer.sides != self.model.sides:
      raise ValueError(f"Must have a tokenizer of scales {self.model.sides}, we instead got {self.tokenizer.sides}")

  @property
  def sizes(self) -> tuple[int, ...]:
    """Tokens of every map."""
    return tuple(side**2 for side in self.model.sides)

  def decode_bytes(self, rows: int, num_maps: int) -> int:
    """Bytes of the cache of ``rows`` rows, and of the logits of the last ``num_maps`` maps, with their temporaries."""
    cache = jax.eval_shape(functools.partial(self.model.init_cache, rows))
    return footprint.tree_bytes(cache) + footprint.logits_bytes(rows, sum(self.sizes[-num_maps:]), self.model.vocab_size)

  def start(self, side: ScaleSide, condition: ClassLabels) -> ScaleReader:
    """The initial state of a side, for ``B`` rows."""
    reader = start_reader(self.model, side.weights.network, condition, guided=side.sampling.guidance is not None)
    last, width = self.model.sides[-1], self.model.code_dim
    return ScaleReader(reader, jnp.zeros((len(self.sizes), condition.batch_size, last, last, width), jnp.float32))

  def read(
    self,
    side: ScaleSide,
    state: ScaleReader,
    maps: Sequence[Array],
    *,
    first: int,
    end: int,
    logits_from: int | None = None,
  ) -> tuple[list[Array], ScaleReader]:
    """One pass over the scales ``first .. end - 1``.

    Args:
      state: state after the scales before ``first``, with the sum of the maps before ``first - 1``.
      maps: the maps ``first - 1 .. end - 2`` (from 0 on with ``first = 0``), each ``[B, tokens]`` int32.
      logits_from: the first scale that is returned; ``first`` by default.
    Returns:
      Logits ``[B, tokens, V]`` float32 of each scale from ``logits_from`` on, after guidance, truncation and temperature;
      and the state.
    """
    heard, state = self.hear(side, state, maps, first=first, end=end, logits_from=logits_from)
    return [self.logits(side, one, scale) for scale, one in enumerate(heard, end - len(heard))], state

  def logits(self, side: ScaleSide, heard: Intervals, scale: int) -> Array:
    """Processed logits ``[B, tokens, V]`` float32 of a scale from its intervals (`hear`)."""
    return processed(heard.centre[..., 0, :], side.sampling, scale, self.top_k)

  def hear(
    self,
    side: ScaleSide,
    state: ScaleReader,
    maps: Sequence[Array],
    *,
    first: int,
    end: int,
    logits_from: int | None = None,
  ) -> tuple[list[Intervals], ScaleReader]:
    """As `read`, with intervals of the guided logits of each scale, before truncation and temperature.

    Returns:
      Leaves ``[B, tokens, 1, V]`` float32, whose radii are those of the conditional half (0 without an Inter-Head); and the
      state.
    """
    logits_from = first if logits_from is None else logits_from
    before = max(first - 1, 0)
    totals, total, inputs = state.totals, state.totals[before - 1] if before else jnp.float32(0.0), []
    for scale, tokens in enumerate(maps, before):
      total = total + self.tokenizer.value(side.weights.tokenizer, tokens, scale)
      totals = totals.at[scale].set(total)
      inputs.append(scale_inputs(total, self.model.sides[scale + 1]))
    if not inputs:
      inputs = [jnp.zeros((totals.shape[1], 0, self.model.code_dim), jnp.float32)]
    logits, radius, reader = read_scales(
      self.model, side.weights.network, state.reader, jnp.concatenate(inputs, axis=1), side.sampling.guidance,
      first=first, end=end, logits_from=logits_from,
    )  # fmt: skip
    starts = scales.starts(self.model.sides)
    centre = logits[:, :, None]
    heard = Intervals(centre, jnp.zeros_like(centre) if radius is None else radius)
    cuts = [start - starts[logits_from] for start in starts[logits_from + 1 : end]]
    parts = zip(*(jnp.split(leaf, cuts, axis=1) for leaf in (heard.centre, heard.radius)))
    return [Intervals(*part) for part in parts], ScaleReader(reader, totals)
