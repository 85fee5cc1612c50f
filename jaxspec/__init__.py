"""jaxspec: fast, exact speculative decoding of autoregressive models in JAX."""

__version__ = "0.1.0"

from jaxspec.checkpoints import Checkpoint, load
from jaxspec.decode.loop import autoregress, host_while_loop, iterate, speculate
from jaxspec.decode.state import Counters, DecodeResult, Origin, SpecParams
from jaxspec.drafters.eagle import eagle
from jaxspec.drafters.small_model import small_model
from jaxspec.models.guidance import Guided, guided
from jaxspec.models.sampling import ModelParams, Sampling, Warp, sampling_params
from jaxspec.types import Cursor, Draft, Drafter, ModelFns, ModelOutput, Verdict, Verifier
from jaxspec.verifiers.lossless import lossless
from jaxspec.verifiers.target import target_features, target_laws, target_model
from jaxspec.verifiers.tree import lossless_tree, tree_rule

__all__ = [
  "Checkpoint", "Counters", "Cursor", "DecodeResult", "Draft", "Drafter", "Guided", "ModelFns", "ModelOutput",
  "ModelParams", "Origin", "Sampling", "SpecParams", "Verdict", "Verifier", "Warp", "__version__", "autoregress",
  "eagle", "guided", "host_while_loop", "iterate", "load", "lossless", "lossless_tree", "sampling_params", "small_model",
  "speculate", "target_features", "target_laws", "target_model", "tree_rule",
]
