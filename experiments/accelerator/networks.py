"""Random networks of published sizes, made on the device: a target and a draft of every family that a method wants."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxspec.methods import METHODS, SAME_FAMILY, Method
from jaxspec.methods.base import IDS
from jaxspec.models.eagle import EagleConfig
from jaxspec.models.inter_head import InterHeadConfig
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.models.registry import FAMILIES, family_of
from jaxspec.network import Network
from jaxspec.options import options_of

SIZES = ("GPT-B", "GPT-L", "GPT-XL", "GPT-3B")
CLOUD_RATE = 0.3  # of CIAR; the rate is held online, because random networks have no thresholds


def config_of(size: str, rehearse: bool) -> LlamaGenConfig:
  """The class-conditional network of a size, for images of 256 x 256 pixels."""
  if rehearse:
    return LlamaGenConfig(num_layers=2, dim=32, num_heads=2, vocab_size=64, num_tokens=16, num_classes=8, multiple_of=32)
  return LlamaGenConfig.named(size, dtype="bfloat16")


def random_network(config: Any, seed: int, name: str) -> Network:
  """Normal weights of deviation 0.02 and vectors of ones, in the network's dtype; no host memory is used."""
  fns = FAMILIES[family_of(config)].make_fns(config)
  template = jax.eval_shape(fns.init, jax.random.key(0))
  leaves, treedef = jax.tree.flatten(template)
  dtype = jnp.dtype(getattr(config, "dtype", None) or config.trunk.dtype)

  @jax.jit
  def made(key):
    keys = jax.random.split(key, len(leaves))
    draw = lambda leaf, key: (
      0.02 * jax.random.normal(key, leaf.shape, dtype) if leaf.ndim > 1 else jnp.ones(leaf.shape, dtype)
    )
    return [draw(leaf, key) for leaf, key in zip(leaves, keys)]

  return Network(fns, jax.tree.unflatten(treedef, made(jax.random.key(seed))), config, name=name)


class Networks:
  """A target of a size and the drafts that its methods want, each made when it is first asked for."""

  def __init__(self, size: str, rehearse: bool):
    self.config = config_of(size, rehearse)

  @functools.cached_property
  def target(self) -> Network:
    """The target."""
    return random_network(self.config, 0, "target")

  @functools.cache
  def draft(self, family: str) -> Network:
    """A draft: a twelfth of the target's layers, an EAGLE head, or an edge network of two layers."""
    config = self.config
    if family == SAME_FAMILY:
      return random_network(dataclasses.replace(config, num_layers=max(1, config.num_layers // 12)), 1, "small")
    if family == "eagle":
      return random_network(EagleConfig.of(config), 2, "head")
    return random_network(InterHeadConfig(dataclasses.replace(config, num_layers=2)), 3, "edge")

  def method(self, name: str) -> Method:
    """A method with its default options."""
    cls = METHODS[name]
    options = {"cloud_rate": CLOUD_RATE} if "cloud_rate" in options_of(cls) else {}
    return cls(**options) if cls.draft_family is None else cls(draft=self.draft(cls.draft_family), **options)

  @functools.cached_property
  def codebook(self) -> jax.Array:
    """``[V, 8]``, for rules that compare codes."""
    return jax.random.normal(jax.random.key(4), (self.config.vocab_size, 8))


def method_names() -> list[str]:
  """Methods of ids besides plain decoding, exact ones first."""
  found = [name for name, cls in METHODS.items() if cls.fits(IDS) and name != "ar"]
  return sorted(found, key=lambda name: not METHODS[name].exact)
