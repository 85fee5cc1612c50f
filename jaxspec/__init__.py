"""jaxspec: fast, exact speculative decoding of autoregressive models in JAX.

Names are imported when they are first used, so that ``import jaxspec`` (and what needs no network, such as the command
line's help) does not wait for JAX.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Where each public name lives.
_MODULES = {
  "jaxspec.io.checkpoints": "Checkpoint load",
  "jaxspec.codecs": "ConformalParams SparseCodec TopKParams conformal_lattice topk_lattice",
  "jaxspec.core.loop": "autoregress host_while_loop iterate speculate",
  "jaxspec.methods.masked_decode": "generate_masked",
  "jaxspec.core.state": "Counters DecodeResult DraftSide Origin SpecParams TargetSide",
  "jaxspec.run.decoder": "Decoder",
  "jaxspec.drafters.compressed": "CompressedParams CompressedDrafter",
  "jaxspec.drafters.draws": "DenseDraw SparseDraw",
  "jaxspec.drafters.eagle_tree": "EagleTreeDrafter",
  "jaxspec.drafters.eagle_chain": "EagleChainDrafter",
  "jaxspec.drafters.ciar_drafter": "GatedParams GatedReport PendingTokens CiarDrafter",
  "jaxspec.drafters.jacobi_drafter": "JacobiDrafter",
  "jaxspec.drafters.small_model": "SmallModelDrafter",
  "jaxspec.drafters.window_init": "WindowInit",
  "jaxspec.run.generation": "Generation",
  "jaxspec.intervals.gate": "conformal_gate constant_gate rate_params",
  "jaxspec.intervals.inter_fuse": "inter_fuse",
  "jaxspec.intervals.scores": "IntervalScore",
  "jaxspec.intervals.uncertainty": "Uncertainty",
  "jaxspec.serving.edge.connection": "connect",
  "jaxspec.serving.wire.framing": "MessageError",
  "jaxspec.run.loading": "load_pipeline",
  "jaxspec.rules.audited": "TokenAudit audited",
  "jaxspec.rules.exact_distribution": "PositionDistribution exact_distribution",
  "jaxspec.models.guidance": "Guided guided",
  "jaxspec.sampling.logit_processing": "ModelParams Sampling Warp sampling_params",
  "jaxspec.core.network": "Network",
  "jaxspec.run.pipeline": "Pipeline",
  "jaxspec.sampling": "MapSampling SamplingConfig StateSampling VectorSampling",
  "jaxspec.serving.server.from_bundle": "serve",
  "jaxspec.core.types": "Cursor Draft Drafter FirstToken ModelFns ModelOutput Verdict Verifier",
  "jaxspec.rules.chain_rule": "ChainRule",
  "jaxspec.rules.distances": "DistanceTable TokenVectors cluster_table distance_table neighbour_table token_vectors",
  "jaxspec.verifiers.ciar_target": "CiarVerifier",
  "jaxspec.rules.greedy": "greedy",
  "jaxspec.rules.gsd_rule": "Gsd gsd gsd_released",
  "jaxspec.rules.lantern_rule": "Lantern lantern lantern_plus_plus",
  "jaxspec.rules.lantern_greedy": "GreedyLantern",
  "jaxspec.rules.lantern_tree": "lantern_tree",
  "jaxspec.rules.lossless": "lossless",
  "jaxspec.rules.scaled_rule": "Scaled always scaled",
  "jaxspec.rules.sparse": "lossless_sparse",
  "jaxspec.rules.static_groups": "StaticGroups static_groups",
  "jaxspec.verifiers.target": "target_features target_logits TargetVerifier",
  "jaxspec.rules.tree_rule": "lossless_tree tree_rule",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}
_SUBMODULES = ("methods", "testing")

__all__ = ["__version__", *_HOME, *_SUBMODULES]


def __getattr__(name: str) -> Any:
  if name in _HOME:
    value = getattr(importlib.import_module(_HOME[name]), name)
  elif name in _SUBMODULES:
    value = importlib.import_module(f"jaxspec.{name}")
  else:
    raise AttributeError(f"module 'jaxspec' has no attribute {name!r}")
  globals()[name] = value
  return value


def __dir__() -> list[str]:
  return sorted({*globals(), *__all__})
