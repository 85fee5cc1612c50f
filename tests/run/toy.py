"""A user-defined family for tests: Markov chains over a few ids, with numbers as prompts and colours as images.

It has all parts of a new family: a config, its functions, a family, and one line in the registry.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import ModelFns, ModelOutput
from jaxspec.families.family import Encoded, Family, FamilyParts, check_captions
from jaxspec.io import checkpoints
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.registry import FamilySpec


@dataclasses.dataclass(frozen=True)
class ToyConfig:
  """A chain of ``num_tokens`` ids below ``vocab_size``."""

  vocab_size: int = 3
  num_tokens: int = 4


@functools.cache
def toy_fns(config: ToyConfig) -> ModelFns:
  """Token 0 depends on the label, every other token on the one before it; parameters ``{"table": [V, V]}``."""

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    ids = inputs.labels[:, None] if isinstance(inputs, ClassLabels) else inputs
    logits = params["table"][ids]
    if logits_at is not None:
      logits = jnp.take_along_axis(logits, jnp.broadcast_to(logits_at[:, None, None], (len(ids), 1, 1)), axis=1)
    return ModelOutput(logits, logits), cache

  return ModelFns(
    init=lambda key: {"table": jax.random.normal(key, (config.vocab_size, config.vocab_size))},
    init_cache=lambda batch, max_len: (),
    apply=apply,
    prefix_len=lambda condition: 1,
    compact=lambda cache, slot, path: cache,
  )


@dataclasses.dataclass(frozen=True, eq=False)
class ToyFamily(Family):
  """A prompt is a number; ids are colours of a palette, one pixel each."""

  condition_type = ClassLabels
  fit_fields = ("vocab_size", "num_tokens")

  target: Network
  palette: np.ndarray  # [V, 3] uint8

  @functools.cached_property
  def space(self):
    return TokenSpace(vocab_size=self.target.config.vocab_size, num_tokens=self.target.config.num_tokens)

  def encode(self, prompts, captions=None):
    default = [f"after {number}" for number in prompts]
    return Encoded(ClassLabels(np.asarray(prompts, np.int32)), check_captions(captions, default, "prompts"))

  def decode(self, tokens, *, lengths=None, condition=None, sampling=None):
    return self.palette[np.asarray(tokens)][:, None]


def make_toy(target: Network, parts: FamilyParts) -> ToyFamily:
  """The family, with its part ``palette``."""
  return ToyFamily(target, np.asarray(parts.value("palette"), np.uint8))


FAMILY = FamilySpec(ToyConfig, toy_fns, make_toy)
PALETTE = [[0, 0, 0], [255, 0, 0], [0, 0, 255]]


def save(path: Path, table: np.ndarray, **meta) -> Path:
  """Writes a checkpoint; the family must be registered."""
  checkpoints.save(path, ToyConfig(), {"table": jnp.asarray(table, jnp.float32)}, meta=meta)
  return path
