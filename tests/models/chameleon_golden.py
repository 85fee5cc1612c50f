"""The stored Chameleon networks of ``tests/golden/discrete``, through the real conversion."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from conversion import chameleon, chameleon_files, engine
from jaxspec.io import checkpoints
from jaxspec.models.chameleon.chameleon import ChameleonConfig
from tests.conversion.array_tensor import ArrayTensor

FOLDER = Path(__file__).parents[1] / "golden" / "discrete"
# Unused ids of a network with few tokens.
TINY_IDS = dict(num_codes=8, end_image=12, begin_image=13, end_prompt=14, end_row=15, first_size=16)


@functools.cache
def arrays(name: str) -> dict[str, np.ndarray]:
  with np.load(FOLDER / f"{name}.npz") as file:
    return dict(file)


def params_of(tensors: dict[str, np.ndarray], config: ChameleonConfig) -> dict:
  """Parameters of tensors under the hub's names."""
  sources = {name: ArrayTensor(array) for name, array in tensors.items()}
  _, leaves = engine.match(chameleon_files.in_halves(sources, config), chameleon.HUB, vars(config))
  return checkpoints.unflatten({path: np.asarray(leaf) for path, leaf in leaves.items()})


def tiny(kind: str) -> tuple[ChameleonConfig, dict]:
  """Config and parameters of ``chameleon_tiny``: ``pre`` or ``swin``."""
  golden, prefix = arrays("chameleon_tiny"), f"{kind}_w_"
  tensors = {name[len(prefix) :].replace("__", "."): array for name, array in golden.items() if name.startswith(prefix)}
  config = ChameleonConfig(
    vocab_size=96, dim=32, num_layers=3, num_heads=4, num_kv_heads=4, ffn_hidden=64, post_norm=kind == "swin", **TINY_IDS
  )
  return config, params_of(tensors, config)


@functools.cache
def drawing(layout: str, rows: int, columns: int, null_start: str | None = None) -> tuple[ChameleonConfig, dict]:
  """Config and parameters of ``chameleon_gen_tiny``, with the real ids of images."""
  vocab, dim, layers, heads, kv_heads, hidden, swin = arrays("chameleon_gen_tiny")["config"].tolist()
  config = ChameleonConfig(
    vocab, dim, layers, heads, kv_heads, hidden, post_norm=bool(swin), layout=layout, rows=rows, columns=columns,
    null_start=null_start,
  )  # fmt: skip
  return config, params_of(load_file(FOLDER / "chameleon_gen_tiny.safetensors"), config)


def prompts() -> list[list[int]]:
  """Text ids of the stored prompts."""
  return [[id for id in row if id >= 0] for row in arrays("chameleon_gen_tiny")["prompts"].tolist()]
