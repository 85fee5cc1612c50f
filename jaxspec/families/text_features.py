"""Precomputed features of a text encoder: ``features [B, P, C]`` and a right-padded ``mask [B, P]``.

They are given as arrays, or as a file (npz or safetensors) of two arrays with these names. Files of `write_features` also
have ``captions [B]``.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError

from jaxspec.io.stored_files import check_readable
from jaxspec.models.conditions import Caption, left_pad


def read_features(source: str | os.PathLike | Mapping[str, np.ndarray], *, prefix_len: int, width: int) -> Caption:
  """Reads and left-pads features.

  Args:
    source: a file, or a dict with ``features`` and ``mask``.
    prefix_len: positions ``P`` of the model's prompt.
    width: channels ``C`` of the model's prompt.
  Returns:
    `Caption` with numpy leaves.
  Raises:
    ValueError: for a missing or corrupt file, wrong shapes, or a mask that is not right padded.
  """
  if isinstance(source, Mapping):
    where, arrays = "the features", {name: _as_numpy(array) for name, array in source.items()}
  else:
    where, arrays = str(source), _read_arrays(Path(source))
  if missing := {"features", "mask"} - arrays.keys():
    raise ValueError(f"Must have arrays 'features' and 'mask' in {where}, {' and '.join(sorted(missing))} is missing")
  features, mask = arrays["features"], arrays["mask"]
  if features.ndim != 3 or features.shape[1:] != (prefix_len, width) or not len(features):
    raise ValueError(f"Must have features [B, {prefix_len}, {width}] in {where}, we instead got {list(features.shape)}")
  if mask.shape != features.shape[:2]:
    raise ValueError(f"Must have a mask {list(features.shape[:2])} in {where}, we instead got {list(mask.shape)}")
  try:
    features = features.astype(np.float32)
  except (TypeError, ValueError) as error:
    raise ValueError(f"Must have numbers as features in {where}, we instead got {features.dtype}") from error
  if not np.isfinite(features).all():
    raise ValueError(f"Must have finite features in {where}, some are nan or infinite")
  mask = mask.astype(bool)
  if not mask[:, 0].all() or (mask[:, 1:] & ~mask[:, :-1]).any():
    raise ValueError(f"Must have a right-padded mask in {where}: True first, then False, at least one True in each row")
  return jax.device_get(jax.jit(left_pad)(features, mask))


def _as_numpy(array: Any) -> np.ndarray:
  """An array of NumPy, JAX or PyTorch; NumPy cannot convert PyTorch's bfloat16, nor tensors with a gradient or on a GPU."""
  if hasattr(array, "detach"):
    array = array.detach().cpu()
    array = array.float() if array.is_floating_point() else array
  return np.asarray(array)


def read_captions(source: str | os.PathLike | Mapping[str, np.ndarray]) -> list[str] | None:
  """The captions of a source of `read_features`; None if it has none."""
  if isinstance(source, Mapping):
    found = source.get("captions")
  elif Path(source).suffix == ".npz":
    with np.load(source, allow_pickle=False) as archive:
      found = archive["captions"] if "captions" in archive.files else None
  else:
    found = None
  return None if found is None else [str(text) for text in found]


def write_features(path: str | os.PathLike, condition: Caption, captions: Sequence[str]) -> None:
  """Writes a file (.npz) from which `read_features` makes the same condition without the encoder.

  Args:
    condition: left padded, as encoders return it.
    captions: one text per row.
  Raises:
    OSError: if the file cannot be written.
  """
  order = np.argsort(~np.asarray(condition.mask), axis=1, kind="stable")  # tokens first, in their order
  features = np.take_along_axis(np.asarray(condition.features), order[..., None], axis=1)
  mask = np.take_along_axis(np.asarray(condition.mask), order, axis=1)
  with open(path, "wb") as file:
    np.savez(file, features=features, mask=mask, captions=np.asarray(captions, dtype=str))


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
  if not path.is_file():
    raise ValueError(f"No features file at {path}")
  if path.suffix not in (".npz", ".safetensors"):
    raise ValueError(f"Must have features in a .npz or .safetensors file, we instead got {path.name!r}")
  check_readable(path)
  try:
    if path.suffix == ".npz":
      with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
    from safetensors.flax import load_file  # reads bfloat16 too

    return {name: np.asarray(array) for name, array in load_file(path).items()}
  except (SafetensorError, OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
    raise ValueError(f"Corrupt features file {path}: {error}") from error
