"""The small networks of ``tests/golden/dit``, converted from their official files."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from conversion import dit, dit_vae, engine
from jaxspec.io import checkpoints
from jaxspec.models import registry
from jaxspec.models.dit.dit import DiTConfig, to_latents, to_states

GOLDEN = Path(__file__).parents[1] / "golden" / "dit"
# Fields that are not in the files.
HEADS, GROUPS = {"num_heads": 4}, {"num_groups": 16}


class Loaded(NamedTuple):
  """A network with the stored arrays of the official one."""

  config: Any
  params: Any
  fns: Any
  arrays: dict[str, np.ndarray]


def _load(stem: str, family: engine.Family, fields: dict[str, Any]) -> Loaded:
  config, leaves = engine.convert(engine.read_source(GOLDEN / f"{stem}.safetensors"), family, fields)
  fns = registry.FAMILIES[family.name].make_fns(config)
  return Loaded(config, checkpoints.unflatten(leaves), fns, dict(np.load(GOLDEN / f"{stem}.npz")))


@functools.cache
def network() -> Loaded:
  return _load("dit", dit.FAMILY, HEADS)


@functools.cache
def autoencoder() -> Loaded:
  return _load("vae", dit_vae.FAMILY, GROUPS)


def states(images: np.ndarray) -> np.ndarray:
  """States ``[..., C]`` of latents ``[..., c, h, w]``."""
  return to_states(np.moveaxis(images, -3, -1))


def images(states: Any, config: DiTConfig) -> np.ndarray:
  """Inverse of `states`."""
  return np.moveaxis(to_latents(np.asarray(states), config), -1, -3)
