"""Families of continuous tokens: images of classes, from the latents of an autoencoder.

``mar`` has a random generation order for every row, drawn from the row's key; results are moved to raster order.
``causal_tokens`` draws in raster order. Its chains may stop early (`jaxspec.sampling.ContinuousSampling.stop`); the
remaining steps are then taken for all tokens at once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core import orders
from jaxspec.core.network import Network
from jaxspec.core.state import DecodeResult, SpecParams
from jaxspec.core.token_kinds import CONTINUOUS
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Array, HostArray, Key, Params
from jaxspec.diffusion.schedule import diffusion_tables
from jaxspec.families.classes import class_names, encode_classes
from jaxspec.families.family import Encoded, Family, FamilyParts, check_whole
from jaxspec.families.latents import check_autoencoder, latent_scale
from jaxspec.families.refine import refine_tokens
from jaxspec.models.conditions import ClassLabels, OrderedLabels
from jaxspec.models.mar.mar import unpatchify
from jaxspec.models.tokenizers.kl_vae import LATENT_SCALE, to_uint8
from jaxspec.sampling import ContinuousSampling, nearest_stop


def make_family(target: Network, parts: FamilyParts) -> ContinuousFamily:
  """The family of a network of continuous tokens.

  Args:
    target: loaded checkpoint of the family ``mar`` or ``causal_tokens``.
    parts: ``vae``, an autoencoder; ``classes``, the names of the labels (without them classes are numbers); and
      ``latent_scale``, the factor on the autoencoder's latents (by default MAR's).
  Raises:
    ValueError: if a part is missing or does not fit the target.
  """
  scale = latent_scale(parts, LATENT_SCALE)
  cls = MaskedFamily if target.family_name == "mar" else CausalFamily
  return cls(target, parts.network("vae"), class_names(target, parts), scale)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ContinuousFamily(Family):
  """Common base of masked and causal networks.

  Attributes:
    target: the network that draws tokens.
    vae: the autoencoder, of the family ``kl_vae``.
    classes: names of the labels; () for numbers.
    latent_scale: factor on the autoencoder's latents.
  """

  condition_type = ClassLabels
  fit_fields = ("num_tokens", "latent_channels", "patch_size", "num_classes")

  target: Network
  vae: Network
  classes: tuple[str, ...] = ()
  latent_scale: float = LATENT_SCALE

  def __post_init__(self):
    check_autoencoder(self.target, self.vae, "autoencoder")

  @functools.cached_property
  def space(self) -> TokenSpace:
    config = self.target.config
    return TokenSpace(CONTINUOUS, num_tokens=config.num_tokens, grid=(config.grid, config.grid))

  def resolve_sampling(self, trained: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """See `Family.resolve_sampling`. ``stop`` follows ``steps``, so that tokens have the noise level of training."""
    fields = {**trained, **given}
    if "steps" in given and "stop" not in given and trained.get("stop") is not None:
      if diffusion_tables(str(given["steps"])).num_steps > 1:
        fields["stop"] = nearest_stop(given["steps"], trained.get("steps", 100), trained["stop"])
    return fields

  def matmul_precision(self, dtype: str) -> str:
    """Products in float32 unless the networks are in bfloat16: the acceptance ratio compares their densities."""
    return dtype

  def encode(self, prompts: Any, captions: Sequence[str] | None = None) -> Encoded:
    """`ClassLabels` of class names or class numbers (`jaxspec.families.classes.encode_classes`)."""
    return encode_classes(prompts, self.classes, self.target.config.num_classes, captions)

  def finish(
    self, result: DecodeResult, condition: Any, keys: Key, params: SpecParams, sampling: ContinuousSampling
  ) -> DecodeResult:
    """Pads every row with zeros to all positions."""
    missing = self.target.config.num_tokens - result.tokens.shape[1]
    fill = lambda values: jnp.pad(values, ((0, 0), (0, missing), *((0, 0),) * (values.ndim - 2)))
    return each_token(fill, result)

  def decode(
    self, tokens: HostArray, *, lengths=None, condition=None, sampling: ContinuousSampling | None = None
  ) -> np.ndarray:
    """Images ``[B, H, W, 3]`` uint8 of raster-ordered ``tokens [B, L, C]``.

    Args:
      sampling: the settings of the decode; without them tokens are clean.
    Raises:
      ValueError: if an image does not have all of its tokens.
    """
    del condition
    check_whole(tokens, lengths, self.target.config.num_tokens)
    signal = 1.0 if sampling is None else sampling.signal()
    scale, patch_size = np.float32(self.latent_scale * signal), self.target.config.patch_size
    return np.asarray(_pixels(self.vae.params, tokens, scale, patch_size=patch_size, decode_fn=self.vae.fns.decode))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MaskedFamily(ContinuousFamily):
  """MAR, with a random generation order for every row, from the row's key."""

  def prepare(self, keys: Key, condition: ClassLabels | OrderedLabels) -> OrderedLabels:
    if isinstance(condition, OrderedLabels):
      return condition
    return OrderedLabels(condition.labels, orders.random_order(keys, self.target.config.num_tokens))

  def finish(
    self, result: DecodeResult, condition: OrderedLabels, keys: Key, params: SpecParams, sampling: ContinuousSampling
  ) -> DecodeResult:
    """In raster order.

    Raises:
      ValueError: for ``sampling.is_refined``, which needs a causal network.
    """
    if sampling.is_refined:
      raise ValueError("Must have a causal network to refine, we instead got a masked one (mar)")
    result = super().finish(result, condition, keys, params, sampling)
    return each_token(lambda values: orders.to_raster(values, condition.order), result)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CausalFamily(ContinuousFamily):
  """Causal networks in raster order, with the optional refinement of tokens."""

  def finish(
    self, result: DecodeResult, condition: ClassLabels, keys: Key, params: SpecParams, sampling: ContinuousSampling
  ) -> DecodeResult:
    """With ``sampling.is_refined``, clean tokens by the remaining steps.

    Raises:
      ValueError: if rows to refine are incomplete images.
    """
    drawn, num_tokens = result.tokens.shape[1], self.target.config.num_tokens
    result = super().finish(result, condition, keys, params, sampling)
    if not sampling.is_refined:
      return result
    if drawn != num_tokens:
      raise ValueError(f"Must have all {num_tokens} tokens of an image to refine them, we instead got {drawn}")
    weights: Params = params.target.model.model if sampling.is_guided else params.target.model
    tokens = refine_tokens(self.target.fns, weights, keys, result.tokens, condition, sampling=sampling)
    return result._replace(tokens=tokens)


def each_token(function: Callable[[Array], Array], result: DecodeResult) -> DecodeResult:
  """Applies a function of values ``[B, N, ...]`` to all fields of a result with one entry per token."""
  names = ("tokens", "accepted_mask", "origin", "commit_round", "metrics")
  changed = {name: jax.tree.map(function, getattr(result, name)) for name in names}
  return result._replace(**changed)


@functools.partial(jax.jit, static_argnames=("patch_size", "decode_fn"))
def _pixels(params: Params, tokens: Array, scale: Array, *, patch_size: int, decode_fn: Callable) -> Array:
  return to_uint8(decode_fn(params, unpatchify(tokens, patch_size) / scale))
