"""From networks and settings to the three things a decode needs: parameters, drafter, verifier."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp

from jaxspec.decode.compression import make_compressed
from jaxspec.decode.gated import gated_parts
from jaxspec.decode.methods import LARGEST, MethodOptions, get_method, make_jacobi, make_rule, make_tree_rule
from jaxspec.decode.state import SpecParams
from jaxspec.drafters.eagle import eagle
from jaxspec.drafters.eagle_chain import eagle_chain
from jaxspec.drafters.none import NO_DRAFTER
from jaxspec.drafters.small_model import small_model
from jaxspec.metrics.audit import audited
from jaxspec.models.eagle import attach
from jaxspec.models.guidance import Guided, guided
from jaxspec.models.interval_features import IntervalFeaturesConfig
from jaxspec.models.sampling import ModelParams, Sampling, Warp, sampling_params
from jaxspec.types import AcceptFn, Array, Drafter, ModelFns, Params, Verifier
from jaxspec.verifiers.lantern_greedy import GreedyLantern
from jaxspec.verifiers.lossless import lossless
from jaxspec.verifiers.target import target_features, target_laws, target_model


def assemble(
  target_fns: ModelFns,
  target_params: Params,
  draft_fns: ModelFns | None = None,
  draft_params: Params | None = None,
  *,
  method: str = "speculative",
  cfg_scale: float = 1.0,
  cfg_interval: int = -1,
  top_k: int = 0,
  top_p: float = 1.0,
  temperature: float = 1.0,
  draft_guidance: bool = True,
  codebook: Array | None = None,
  vocab_size: int | None = None,
  grid: int | None = None,
  audit: bool = False,
  num_tokens: int | None = None,
  calibration: dict[str, Any] | None = None,
  interval_features: IntervalFeaturesConfig | None = None,
  **options: Any,
) -> tuple[SpecParams, Drafter, Verifier]:
  """Binds a target and a draft into what `jaxspec.speculate` and `jaxspec.autoregress` take.

  Guidance is active iff ``cfg_scale > 1``, the nucleus iff ``top_p < 1``; both change the compiled program. Both sides
  get the same logit processing: the verifier's processed law is the one that is reproduced exactly by exact methods.

  Args:
    target_fns: the target network; ``target_params`` its weights.
    draft_fns: the draft network of a method that has one; ``draft_params`` its weights. Methods ``eagle`` and
      ``eagle-chain`` take an `eagle_fns` network without the target's tables.
    method: one of `METHODS`. ``lantern`` at temperature 0 keeps drafts by `GreedyLantern`.
    cfg_scale: guidance scale; 1 switches guidance off.
    cfg_interval: see `guided`.
    top_k: keep the k largest logits; 0 keeps all.
    top_p: keep the nucleus of this mass.
    temperature: divisor of the logits; 0 is greedy.
    draft_guidance: False for a draft that was trained on guided targets and runs without guidance, at half the cost.
    codebook: ``[V, C]`` rows of the picture tokenizer, for rules that compare codes.
    vocab_size: ``V``, for Jacobi, compressed and gated drafting; ``grid`` the tokens per row of a picture.
    audit: report the exact law of every committed token beside it (`jaxspec.audited`); costs time, changes no token. Not
      for methods ``sqs``, whose drafts do not come with logits, and ``ciar``, where no rule judges what the device settles.
    num_tokens: tokens of a row, for method ``ciar``.
    calibration: thresholds of the device's checkpoint, for method ``ciar`` without tau.
    interval_features: those of the device's config, for method ``ciar`` with ``inject``.
    options: fields of `MethodOptions`.
  Returns:
    ``(params, drafter, verifier)``; with method ``ar`` the drafter is `NO_DRAFTER`.
  Raises:
    ValueError: for a setting out of range, an unknown method, or a part that the method needs and does not get.
  """
  parts, options = get_method(method), MethodOptions(**options)
  check_sampling(cfg_scale=cfg_scale, top_k=top_k, top_p=top_p, temperature=temperature)
  warp, sampling = Warp(top_k=top_k, nucleus=top_p < 1), sampling_params(temperature, top_p)
  embedding = target_params.get("tok_embeddings", {}).get("weight") if isinstance(target_params, dict) else None
  continues = parts.draft_family == "eagle"
  draft_scale = cfg_scale if draft_guidance else 1.0
  # A drafter without guidance continues the features of the guided law.
  features = "combined" if continues and not draft_guidance else "both"
  side = functools.partial(_side, sampling=sampling, cfg_interval=cfg_interval, features=features)
  host_fns, host_side = side(target_fns, target_params, cfg_scale=cfg_scale)

  def verifier(rule: AcceptFn, **feedback: Any) -> Verifier:
    return target_model(host_fns, audited(rule) if audit else rule, warp=warp, **feedback)

  if parts.drafter is None:
    return SpecParams((), host_side), NO_DRAFTER, verifier(lossless)
  if parts.draft_family is not None and draft_fns is None:
    raise ValueError(f"Must have a draft network for method {method!r}; method 'ar' needs none")

  draft_side = None
  if draft_fns is not None:
    draft_params = attach(draft_params, target_params) if continues else draft_params
    fns, draft_side = side(draft_fns, draft_params, cfg_scale=draft_scale)

  if parts.drafter == "eagle":
    drafter = eagle(fns, total=options.tree_size, top_k=options.tree_top_k, depth=options.tree_depth, warp=warp)
    if parts.rule == "lantern" and temperature == 0:
      raise ValueError("Must have a temperature above 0 for relaxed trees, we instead got 0: chains alone are greedy")
    rule, tables = make_tree_rule(parts.rule, options, codebook=codebook)
    return SpecParams(draft_side, host_side._replace(rule=tables)), drafter, verifier(rule, feedback_fn=target_features)

  if parts.drafter == "interval":
    if audit:
      raise ValueError("Must have no audit with a gated device, whose settled tokens no rule judges")
    if vocab_size is None or num_tokens is None:
      raise ValueError("Must have vocab_size and num_tokens for a gated device")
    device, host_side, drafter, gated = gated_parts(
      fns, draft_side, host_fns, host_side, options, warp=warp, vocab=vocab_size, num_tokens=num_tokens, codebook=codebook,
      calibration=calibration, interval_features=interval_features,
    )  # fmt: skip
    return SpecParams(device, host_side), drafter, gated

  rule, tables = make_rule(parts.rule, options, embedding=embedding, codebook=codebook)
  host_side = host_side._replace(rule=tables)
  if parts.rule == "lantern" and temperature == 0:
    if audit:
      raise ValueError("Must have a temperature above 0 to audit LANTERN, we instead got 0: its output then has no law")
    # What there is to borrow stands in the row at temperature 1; at 0 one token has all the mass.
    rule, host_side = GreedyLantern(rule), host_side._replace(sampling=sampling_params(1.0, top_p))
  if parts.drafter == "jacobi":
    drafter = make_jacobi(options, vocab_size=vocab_size, grid=grid)
    return SpecParams((), host_side), drafter, verifier(rule, feedback_fn=target_laws)
  if parts.drafter == "compressed":
    if vocab_size is None:
      raise ValueError(f"Must have vocab_size for method {method!r}")
    if audit:
      raise ValueError(f"Must have a method whose drafts come with logits for an audit, we instead got {method!r}")
    # Where the law of a rejected draft is only sent on demand, the target's own must be kept until then.
    feedback = {"feedback_fn": target_laws} if options.coding == "lazy" else {}
    draft_side, drafter = make_compressed(options, fns, draft_side, vocab_size=vocab_size, warp=warp)
  elif parts.drafter == "eagle_chain":
    drafter, feedback = eagle_chain(fns, window=options.gamma, warp=warp), {"feedback_fn": target_features}
  else:
    drafter, feedback = small_model(fns, window=options.gamma, warp=warp), {}
  return SpecParams(draft_side, host_side), drafter, verifier(rule, **feedback)


def _side(
  fns: ModelFns, params: Params, *, sampling: Sampling, cfg_scale: float, cfg_interval: int, features: str
) -> tuple[ModelFns, ModelParams]:
  if cfg_scale > 1:
    fns = guided(fns, interval=cfg_interval, features=features)
    params = Guided(params, jnp.float32(cfg_scale))
  return fns, ModelParams(params, sampling)


def check_sampling(*, cfg_scale: float, top_k: int, top_p: float, temperature: float) -> None:
  """Raises a ValueError for the first setting out of range."""
  if top_k < 0:
    raise ValueError(f"Must have top_k of at least 0 (0 keeps all tokens), we instead got {top_k}")
  if not 0 < top_p <= 1:
    raise ValueError(f"Must have top_p above 0 and at most 1, we instead got {top_p}")
  if not (math.isfinite(temperature) and temperature >= 0):
    raise ValueError(f"Must have a finite temperature of at least 0 (0 is greedy), we instead got {temperature}")
  if not (math.isfinite(cfg_scale) and cfg_scale >= 1):
    raise ValueError(f"Must have a finite cfg_scale of at least 1 (1 is no guidance), we instead got {cfg_scale}")
  for name, value in (("temperature", temperature), ("cfg_scale", cfg_scale)):
    if value > LARGEST:
      raise ValueError(f"Must have {name} of at most {LARGEST:,}, we instead got {value:g}")
