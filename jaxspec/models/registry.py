"""Families of networks by name: what a checkpoint's config says, and how to build its functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxspec.models.caption_encoder import CaptionEncoderConfig, caption_encoder_fns
from jaxspec.models.causal_tokens import CausalTokensConfig, causal_token_fns
from jaxspec.models.eagle import EagleConfig, eagle_fns
from jaxspec.models.gpt_neo import GPTNeoConfig, gpt_neo_fns
from jaxspec.models.inter_head import InterHeadConfig, inter_head_fns
from jaxspec.models.kl_vae import KLVAEConfig, kl_vae_fns
from jaxspec.models.llama import LlamaConfig, llama_fns
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.models.llamagen_vq import LlamaGenVQConfig, llamagen_vq_fns
from jaxspec.models.mar import MARConfig, mar_fns
from jaxspec.models.patch_vq import PatchVQConfig, patch_vq_fns
from jaxspec.models.picture_classifier import PictureClassifierConfig, picture_classifier_fns
from jaxspec.models.picture_encoder import PictureEncoderConfig, picture_encoder_fns
from jaxspec.models.text_encoder import TextEncoderConfig, text_encoder_fns


class Family(NamedTuple):
  """One architecture: its frozen config class and the function that binds a config to pure functions."""

  config_class: type
  make_fns: Callable[[Any], Any]


FAMILIES: dict[str, Family] = {
  "llamagen": Family(LlamaGenConfig, llamagen_fns),
  "eagle": Family(EagleConfig, eagle_fns),
  "inter_head": Family(InterHeadConfig, inter_head_fns),
  "text_encoder": Family(TextEncoderConfig, text_encoder_fns),
  "llamagen_vq": Family(LlamaGenVQConfig, llamagen_vq_fns),
  "patch_vq": Family(PatchVQConfig, patch_vq_fns),
  "picture_encoder": Family(PictureEncoderConfig, picture_encoder_fns),
  "picture_classifier": Family(PictureClassifierConfig, picture_classifier_fns),
  "caption_encoder": Family(CaptionEncoderConfig, caption_encoder_fns),
  "gpt_neo": Family(GPTNeoConfig, gpt_neo_fns),
  "llama": Family(LlamaConfig, llama_fns),
  "mar": Family(MARConfig, mar_fns),
  "causal_tokens": Family(CausalTokensConfig, causal_token_fns),
  "kl_vae": Family(KLVAEConfig, kl_vae_fns),
}

# Networks that continue a `jaxspec.models.conditions.Prompt`.
LANGUAGE_FAMILIES = ("gpt_neo", "llama")


def family_of(config: Any) -> str:
  """Name of the family a config object belongs to."""
  for name, family in FAMILIES.items():
    if type(config) is family.config_class:
      return name
  raise ValueError(f"Must have a config of a known family, we instead got {type(config).__name__}")


def make_config(name: str, fields: dict[str, Any]) -> Any:
  """Config of family ``name`` from plain fields.

  Raises:
    ValueError: for an unknown family or field, naming it.
  """
  if name not in FAMILIES:
    raise ValueError(f"Must have a family in {', '.join(FAMILIES)}, we instead got {name!r}")
  config_class = FAMILIES[name].config_class
  known = {f.name for f in dataclasses.fields(config_class)}
  if unknown := sorted(set(fields) - known):
    raise ValueError(f"Must have fields known to {name}, we instead got {', '.join(unknown)}")
  fields = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
  try:
    return config_class(**fields)
  except (TypeError, ArithmeticError) as error:
    # A damaged file can hold any JSON where a number belongs.
    raise ValueError(f"Must have a config that fits {name}, we instead got {fields}: {error}") from error
