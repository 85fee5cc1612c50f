"""Decodes of published networks with random weights, made on the device.

The cost of a round does not depend on the weights. Its committed tokens do, so acceptance is imposed
(`jaxspec.verifiers.imposed`).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Array, PyTree
from jaxspec.methods.method import DISCRETE, Method
from jaxspec.planning.parts import ANY_THRESHOLD, draft_of
from jaxspec.planning.published_models import Model
from jaxspec.planning.sizes import Sized
from jaxspec.run.decoder import Decoder
from jaxspec.sampling import SamplingConfig
from jaxspec.verifiers.imposed import Imposed

_DEVIATION = 0.02


def filled(shapes: PyTree, seed: int) -> PyTree:
  """Arrays of the shapes: matrices normal with deviation 0.02, floating vectors ones, integers 0, flags true."""
  leaves, treedef = jax.tree.flatten(shapes)

  @jax.jit
  def made(key):
    return [_filled(leaf, key) for leaf, key in zip(leaves, jax.random.split(key, max(len(leaves), 1)))]

  return jax.tree.unflatten(treedef, made(jax.random.key(seed)))


def _filled(leaf: jax.ShapeDtypeStruct, key: jax.Array) -> Array:
  if not jnp.issubdtype(leaf.dtype, jnp.floating):
    return jnp.full(leaf.shape, leaf.dtype == jnp.bool_, leaf.dtype)
  if len(leaf.shape) < 2:
    return jnp.ones(leaf.shape, leaf.dtype)
  return _DEVIATION * jax.random.normal(key, leaf.shape, leaf.dtype)


def with_weights(network: Sized, seed: int) -> Network:
  """A network of shapes with random weights, without a calibrated threshold."""
  return dataclasses.replace(network.drawing, params=filled(network.drawing.params, seed), meta={})


class RandomModel:
  """A model of discrete tokens with random weights, and drafts for its methods; each is made at its first use.

  Args:
    model: a published network, or that of a checkpoint folder (`jaxspec.planning.find_model`).
    dtype: of weights and arithmetic.
    draft: the draft network; None: the published one, or the first layers of the model.
  Raises:
    ValueError: for a model of continuous tokens.
  """

  def __init__(self, model: Model, dtype: str, draft: Model | None = None):
    if model.vocab_size is None:
      raise ValueError(f"Must have a model of token ids to impose acceptance, we instead got {model.name}")
    self.model, self.dtype = model, dtype
    self.named_draft, self._drafts = draft, {}

  @functools.cached_property
  def target(self) -> Network:
    """The model."""
    return with_weights(self.model.sized(self.dtype), 0)

  def draft(self, method: Method) -> Network | None:
    """The draft network of a method; None for a method without one.

    Raises:
      ValueError: if none fits.
    """
    family = method.draft_family
    if family is None:
      return None
    if family not in self._drafts:
      self._drafts[family] = with_weights(draft_of(self.model, method, self.named_draft, self.dtype), 1)
    return self._drafts[family]

  @functools.cached_property
  def _tables(self) -> dict[str, Array]:
    """Arrays by which relaxed rules compare tokens."""
    width = getattr(self.model.tokenizer, "codebook_dim", None) or 8
    of = lambda side, seed: filled(jax.ShapeDtypeStruct((self.model.vocab_size, side), jnp.float32), seed)
    return {"codebook": of(width, 2), "embedding": of(getattr(self.model.config, "dim", width), 3)}

  def condition(self, batch: int) -> Any:
    """A condition of ``batch`` rows."""
    return filled(self.model.condition_shapes(batch), 4)

  def decoder(self, method: Method, sampling: SamplingConfig, imposed: Imposed | float | None = None) -> Decoder:
    """The decoder of a method.

    Args:
      imposed: acceptance of drafts and calls, see `jaxspec.run.decoder.Decoder`; None: by the rule.
    Raises:
      ValueError: if the method does not draw discrete tokens, or a draft does not fit.
    """
    model = self.model
    if not method.fits(DISCRETE):
      raise ValueError(f"Must have a method that draws {DISCRETE} tokens for {model.name}, we instead got {method.name}")
    draft = self.draft(method)  # before the weights of the model, so that a draft that does not fit fails early
    if draft is not None and isinstance(imposed, Imposed) and imposed.imposes_calls:
      draft = dataclasses.replace(draft, meta=ANY_THRESHOLD)  # no threshold decides
    space = TokenSpace(
      vocab_size=model.vocab_size,
      num_tokens=model.num_tokens,
      grid=model.grid,
      codebook=None if model.grid is None else lambda: self._tables["codebook"],
      embedding=lambda: self._tables["embedding"],
    )
    return Decoder(self.target, method, draft=draft, sampling=sampling, space=space, imposed=imposed)
