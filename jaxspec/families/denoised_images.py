"""Families of denoising steps: images of classes, one denoising chain per image (DiT)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.network import Network
from jaxspec.core.token_axes import at_position
from jaxspec.core.token_kinds import DENOISING_STEPS
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Array, HostArray, Params
from jaxspec.families.classes import class_names, encode_classes
from jaxspec.families.family import Encoded, Family, FamilyParts
from jaxspec.families.latents import check_autoencoder, latent_scale
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.dit.dit import to_latents
from jaxspec.models.tokenizers.kl_vae import SD_LATENT_SCALE
from jaxspec.models.tokenizers.tokenizer_fns import to_uint8
from jaxspec.sampling import DenoisingSampling


def make_family(target: Network, parts: FamilyParts) -> DenoisingFamily:
  """The family of a network of denoising steps.

  Args:
    target: loaded checkpoint of the family ``dit``.
    parts: ``tokenizer``, the autoencoder, of the family ``kl_vae``; ``classes``, the names of the labels (without them
      classes are numbers); and ``latent_scale``, the factor on the autoencoder's latents (by default Stable Diffusion's).
  Raises:
    ValueError: if a part is missing or does not fit the target.
  """
  scale = latent_scale(parts, SD_LATENT_SCALE)
  return DenoisingFamily(target, parts.network("tokenizer"), class_names(target, parts), scale)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DenoisingFamily(Family):
  """Images of classes; a token is the noisy latent image after one denoising step.

  Attributes:
    target: the network that denoises.
    tokenizer: the autoencoder, of the family ``kl_vae``.
    classes: names of the labels; () for numbers.
    latent_scale: factor on the autoencoder's latents.
  Raises:
    ValueError: for an autoencoder that does not fit the target.
  """

  condition_type = ClassLabels
  fit_fields = ("latent_size", "latent_channels", "num_classes", "schedule")

  target: Network
  tokenizer: Network
  classes: tuple[str, ...] = ()
  latent_scale: float = SD_LATENT_SCALE

  def __post_init__(self):
    check_autoencoder(self.target, self.tokenizer, "tokenizer")

  @functools.cached_property
  def space(self) -> TokenSpace:
    """The number of steps of a chain depends on the settings."""
    return TokenSpace(DENOISING_STEPS)

  def row_tokens(self, sampling: DenoisingSampling) -> int:
    """Steps of a chain."""
    return sampling.row_tokens(self.network(self.target, "target"))

  def published_sampling(self) -> dict[str, Any]:
    """Settings of the authors' figures: 250 steps, cfg 1.5."""
    return {"steps": 250, "cfg_scale": 1.5}

  def matmul_precision(self, dtype: str) -> str:
    """Products in float32 unless the networks are in bfloat16: the acceptance ratio compares densities over thousands of
    numbers."""
    return dtype

  def encode(self, prompts: Any, captions: Sequence[str] | None = None) -> Encoded:
    """`ClassLabels` of class names or class numbers (`jaxspec.families.classes.encode_classes`)."""
    return encode_classes(prompts, self.classes, self.target.config.num_classes, captions)

  def decode(self, tokens: HostArray, *, lengths=None, condition=None, sampling=None) -> np.ndarray:
    """Images ``[B, S, S, 3]`` uint8 from the last latents of chains ``[B, N, C]``; incomplete chains give noisy images.

    Args:
      lengths: ``[B]``, valid steps of each chain; all by default.
    """
    del condition, sampling
    tokens = jnp.asarray(tokens)
    last = jnp.full(tokens.shape[:1], tokens.shape[1]) if lengths is None else jnp.asarray(lengths)
    latents = to_latents(at_position(tokens, last - 1), self.target.config)
    scale = np.float32(self.latent_scale)
    return np.asarray(_pixels(self.tokenizer.params, latents, scale, decode_fn=self.tokenizer.fns.decode))


@functools.partial(jax.jit, static_argnames=("decode_fn",))
def _pixels(params: Params, latents: Array, scale: Array, *, decode_fn: Callable) -> Array:
  return to_uint8(decode_fn(params, latents / scale))
