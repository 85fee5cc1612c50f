"""The parts of a gated decode (CIAR) from networks, settings and calibrated thresholds."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from jaxspec.codecs.codec import SparseCodec, topk_lattice
from jaxspec.codecs.sparsify import TopKParams
from jaxspec.decode.methods import MethodOptions, make_rule
from jaxspec.drafters.draws import DenseDraw, SparseDraw
from jaxspec.drafters.interval import GatedParams, interval_gated
from jaxspec.intervals.gate import conformal_gate, constant_gate, rate_params
from jaxspec.intervals.scores import make_score
from jaxspec.models.guidance import Guided
from jaxspec.models.interval_features import IntervalFeaturesConfig, interval_features_fns
from jaxspec.models.sampling import ModelParams, Warp
from jaxspec.types import AcceptFn, Array, Drafter, ModelFns, PyTree, Verifier
from jaxspec.verifiers.gated import gated_target
from jaxspec.verifiers.greedy import greedy
from jaxspec.verifiers.sparse import lossless_sparse

# Laws as they are sent: the likeliest tokens, in parts of a thousand.
LAW_SUPPORT, LAW_PARTS = 32, 1000
DEFAULT_RATE = 0.3
CALIBRATED_SCORE = "interval"


def law_codec(vocab: int) -> SparseCodec:
  """How a device sends the laws of a window to the rule ``exact``."""
  return topk_lattice(vocab, min(LAW_SUPPORT, vocab), ell=LAW_PARTS, coding="rice")


def calibrated_tau(calibration: dict[str, Any] | None, rate: float) -> float:
  """The threshold of a rate of cloud calls, between calibrated ones by interpolation in log tau.

  Args:
    calibration: what ``jaxspec calibrate`` wrote: ``{"thresholds": [{"rate": .., "tau": ..}, ...], ...}``.
  Raises:
    ValueError: without calibration, or if it is damaged.
  """
  try:
    points = sorted((float(entry["achieved"]), float(entry["tau"])) for entry in (calibration or {}).get("thresholds", []))
  except (AttributeError, KeyError, TypeError) as error:
    raise ValueError("Must have thresholds as `jaxspec calibrate` writes them: run it again") from error
  if not points:
    raise ValueError(
      "Must have --tau or --cloud-rate, or a device with thresholds for this score (jaxspec calibrate), we instead got none"
    )
  if rate <= points[0][0]:
    return points[0][1]
  for (low, tau_low), (high, tau_high) in zip(points, points[1:]):
    if rate <= high:
      part = (rate - low) / max(high - low, 1e-12)
      return math.exp((1 - part) * math.log(tau_low) + part * math.log(tau_high))
  return points[-1][1]


def gate_of(options: MethodOptions, calibration: dict[str, Any] | None):
  """The gate and its traced parameters."""
  if options.tau is not None:
    return constant_gate, jnp.float32(options.tau)
  if options.cloud_rate is None:
    return constant_gate, jnp.float32(calibrated_tau(calibration, DEFAULT_RATE))
  if options.cloud_rate <= options.rho:
    raise ValueError(f"Must have a cloud rate above rho, {options.rho:g}, we instead got {options.cloud_rate:g}")
  try:
    start = calibrated_tau(calibration, options.cloud_rate)
  except ValueError:
    start = 1e-2  # anywhere: a short row ends before the controller has found the level
  # The controller sees what the gate decides: the tokens behind the prefix.
  return conformal_gate, rate_params(start, (options.cloud_rate - options.rho) / (1 - options.rho))


def rule_of(options: MethodOptions, *, codebook: Array | None) -> tuple[AcceptFn, PyTree]:
  """The rule of a window and the tables it reads."""
  if options.verify == "exact":
    return lossless_sparse, ()
  if options.verify == "greedy":
    return greedy, ()
  return make_rule("lantern", options, embedding=None, codebook=codebook)


def gated_parts(
  device: ModelFns,
  device_side: ModelParams,
  cloud: ModelFns,
  cloud_side: ModelParams,
  options: MethodOptions,
  *,
  warp: Warp,
  vocab: int,
  num_tokens: int,
  codebook: Array | None,
  calibration: dict[str, Any] | None,
  interval_features: IntervalFeaturesConfig | None = None,
) -> tuple[GatedParams, ModelParams, Drafter, Verifier]:
  """Both sides' parameters, the drafter and the verifier.

  Args:
    num_tokens: tokens of a row, of which ``rho`` is a share.
    calibration: thresholds of the device's checkpoint, which are for score ``interval``.
    interval_features: of the device, if it has some.
  Raises:
    ValueError: if features are to be injected that the device lacks, or that were made for a device without guidance.
  """
  gate, gate_params = gate_of(options, calibration if options.score == CALIBRATED_SCORE else None)
  rule, tables = rule_of(options, codebook=codebook)
  exact = options.verify == "exact"
  codec = law_codec(vocab)
  draw = SparseDraw(codec) if exact else DenseDraw()
  draw_params = TopKParams(jnp.int32(codec.max_support)) if exact else ()
  prefix = jnp.int32(math.floor(options.rho * num_tokens + 1e-9))
  combination = options.combination or "ensemble"
  phi, phi_params = None, ()
  if options.inject != "none" and interval_features is not None:
    if isinstance(device_side.model, Guided):
      raise ValueError("Must have a device without guidance to inject its interval features, we instead got a guided one")
    phi, phi_params = interval_features_fns(interval_features), device_side.model["features"]
  drafter = interval_gated(
    device, make_score(options.score, combination), gate, window=options.gamma, max_run=options.max_run, warp=warp,
    combination=combination, draw=draw, early_close=options.early_close, features=phi, inject=options.inject,
  )  # fmt: skip
  verifier = gated_target(cloud, rule, warp=warp, window=options.gamma, widths=pass_widths(options.gamma))
  params = GatedParams(device_side, gate_params, prefix, draw_params, phi_params)
  return params, cloud_side._replace(rule=tables), drafter, verifier


def pass_widths(window: int) -> tuple[int, ...]:
  """One token, and powers of two from the first that holds a window (4 at least, which costs hardly more than 2) to 32.

  Wide passes read a backlog in one, at less time per token than several narrow ones. They are not wider than 32, or than the
  window needs, because the cloud's cache has room for one of them behind every row.
  """
  first = max(4, 1 << window.bit_length())
  return (1, *(first << power for power in range(4) if power == 0 or first << power <= 32))
