"""jaxspec: fast, exact speculative decoding of autoregressive models in JAX."""

__version__ = "0.1.0"

from jaxspec.checkpoints import Checkpoint, load
from jaxspec.codecs import ConformalParams, SparseCodec, TopKParams, conformal_lattice, topk_lattice
from jaxspec.decode.loop import autoregress, host_while_loop, iterate, speculate
from jaxspec.decode.masked import MaskedResult, generate_masked
from jaxspec.decode.state import Counters, DecodeResult, Origin, SpecParams
from jaxspec.drafters.compressed import CompressedParams, compressed
from jaxspec.drafters.draws import DenseDraw, SparseDraw
from jaxspec.drafters.eagle import eagle
from jaxspec.drafters.eagle_chain import eagle_chain
from jaxspec.drafters.interval import GatedParams, GatedReport, interval_gated
from jaxspec.drafters.jacobi import jacobi
from jaxspec.drafters.small_model import small_model
from jaxspec.drafters.window_init import WindowInit
from jaxspec.intervals.gate import conformal_gate, constant_gate, rate_params
from jaxspec.intervals.inter_fuse import inter_fuse
from jaxspec.intervals.scores import IntervalScore
from jaxspec.intervals.uncertainty import Uncertainty
from jaxspec.link.driver import Traffic, decode_over_link
from jaxspec.link.message import MessageError
from jaxspec.metrics.audit import TokenAudit, audited
from jaxspec.metrics.diagnostics import Diagnostics, diagnose
from jaxspec.metrics.exact_law import PlaceLaw, exact_law
from jaxspec.models.guidance import Guided, guided
from jaxspec.models.sampling import ModelParams, Sampling, Warp, sampling_params
from jaxspec.types import Cursor, Draft, Drafter, ModelFns, ModelOutput, Verdict, Verifier
from jaxspec.verifiers.chain import ChainRule
from jaxspec.verifiers.distances import (
  DistanceTable,
  TokenVectors,
  cluster_table,
  distance_table,
  neighbour_table,
  token_vectors,
)
from jaxspec.verifiers.gated import gated_target
from jaxspec.verifiers.greedy import greedy
from jaxspec.verifiers.gsd import Gsd, gsd, gsd_released
from jaxspec.verifiers.lantern import Lantern, lantern, lantern_plus_plus
from jaxspec.verifiers.lantern_greedy import GreedyLantern
from jaxspec.verifiers.lantern_tree import lantern_tree
from jaxspec.verifiers.lossless import lossless
from jaxspec.verifiers.scaled import Scaled, always, scaled
from jaxspec.verifiers.sparse import lossless_sparse
from jaxspec.verifiers.static_groups import StaticGroups, static_groups
from jaxspec.verifiers.target import target_features, target_laws, target_model
from jaxspec.verifiers.tree import lossless_tree, tree_rule

__all__ = [
  "ChainRule", "Checkpoint", "CompressedParams", "ConformalParams", "Counters", "Cursor", "DecodeResult", "DenseDraw",
  "Diagnostics", "DistanceTable", "Draft", "Drafter", "GatedParams", "GatedReport", "GreedyLantern", "Gsd", "Guided",
  "IntervalScore", "Lantern", "MaskedResult", "MessageError", "ModelFns", "ModelOutput", "ModelParams", "Origin",
  "PlaceLaw", "Sampling", "Scaled", "SparseCodec", "SparseDraw", "SpecParams", "StaticGroups", "TokenAudit",
  "TokenVectors", "TopKParams", "Traffic", "Uncertainty", "Verdict", "Verifier", "Warp", "WindowInit", "__version__",
  "always", "audited", "autoregress", "cluster_table", "compressed", "conformal_gate", "conformal_lattice",
  "constant_gate", "decode_over_link", "diagnose", "distance_table", "eagle", "eagle_chain", "exact_law", "gated_target",
  "generate_masked", "greedy", "gsd", "gsd_released", "guided", "host_while_loop", "inter_fuse", "interval_gated",
  "iterate", "jacobi", "lantern", "lantern_plus_plus", "lantern_tree", "load", "lossless", "lossless_sparse",
  "lossless_tree", "neighbour_table", "rate_params", "sampling_params", "scaled", "small_model", "speculate",
  "static_groups", "target_features", "target_laws", "target_model", "token_vectors", "topk_lattice", "tree_rule",
]
