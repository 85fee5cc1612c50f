"""Files of text-encoder features: ``features [B, P, C]`` and a right-padded ``mask [B, P]``, npz or safetensors."""

from __future__ import annotations

import zipfile
from pathlib import Path

import jax
import numpy as np
from safetensors import SafetensorError

from jaxspec.cli.errors import UserError
from jaxspec.models.conditions import Caption, left_pad


def read_features(path: Path, *, prefix_len: int, width: int) -> Caption:
  """Reads and left-pads features.

  Args:
    prefix_len: positions ``P`` the model takes.
    width: channels ``C`` the model takes.
  Returns:
    `Caption` with numpy leaves.
  Raises:
    UserError: for a missing or corrupt file, wrong shapes, or a mask that is not right padded.
  """
  arrays = _read_arrays(path)
  if missing := {"features", "mask"} - arrays.keys():
    raise UserError(f"Must have arrays 'features' and 'mask' in {path}, {' and '.join(sorted(missing))} is missing")
  features, mask = arrays["features"], arrays["mask"]
  if features.ndim != 3 or features.shape[1:] != (prefix_len, width) or not len(features):
    raise UserError(f"Must have features [B, {prefix_len}, {width}] in {path}, we instead got {list(features.shape)}")
  if mask.shape != features.shape[:2]:
    raise UserError(f"Must have a mask {list(features.shape[:2])} in {path}, we instead got {list(mask.shape)}")
  features = features.astype(np.float32)
  if not np.isfinite(features).all():
    raise UserError(f"Must have finite features in {path}, some are nan or infinite")
  mask = mask.astype(bool)
  if not mask[:, 0].all() or (mask[:, 1:] & ~mask[:, :-1]).any():
    raise UserError(f"Must have a right-padded mask in {path}: True first, then False, at least one True in each row")
  return jax.device_get(jax.jit(left_pad)(features, mask))


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
  if not path.is_file():
    raise UserError(f"No features file at {path}")
  if path.suffix not in (".npz", ".safetensors"):
    raise UserError(f"Must have features in a .npz or .safetensors file, we instead got {path.name!r}")
  try:
    if path.suffix == ".npz":
      with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
    from safetensors.flax import load_file  # reads bfloat16 too

    return {name: np.asarray(array) for name, array in load_file(path).items()}
  except (SafetensorError, OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
    raise UserError(f"Corrupt features file {path}: {error}") from error
