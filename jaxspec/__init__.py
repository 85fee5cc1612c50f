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
  "jaxspec.checkpoints": "Checkpoint load",
  "jaxspec.codecs": "ConformalParams SparseCodec TopKParams conformal_lattice topk_lattice",
  "jaxspec.decode.loop": "autoregress host_while_loop iterate speculate",
  "jaxspec.decode.masked": "generate_masked",
  "jaxspec.decode.state": "Counters DecodeResult DraftSide Origin SpecParams TargetSide",
  "jaxspec.run.decoder": "Decoder",
  "jaxspec.drafters.compressed": "CompressedParams compressed",
  "jaxspec.drafters.draws": "DenseDraw SparseDraw",
  "jaxspec.drafters.eagle": "eagle",
  "jaxspec.drafters.eagle_chain": "eagle_chain",
  "jaxspec.drafters.interval": "GatedParams GatedReport Unread interval_gated",
  "jaxspec.drafters.jacobi": "jacobi",
  "jaxspec.drafters.small_model": "small_model",
  "jaxspec.drafters.window_init": "WindowInit",
  "jaxspec.run.generation": "Generation",
  "jaxspec.intervals.gate": "conformal_gate constant_gate rate_params",
  "jaxspec.intervals.inter_fuse": "inter_fuse",
  "jaxspec.intervals.scores": "IntervalScore",
  "jaxspec.intervals.uncertainty": "Uncertainty",
  "jaxspec.link.connection": "connect",
  "jaxspec.link.decode": "decode_over_link",
  "jaxspec.link.draft_endpoint": "DraftEndpoint",
  "jaxspec.link.message": "MessageError",
  "jaxspec.link.target_endpoint": "TargetEndpoint",
  "jaxspec.loading": "load_pipeline",
  "jaxspec.metrics.audit": "TokenAudit audited",
  "jaxspec.metrics.diagnostics": "Diagnostics diagnose",
  "jaxspec.metrics.exact_distribution": "PositionDistribution exact_distribution",
  "jaxspec.models.guidance": "Guided guided",
  "jaxspec.models.sampling": "ModelParams Sampling Warp sampling_params",
  "jaxspec.network": "Network",
  "jaxspec.run.pipeline": "Pipeline",
  "jaxspec.sampling": "MapSampling SamplingConfig StateSampling VectorSampling",
  "jaxspec.server.from_bundle": "serve",
  "jaxspec.types": "Cursor Draft Drafter FirstToken ModelFns ModelOutput Verdict Verifier",
  "jaxspec.verifiers.chain": "ChainRule",
  "jaxspec.verifiers.distances": "DistanceTable TokenVectors cluster_table distance_table neighbour_table token_vectors",
  "jaxspec.verifiers.gated": "gated_target",
  "jaxspec.verifiers.greedy": "greedy",
  "jaxspec.verifiers.gsd": "Gsd gsd gsd_released",
  "jaxspec.verifiers.lantern": "Lantern lantern lantern_plus_plus",
  "jaxspec.verifiers.lantern_greedy": "GreedyLantern",
  "jaxspec.verifiers.lantern_tree": "lantern_tree",
  "jaxspec.verifiers.lossless": "lossless",
  "jaxspec.verifiers.scaled": "Scaled always scaled",
  "jaxspec.verifiers.sparse": "lossless_sparse",
  "jaxspec.verifiers.static_groups": "StaticGroups static_groups",
  "jaxspec.verifiers.target": "target_features target_logits target_model",
  "jaxspec.verifiers.tree": "lossless_tree tree_rule",
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
