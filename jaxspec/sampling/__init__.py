"""How tokens are drawn: the settings that every method to be compared shares.

`SamplingConfig` is for ids (guidance and logit processing), `ContinuousSampling` for vectors (guidance and the chain of a
diffusion head), `ScaleSampling` for maps of ids, `DenoisingSampling` for the states of one image's chain. Both sides of a
decode get the same settings: the target's processed distribution is the one that exact methods reproduce.
"""

from __future__ import annotations

from jaxspec.sampling.continuous import ContinuousSampling, head_fns, nearest_stop
from jaxspec.sampling.denoising import DenoisingSampling
from jaxspec.sampling.discrete import SamplingConfig
from jaxspec.sampling.scales import ScaleSampling

__all__ = [
  "SAMPLING_TYPES",
  "AnySampling",
  "ScaleSampling",
  "SamplingConfig",
  "DenoisingSampling",
  "ContinuousSampling",
  "head_fns",
  "nearest_stop",
]

AnySampling = SamplingConfig | ContinuousSampling | ScaleSampling | DenoisingSampling
# By the kind of tokens that they are about.
SAMPLING_TYPES: dict[str, type[AnySampling]] = {
  cls.tokens: cls for cls in (SamplingConfig, ContinuousSampling, ScaleSampling, DenoisingSampling)
}
