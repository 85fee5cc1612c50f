"""From networks and settings to the three things a decode needs: parameters, drafter, verifier."""

from __future__ import annotations

import math

import jax.numpy as jnp

from jaxspec.decode.state import SpecParams
from jaxspec.drafters.eagle import eagle
from jaxspec.drafters.none import NO_DRAFTER
from jaxspec.drafters.small_model import small_model
from jaxspec.models.eagle import attach
from jaxspec.models.guidance import Guided, guided
from jaxspec.models.sampling import ModelParams, Sampling, Warp, sampling_params
from jaxspec.types import Drafter, ModelFns, Params, Verifier
from jaxspec.verifiers.lossless import lossless
from jaxspec.verifiers.target import target_features, target_model
from jaxspec.verifiers.tree import tree_rule

METHODS = ("ar", "speculative", "eagle")


def assemble(
  target_fns: ModelFns,
  target_params: Params,
  draft_fns: ModelFns | None = None,
  draft_params: Params | None = None,
  *,
  gamma: int = 4,
  cfg_scale: float = 1.0,
  cfg_interval: int = -1,
  top_k: int = 0,
  top_p: float = 1.0,
  temperature: float = 1.0,
  method: str = "speculative",
  draft_guidance: bool = True,
  tree_size: int = 15,
  tree_top_k: int = 4,
  tree_depth: int = 3,
) -> tuple[SpecParams, Drafter, Verifier]:
  """Binds a target and a draft into what `jaxspec.speculate` and `jaxspec.autoregress` take.

  Guidance is active iff ``cfg_scale > 1``, the nucleus iff ``top_p < 1``; both change the compiled program. Both sides
  get the same logit processing: the verifier's processed law is the one that is reproduced exactly.

  Args:
    target_fns: the target network; ``target_params`` its weights.
    draft_fns: the draft network, not read with method ``ar``; ``draft_params`` its weights. Method ``eagle`` takes an
      `eagle_fns` network without the target's tables.
    gamma: draft window ``K`` of method ``speculative``.
    cfg_scale: guidance scale; 1 switches guidance off.
    cfg_interval: see `guided`.
    top_k: keep the k largest logits; 0 keeps all.
    top_p: keep the nucleus of this mass.
    temperature: divisor of the logits; 0 is greedy.
    method: one of `METHODS`.
    draft_guidance: False for a draft that was trained on guided targets and runs without guidance, at half the cost.
    tree_size: nodes of a tree of method ``eagle``. EAGLE-2 takes 60, 10 and 5 for language models of billions of weights;
      small hosts pay more for a pass over many nodes (with 15, the target reads 16 tokens).
    tree_top_k: width of a beam.
    tree_depth: beams per round; a tree has one more level.
  Returns:
    ``(params, drafter, verifier)``; with method ``ar`` the drafter is `NO_DRAFTER`.
  Raises:
    ValueError: for a setting out of range, an unknown method, or speculation without a draft.
  """
  check_settings(
    gamma=gamma, cfg_scale=cfg_scale, top_k=top_k, top_p=top_p, temperature=temperature, method=method,
    tree_size=tree_size, tree_top_k=tree_top_k, tree_depth=tree_depth,
  )  # fmt: skip
  warp, sampling = Warp(top_k=top_k, nucleus=top_p < 1), sampling_params(temperature, top_p)
  target_fns, target_side = _side(target_fns, target_params, sampling, cfg_scale, cfg_interval)
  if method == "ar":
    return SpecParams((), target_side), NO_DRAFTER, target_model(target_fns, lossless, warp=warp)
  if draft_fns is None:
    raise ValueError(f"Must have a draft network for method {method!r}; method 'ar' needs none")
  if method == "eagle":
    draft_params = attach(draft_params, target_params)
  draft_fns, draft_side = _side(
    draft_fns, draft_params, sampling, cfg_scale if draft_guidance else 1.0, cfg_interval
  )
  params = SpecParams(draft_side, target_side)
  if method == "eagle":
    drafter = eagle(draft_fns, total=tree_size, top_k=tree_top_k, depth=tree_depth, warp=warp)
    rule = tree_rule(max_path=tree_depth + 1)
    return params, drafter, target_model(target_fns, rule, warp=warp, feedback_fn=target_features)
  return params, small_model(draft_fns, window=gamma, warp=warp), target_model(target_fns, lossless, warp=warp)


def _side(
  fns: ModelFns, params: Params, sampling: Sampling, cfg_scale: float, cfg_interval: int
) -> tuple[ModelFns, ModelParams]:
  if cfg_scale > 1:
    fns, params = guided(fns, interval=cfg_interval), Guided(params, jnp.float32(cfg_scale))
  return fns, ModelParams(params, sampling)


def check_settings(
  *,
  gamma: int,
  cfg_scale: float,
  top_k: int,
  top_p: float,
  temperature: float,
  method: str,
  tree_size: int = 1,
  tree_top_k: int = 1,
  tree_depth: int = 1,
) -> None:
  """Raises a ValueError for the first setting out of range."""
  if method not in METHODS:
    raise ValueError(f"Must have a method in {', '.join(METHODS)}, we instead got {method!r}")
  if gamma < 1:
    raise ValueError(f"Must have gamma of at least 1, we instead got {gamma}")
  if min(tree_size, tree_top_k, tree_depth) < 1:
    got = f"{tree_size}, {tree_top_k} and {tree_depth}"
    raise ValueError(f"Must have tree_size, tree_top_k and tree_depth of at least 1, we instead got {got}")
  if tree_size > (candidates := tree_top_k + tree_depth * tree_top_k**2):
    raise ValueError(f"Must have tree_size of at most the {candidates} candidates of a round, we instead got {tree_size}")
  if top_k < 0:
    raise ValueError(f"Must have top_k of at least 0 (0 keeps all tokens), we instead got {top_k}")
  if not 0 < top_p <= 1:
    raise ValueError(f"Must have top_p above 0 and at most 1, we instead got {top_p}")
  if not (math.isfinite(temperature) and temperature >= 0):
    raise ValueError(f"Must have a finite temperature of at least 0 (0 is greedy), we instead got {temperature}")
  if not (math.isfinite(cfg_scale) and cfg_scale >= 1):
    raise ValueError(f"Must have a finite cfg_scale of at least 1 (1 is no guidance), we instead got {cfg_scale}")
