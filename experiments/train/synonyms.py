"""The loss of a target whose background tokens have many synonyms.

Most tokens of a textured image are one of hundreds of codes of a background's colour, and which one is noise. Its nats are
most of the loss, and its gradients disturb what the network knows of objects and captions. So the loss is split: the token's
colour, and the token given its colour. The second part may have a weight below 1. Both are proper losses, so that the
distribution of smallest loss is the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.scene_tokens import scene_encoder
from jaxspec.core.network import Network
from jaxspec.core.types import Array
from jaxspec.evaluation import scenes
from jaxspec.evaluation.scenes.world import BACKGROUNDS, GRID

_CHUNK = 50  # images encoded at once


def bare_cells(scene: scenes.Scene) -> np.ndarray:
  """``[GRID, GRID]`` bool: cells that no object lies on."""
  bare = np.ones((GRID, GRID), bool)
  for one in scene.objects:
    bare[one.row : one.row + one.cells, one.column : one.column + one.cells] = False
  return bare


def colours_of_codes(tokenizer: Network, materials: Sequence[str], num_images: int, seed: int = 0) -> np.ndarray:
  """``[V]`` int32: the background whose bare cells most patches of a code are, by its place in `BACKGROUNDS`; -1: none."""
  encode, generator, names = scene_encoder(tokenizer), np.random.default_rng((seed, 7)), list(BACKGROUNDS)
  counts = np.zeros((tokenizer.config.num_codes, len(names) + 1), np.int64)
  for start in range(0, num_images, _CHUNK):
    drawn = [scenes.draw_scene(seed, number, materials=materials)[1] for number in range(start, start + _CHUNK)]
    kinds = [np.where(bare_cells(scene), names.index(scene.background), len(names)).reshape(-1) for scene in drawn]
    np.add.at(counts, (encode(drawn, generator), np.stack(kinds)), 1)
  found = counts.argmax(1).astype(np.int32)
  return np.where((found < len(names)) & (counts.sum(1) > 0), found, -1)


def synonym_nats(logits: Array, targets: Array, colours: np.ndarray) -> Array:
  """Mean over tokens of ``-log p(token | its colour)``, which is 0 for tokens of no background.

  Args:
    logits: ``[B, N, V]``.
    targets: ``[B, N]`` int32.
    colours: as of `colours_of_codes`.
  """
  members = jnp.asarray(colours[:, None] == np.arange(len(BACKGROUNDS)), jnp.float32)  # [V, C]
  logits = logits.astype(jnp.float32)
  top = jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
  whole = top + jnp.log(jnp.exp(logits - top) @ members + 1e-30)  # [B, N, C]
  colour, own = jnp.asarray(colours)[targets], jnp.take_along_axis(logits, targets[..., None], axis=-1)
  picked = jnp.take_along_axis(whole, jnp.maximum(colour, 0)[..., None], axis=-1)
  return jnp.mean(jnp.where(colour >= 0, (picked - own)[..., 0], 0.0))
