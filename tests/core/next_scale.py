"""Generation of images scale by scale (VAR, arXiv 2404.02905) without the loop, as a reference for decodes of scales.

1. The network reads the sum of previous scales at the resolution of the next one, and gives logits for all its positions.
2. They are guided with a weight of the scale, truncated and divided by its temperature, in this order. All tokens of the
   scale are drawn, each with its own uniform: they are independent given the previous scales.
3. The tokenizer adds the scale to the sum.

The sides of the scales are static, so the K passes are one program without a loop. Collaborative decoding (CoDe, arXiv
2411.17787) is the same with two networks: the target draws the first scales. The refiner, a smaller network, reads all of
them in one pass and draws the rest without verification, so its images follow another distribution.

**Random numbers.** A token's uniform is a function of the key of its row, of its scale and of its position in the scale, for
both networks. Arrays ``[B, L]`` replace them.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core import rng
from jaxspec.core.state import Counters, DecodeResult, Origin
from jaxspec.core.types import Array, Key, Params
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.tokenizers.scale_quantizer import scale_inputs
from jaxspec.models.tokenizers.var_vae import ScaleTokenizerFns
from jaxspec.models.var.var import VARFns, scales
from jaxspec.sampling.logit_processing import probabilities, sample
from jaxspec.sampling.scale_network import ScaleSampling, processed, read_scales, start_reader


class ScaleParams(NamedTuple):
  """All weights of a generation."""

  target: Params
  tokenizer: Params
  refiner: Params = ()


class ScaleRecord(NamedTuple):
  """Intermediate values of a generation."""

  logits: Array  # [B, L, V] float32, guided, before the truncation
  probs: Array  # [B, L, V] float32, the processed logits of every token
  totals: Array  # [K, B, H, H, C] float32, the sum after every scale
  inputs: Array  # [B, L - 1, C] float32, inputs of a network from scale 1 on


class ScaleReport(NamedTuple):
  """`DecodeResult.report` of this decoder."""

  total: Array  # [B, H, H, C] float32, the quantised latent image, for `ScaleTokenizerFns.decode_latent`
  record: ScaleRecord | None  # None unless requested


@functools.partial(jax.jit, static_argnames=("model", "tokenizer", "refiner", "refine_from", "top_k", "record"))
def _generate(
  params: ScaleParams, keys, classes, uniforms, sampling, *, model, tokenizer, refiner, refine_from, top_k, record
) -> DecodeResult:
  sides, starts = model.sides, scales.starts(model.sides)
  last = len(sides) if refiner is None else refine_from
  stages = [(model, params.target, 0, last)]
  if refiner is not None:
    stages.append((refiner, params.refiner, last, len(sides)))
  history = [jnp.zeros((classes.batch_size, 0, model.code_dim), jnp.float32)]  # inputs of every scale; scale 0 has none
  maps, totals, logits_of, probs_of = [], [jnp.float32(0.0)], [], []
  for network, weights, begin, end in stages:
    state, read = start_reader(network, weights, classes, guided=sampling.guidance is not None), 0
    for scale in range(begin, end):
      inputs = jnp.concatenate(history[read:], axis=1)
      logits, _, state = read_scales(
        network, weights, state, inputs, sampling.guidance, first=read, end=scale + 1, logits_from=scale
      )
      read = scale + 1
      drawn_from = processed(logits, sampling, scale, top_k[scale])
      if uniforms is None:
        uniform = rng.uniforms(rng.of_token(keys, scale), sides[scale] ** 2)
      else:
        uniform = uniforms[:, starts[scale] : starts[scale + 1]]
      maps.append(sample(drawn_from, uniform))
      totals.append(totals[-1] + tokenizer.value(params.tokenizer, maps[-1], scale))
      if scale + 1 < len(sides):
        history.append(scale_inputs(totals[-1], sides[scale + 1]))
      if record:
        logits_of.append(logits)
        probs_of.append(probabilities(drawn_from))
  rows = lambda parts: jnp.concatenate(parts, axis=1)
  recorded = ScaleRecord(rows(logits_of), rows(probs_of), jnp.stack(totals[1:]), rows(history)) if record else None
  return _result(rows(maps), sides, last, ScaleReport(totals[-1], recorded))


def _result(tokens: Array, sides: tuple[int, ...], last: int, report: ScaleReport) -> DecodeResult:
  """The result of a decode with one round per scale; a refiner draws scales from ``last`` on."""
  rows, length = tokens.shape
  scale = jnp.broadcast_to(jnp.asarray(scales.scale_of_position(sides))[None], tokens.shape)
  origin = jnp.where(scale == 0, int(Origin.FIRST), jnp.where(scale < last, int(Origin.BONUS), int(Origin.LOCAL)))
  count = lambda number: jnp.full((rows,), number, jnp.int32)
  local = length - scales.starts(sides)[last]
  counters = Counters(count(len(sides)), count(0), count(0), count(local), count(last), count(len(sides) - last))
  nothing = jnp.zeros(tokens.shape, bool)
  return DecodeResult(tokens, count(length), counters, nothing, origin.astype(jnp.int8), scale, report=report)


def generate_scales(
  model: VARFns,
  tokenizer: ScaleTokenizerFns,
  params: ScaleParams,
  key: Key,
  condition: ClassLabels,
  sampling: ScaleSampling,
  *,
  top_k: int | tuple[int, ...] = 0,
  refiner: VARFns | None = None,
  refine_from: int | None = None,
  uniforms: Array | None = None,
  record: bool = False,
) -> DecodeResult:
  """Draws all scales of every row in one compiled program.

  Args:
    key: one typed key (row r uses ``fold_in(key, r)``) or ``[B]`` row keys; consumed. A row depends on its own key and
      condition only.
    condition: `ClassLabels` of ``B`` rows.
    top_k: number of largest logits to keep, for all scales or for each, static; 0 keeps all.
    refiner: a second network that draws scales from ``refine_from`` on, static; with its own guidance.
    uniforms: optional ``[B, L]`` float32 in [0, 1), one for each token.
    record: also return a `ScaleRecord`.
  Returns:
    `DecodeResult` with tokens ``[B, L]`` int32, scale after scale, a round for each scale, and a `ScaleReport`. Tokens of a
    refiner count as local.
  """
  top_k = (top_k,) * len(model.sides) if isinstance(top_k, int) else tuple(top_k)
  keys = rng.stream_keys(rng.row_keys(key, condition.batch_size), rng.Stream.FIRST, jnp.int32(0))
  return _generate(
    params, keys, condition, uniforms, sampling,
    model=model, tokenizer=tokenizer, refiner=refiner, refine_from=refine_from, top_k=top_k, record=record,
  )  # fmt: skip
