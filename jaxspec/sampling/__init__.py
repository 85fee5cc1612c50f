"""Sampling settings, shared by all methods that are compared.

`SamplingConfig` is for discrete tokens (guidance and logit processing), `ContinuousSampling` for continuous tokens (guidance
and the chain of a diffusion head), `ScaleSampling` for scales, `DenoisingSampling` for denoising steps. Both sides of a
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
# By kind of tokens.
SAMPLING_TYPES: dict[str, type[AnySampling]] = {
  cls.tokens: cls for cls in (SamplingConfig, ContinuousSampling, ScaleSampling, DenoisingSampling)
}
