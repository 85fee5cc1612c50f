"""A network with its weights, from a checkpoint or from functions, for families, methods and decoders."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax

from jaxspec.core.types import Params


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Network:
  """Pure functions with their weights, config and provenance.

  Attributes:
    fns: `jaxspec.core.types.ModelFns`, or `jaxspec.models.continuous_fns.HeadFns` for continuous tokens.
    params: the weights, or their shapes (`jaxspec.io.checkpoints.load`).
    config: the frozen config, None for a user-defined network.
    meta: provenance and figures of the checkpoint; ``calibration`` of a CIAR edge network, ``guided`` False for a draft
      trained on guided targets.
    name: name in messages.
    family_name: name of its family (`jaxspec.models.registry`); "" for a user-defined network.
    path: its checkpoint folder; None for a user-defined network.
  """

  fns: Any
  params: Params = dataclasses.field(repr=False)
  config: Any = None
  meta: dict[str, Any] = dataclasses.field(default_factory=dict)
  name: str = "network"
  family_name: str = ""
  path: Path | None = None

  def __repr__(self) -> str:
    config = "" if self.config is None else f", {type(self.config).__name__}"
    number = sum(leaf.size for leaf in jax.tree.leaves(self.params))
    return f"<Network {self.name}{config}, {number:,} parameters>"

  @property
  def folder(self) -> Path:
    """The checkpoint folder, for the files beside the weights.

    Raises:
      ValueError: for a network without a checkpoint.
    """
    if self.path is None:
      raise ValueError(f"Must have a network that was loaded from a folder, we instead got {self}")
    return self.path

  @property
  def has_weights(self) -> bool:
    """Whether it has weights; False if the parameters are shapes."""
    return not any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(self.params))

  @property
  def is_guided(self) -> bool:
    """Whether the network takes classifier-free guidance; False for a draft that learned guided targets."""
    return self.meta.get("guided", True) is not False
