"""The autoencoder of families of continuous latents, and the scale of its latents."""

from __future__ import annotations

import math

from jaxspec.core.network import Network
from jaxspec.families.family import FamilyParts


def latent_scale(parts: FamilyParts, default: float) -> float:
  """The factor on the autoencoder's latents.

  Raises:
    ValueError: unless it is a positive number.
  """
  scale = parts.value("latent_scale", default)
  is_number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
  if not is_number or not (math.isfinite(scale) and scale > 0):
    raise ValueError(f"Must have a positive number as latent_scale of {parts.owner}, we instead got {scale!r}")
  return float(scale)


def check_autoencoder(target: Network, vae: Network, part: str) -> None:
  """Raises a ValueError unless ``part`` is an autoencoder with the target's latents."""
  if vae.family_name != "kl_vae":
    raise ValueError(f"Must have a kl_vae as {part} of {target.path}, {vae.path} holds a {vae.family_name}")
  ours, theirs = target.config.latent_channels, vae.config.latent_channels
  if ours != theirs:
    raise ValueError(f"The {part} {vae.path} does not fit the target: latent_channels {theirs} instead of {ours}")
