"""The stored VAR networks and tokenizer, through the conversion, and their arrays."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np

from conversion import engine, var, var_vae
from jaxspec.core.network import Network
from jaxspec.io import checkpoints

GOLDEN = Path(__file__).parents[1] / "golden" / "var"
SIDES = (1, 2, 3, 4, 5, 6)
TOLERANCE, IMAGES = 3e-4, 1e-4


@functools.cache
def arrays(stem: str) -> dict[str, np.ndarray]:
  return dict(np.load(GOLDEN / f"{stem}.npz"))


@functools.cache
def load(stem: str) -> Network:
  """The checkpoint converted from an official file."""
  family = var_vae.FAMILY if stem.endswith("_vae") else var.FAMILY
  with tempfile.TemporaryDirectory() as folder:
    engine.convert_file(GOLDEN / f"{stem}.safetensors", Path(folder) / "model", family, {"sides": SIDES})
    return checkpoints.load(Path(folder) / "model")


def channels_last(x: np.ndarray, axis: int = 1) -> np.ndarray:
  return np.moveaxis(x, axis, -1)
