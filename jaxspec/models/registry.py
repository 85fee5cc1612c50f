"""Families of networks by name: their configs, functions, and results.

A new family is its model file and one entry of `FAMILIES`; `register` adds one of another package. The spec of a family
that generates also names the function that makes a `jaxspec.families.family.Family` of a loaded target, the interface for
`jaxspec.load_pipeline`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxspec.core.plugins import Registry
from jaxspec.models.chameleon import chameleon_drawing  # noqa: F401, declares its trunk
from jaxspec.models.chameleon.chameleon import ChameleonConfig, chameleon_fns
from jaxspec.models.dit.dit import DiTConfig, dit_fns
from jaxspec.models.heads.block_head import BlockHeadConfig, block_head_fns
from jaxspec.models.heads.eagle_head import EagleConfig, eagle_fns
from jaxspec.models.heads.inter_head import InterHeadConfig, inter_head_fns
from jaxspec.models.heads.spatial_heads import SpatialConfig, spatial_fns
from jaxspec.models.janus import JanusConfig, janus_fns
from jaxspec.models.language.emu3 import Emu3Config, emu3_fns
from jaxspec.models.language.gpt_neo import GPTNeoConfig, gpt_neo_fns
from jaxspec.models.language.llama import LlamaConfig, llama_fns
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.models.mar.causal_tokens import CausalTokensConfig, causal_token_fns
from jaxspec.models.mar.mar import MARConfig, mar_fns
from jaxspec.models.nn.config_checks import config_of
from jaxspec.models.text_encoders.t5 import T5Config, t5_fns
from jaxspec.models.text_encoders.text_encoder import TextEncoderConfig, text_encoder_fns
from jaxspec.models.tokenizers.chameleon_vq import ChameleonVQConfig, chameleon_vq_fns
from jaxspec.models.tokenizers.emu3_vq import Emu3VQConfig, emu3_vq_fns
from jaxspec.models.tokenizers.kl_vae import KLVAEConfig, kl_vae_fns
from jaxspec.models.tokenizers.llamagen_vq import LlamaGenVQConfig, llamagen_vq_fns
from jaxspec.models.tokenizers.patch_vq import PatchVQConfig, patch_vq_fns
from jaxspec.models.tokenizers.var_vae import VARVAEConfig, var_vae_fns
from jaxspec.models.var.var import VARConfig, var_fns


class FamilySpec(NamedTuple):
  """The specification of a family: how its networks are built.

  Attributes:
    config_class: its frozen config class.
    make_fns: binds a config to pure functions.
    make_family: ``(target, parts) -> jaxspec.families.family.Family``, or ``"module:function"`` for a function imported on
      demand; None for networks that do not generate alone. ``target`` is a loaded `jaxspec.Network` and ``parts`` a
      `jaxspec.families.family.FamilyParts`.
    head_of: for a head that reads the features of its target: the config that fits a target's config.
  """

  config_class: type
  make_fns: Callable[[Any], Any]
  make_family: str | Callable[[Any, Any], Any] | None = None
  head_of: Callable[[Any], Any] | None = None


_ROOMS = (
  "token_images", "texts", "continuous_images", "chameleon_images", "emu3_images", "janus_images", "scale_images",
  "denoised_images",
)  # fmt: skip
_IMAGES, _TEXT, _VECTORS, _CHAMELEON, _EMU3, _JANUS, _MAPS, _STATES = (
  f"jaxspec.families.{name}:make_family" for name in _ROOMS
)


def _check(name: str, spec: FamilySpec, families: Mapping[str, FamilySpec]) -> None:
  if taken := [known for known, other in families.items() if other.config_class is spec.config_class]:
    raise ValueError(f"Must have a config class of its own for {name}, {spec.config_class.__name__} is that of {taken[0]}")


FAMILIES: Registry[FamilySpec] = Registry(
  "family",
  {
    "llamagen": FamilySpec(LlamaGenConfig, llamagen_fns, _IMAGES),
    "eagle": FamilySpec(EagleConfig, eagle_fns, head_of=EagleConfig.of),
    "block_head": FamilySpec(BlockHeadConfig, block_head_fns, head_of=BlockHeadConfig.of),
    "spatial": FamilySpec(SpatialConfig, spatial_fns, head_of=SpatialConfig.of),
    "inter_head": FamilySpec(InterHeadConfig, inter_head_fns),
    "text_encoder": FamilySpec(TextEncoderConfig, text_encoder_fns),
    "t5": FamilySpec(T5Config, t5_fns),
    "llamagen_vq": FamilySpec(LlamaGenVQConfig, llamagen_vq_fns),
    "patch_vq": FamilySpec(PatchVQConfig, patch_vq_fns),
    "gpt_neo": FamilySpec(GPTNeoConfig, gpt_neo_fns, _TEXT),
    "llama": FamilySpec(LlamaConfig, llama_fns, _TEXT),
    "chameleon": FamilySpec(ChameleonConfig, chameleon_fns, _CHAMELEON),
    "chameleon_vq": FamilySpec(ChameleonVQConfig, chameleon_vq_fns),
    "emu3": FamilySpec(Emu3Config, emu3_fns, _EMU3),
    "emu3_vq": FamilySpec(Emu3VQConfig, emu3_vq_fns),
    "janus": FamilySpec(JanusConfig, janus_fns, _JANUS),
    "mar": FamilySpec(MARConfig, mar_fns, _VECTORS),
    "causal_tokens": FamilySpec(CausalTokensConfig, causal_token_fns, _VECTORS),
    "dit": FamilySpec(DiTConfig, dit_fns, _STATES),
    "kl_vae": FamilySpec(KLVAEConfig, kl_vae_fns),
    "var": FamilySpec(VARConfig, var_fns, _MAPS),
    "var_vae": FamilySpec(VARVAEConfig, var_vae_fns),
  },
  _check,
)


def register(name: str, spec: FamilySpec) -> None:
  """Adds a user-defined family to `FAMILIES` until the process ends.

  A family that heads are put on is also declared by `jaxspec.models.trunk.declare`.

  Raises:
    ValueError: if the name or the config class belongs to another family.
  """
  FAMILIES.add(name, spec)


def generating() -> tuple[str, ...]:
  """Names of the families whose networks generate alone."""
  return tuple(name for name, spec in FAMILIES.items() if spec.make_family is not None)


def family_maker(name: str) -> Callable[[Any, Any], Any]:
  """``(target, parts) -> Family`` of the family ``name``.

  Raises:
    ValueError: for a family that does not generate alone.
  """
  maker = FAMILIES[name].make_family
  if maker is None:
    raise ValueError(f"Must have a network that generates ({', '.join(generating())}), we instead got a {name}")
  if isinstance(maker, str):
    module, _, function = maker.partition(":")
    return getattr(importlib.import_module(module), function)
  return maker


def family_name(config: Any) -> str:
  """Name of the family that a config object belongs to."""
  for name, spec in FAMILIES.items():
    if type(config) is spec.config_class:
      return name
  raise ValueError(f"Must have a config of a known family, we instead got {type(config).__name__}")


def make_config(name: str, fields: dict[str, Any]) -> Any:
  """Config of family ``name`` from plain fields.

  Raises:
    ValueError: for an unknown family or field, naming it.
  """
  if name not in FAMILIES:
    raise ValueError(f"Must have a family in {', '.join(FAMILIES)}, we instead got {name!r}")
  return config_of(FAMILIES[name].config_class, name, fields)
