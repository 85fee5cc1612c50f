"""How tokens are drawn: the settings that every method to be compared shares.

`SamplingConfig` is for ids (guidance and logit processing), `VectorSampling` for vectors (guidance and the chain of a
diffusion head), `MapSampling` for maps of ids, `StateSampling` for the states of one image's chain. Both sides of a decode
get the same settings: the target's processed distribution is the one that exact methods reproduce.
"""

from __future__ import annotations

from jaxspec.sampling.ids import SamplingConfig
from jaxspec.sampling.maps import MapSampling
from jaxspec.sampling.states import StateSampling
from jaxspec.sampling.vectors import VectorSampling, head_fns, nearest_stop

__all__ = [
  "SAMPLING_TYPES",
  "AnySampling",
  "MapSampling",
  "SamplingConfig",
  "StateSampling",
  "VectorSampling",
  "head_fns",
  "nearest_stop",
]

AnySampling = SamplingConfig | VectorSampling | MapSampling | StateSampling
# By the kind of tokens that they are about.
SAMPLING_TYPES: dict[str, type[AnySampling]] = {
  cls.tokens: cls for cls in (SamplingConfig, VectorSampling, MapSampling, StateSampling)
}
