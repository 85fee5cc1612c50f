"""Families of scales: images of classes, drawn from coarse to fine (VAR)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.network import Network
from jaxspec.core.token_kinds import SCALES
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Array, HostArray, Params
from jaxspec.families.classes import class_names, encode_classes
from jaxspec.families.family import Encoded, Family, FamilyParts
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.tokenizers.tokenizer_fns import to_uint8
from jaxspec.sampling.scale_network import ScaleNetwork, ScaleWeights


def make_family(target: Network, parts: FamilyParts) -> ScaleFamily:
  """The family of a network of scales.

  Args:
    target: loaded checkpoint of the family ``var``.
    parts: ``tokenizer``, of the family ``var_vae``; and ``classes``, the names of the labels (without them classes are
      numbers).
  Raises:
    ValueError: if a part is missing or does not fit the target.
  """
  return ScaleFamily(target, parts.network("tokenizer"), class_names(target, parts))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ScaleFamily(Family):
  """Images of classes as scales of growing resolution; a token is a scale.

  Attributes:
    target: the network that draws scales.
    tokenizer: sums and decodes scales, of the family ``var_vae``.
    classes: names of the labels; () for numbers.
  Raises:
    ValueError: for a tokenizer that does not fit the target.
  """

  condition_type = ClassLabels
  fit_fields = ("sides", "vocab_size", "code_dim", "num_classes")

  target: Network
  tokenizer: Network
  classes: tuple[str, ...] = ()

  def __post_init__(self):
    where, config = self.tokenizer.path, self.tokenizer.config
    if (name := self.tokenizer.family_name) != "var_vae":
      raise ValueError(f"Must have a var_vae as tokenizer of {self.target.path}, {where} holds a {name}")
    for theirs, ours in (("sides", "sides"), ("codebook_size", "vocab_size"), ("codebook_dim", "code_dim")):
      found, wanted = getattr(config, theirs), getattr(self.target.config, ours)
      if found != wanted:
        raise ValueError(f"The tokenizer {where} does not fit the target: {theirs} {found} instead of {wanted}")

  @functools.cached_property
  def space(self) -> TokenSpace:
    config = self.target.config
    return TokenSpace(SCALES, vocab_size=config.vocab_size, num_tokens=len(config.sides))

  def published_sampling(self) -> dict[str, Any]:
    """Settings of the authors' figures: cfg 1.5 (here 2.5), top-k 900, top-p 0.96."""
    return {"cfg_scale": 2.5, "top_k": 900, "top_p": 0.96}

  def matmul_precision(self, dtype: str) -> str:
    """Products in float32 unless the networks are in bfloat16: the acceptance ratio of a scale is a product over its
    positions."""
    return dtype

  def network(self, loaded: Network, name: str) -> Network:
    """A loaded target or draft with their common tokenizer."""
    fns = ScaleNetwork(loaded.fns, self.tokenizer.fns)
    weights = ScaleWeights(loaded.params, self.tokenizer.params)
    return dataclasses.replace(loaded, fns=fns, params=weights, name=name)

  def encode(self, prompts: Any, captions: Sequence[str] | None = None) -> Encoded:
    """`ClassLabels` of class names or class numbers (`jaxspec.families.classes.encode_classes`)."""
    return encode_classes(prompts, self.classes, self.target.config.num_classes, captions)

  def decode(self, tokens: HostArray, *, lengths=None, condition=None, sampling=None) -> np.ndarray:
    """Images ``[B, S, S, 3]`` uint8 from scales ``[B, N, C]``; the first scales alone give coarse images.

    Args:
      lengths: ``[B]``, valid scales of each row; all by default.
    """
    del condition, sampling
    tokens = jnp.asarray(tokens)
    lengths = jnp.full(tokens.shape[:1], tokens.shape[1]) if lengths is None else jnp.asarray(lengths)
    fns = self.tokenizer.fns
    value, decode = fns.value, fns.decode_latent
    return np.asarray(_pixels(self.tokenizer.params, tokens, lengths, sides=fns.sides, value_fn=value, decode_fn=decode))


@functools.partial(jax.jit, static_argnames=("sides", "value_fn", "decode_fn"))
def _pixels(
  params: Params, tokens: Array, lengths: Array, *, sides: tuple[int, ...], value_fn: Callable, decode_fn: Callable
) -> Array:
  total = jnp.float32(0.0)
  for scale in range(tokens.shape[1]):
    value = value_fn(params, jnp.maximum(tokens[:, scale, : sides[scale] ** 2], 0), scale)
    total = total + jnp.where((scale < lengths)[:, None, None, None], value, 0.0)
  return to_uint8(decode_fn(params, total))
