# The public names; `jaxspec/__init__.py` imports them when they are first used.
from . import errors as errors
from . import families as families
from . import methods as methods
from . import testing as testing
from .core.loop import autoregress as autoregress
from .core.loop import iterate as iterate
from .core.loop import speculate as speculate
from .core.network import Network as Network
from .core.state import Counters as Counters
from .core.state import DecodeResult as DecodeResult
from .core.state import Origin as Origin
from .core.state import SpecParams as SpecParams
from .core.token_space import TokenSpace as TokenSpace
from .core.types import Cursor as Cursor
from .core.types import Draft as Draft
from .core.types import Drafter as Drafter
from .core.types import FirstToken as FirstToken
from .core.types import ModelFns as ModelFns
from .core.types import ModelOutput as ModelOutput
from .core.types import Verdict as Verdict
from .core.types import Verifier as Verifier
from .drafters.small_model import SmallModelDrafter as SmallModelDrafter
from .io.checkpoints import load as load
from .rules.audited import TokenAudit as TokenAudit
from .rules.audited import audited as audited
from .rules.lossless import lossless as lossless
from .run.decoder import Decoder as Decoder
from .run.generation import Generation as Generation
from .run.loading import load_pipeline as load_pipeline
from .run.pipeline import Pipeline as Pipeline
from .sampling import ContinuousSampling as ContinuousSampling
from .sampling import DenoisingSampling as DenoisingSampling
from .sampling import SamplingConfig as SamplingConfig
from .sampling import ScaleSampling as ScaleSampling
from .sampling.logit_processing import ModelParams as ModelParams
from .sampling.logit_processing import Warp as Warp
from .sampling.logit_processing import sampling_params as sampling_params
from .serving.edge.connection import connect as connect
from .serving.server.from_bundle import serve as serve
from .serving.wire.framing import MessageError as MessageError
from .verifiers.target import TargetVerifier as TargetVerifier

__version__: str
__all__: list[str]
