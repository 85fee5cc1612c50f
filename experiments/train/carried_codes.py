"""Weights of a network of tokens, carried to the codes of another tokenizer.

A new code stands for the old codes of the patches on which both tokenizers are seen: its embedding and its row of the output
matrix begin as the means of theirs, weighted by their frequency. A network of the flat world then begins in the textured one
with what it knows of objects and captions, and learns the textures.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.data.scene_tokens import scene_encoder
from jaxspec.core.network import Network
from jaxspec.core.types import Params
from jaxspec.evaluation import scenes

_CHUNK = 50  # images encoded at once
SPREAD = 0.1  # of the noise on embeddings, relative to their root mean square: codes that begin alike must come apart


def shares_of_codes(old: Network, new: Network, materials: Sequence[str], num_images: int, seed: int = 0) -> np.ndarray:
  """How often a patch with each new code has each old one.

  Args:
    old: tokenizer of the flat world; it reads the scenes without their textures.
    new: tokenizer of the world with ``materials``.
    num_images: scenes of training captions.
  Returns:
    ``[V_new, V_old]`` float32; rows sum to 1. A code that is never seen has the shares of all patches.
  """
  counts = np.zeros((new.config.num_codes, old.config.num_codes), np.float32)
  of_old, of_new, generator = scene_encoder(old), scene_encoder(new), np.random.default_rng((seed, 5))
  for start in range(0, num_images, _CHUNK):
    numbers = range(start, start + _CHUNK)
    textured = [scenes.draw_scene(seed, number, materials=materials)[1] for number in numbers]
    flat = [scenes.Scene(scene.background, scene.objects) for scene in textured]
    np.add.at(counts, (of_new(textured, generator), of_old(flat, generator)), 1.0)
  counts[counts.sum(1) == 0] = counts.sum(0)
  return counts / counts.sum(1, keepdims=True)


def carry(params: Params, shares: np.ndarray, seed: int = 0) -> Params:
  """The target's parameters with embedding and output of new codes; ``shares`` as of `shares_of_codes`."""
  carried = {name: shares @ np.asarray(params[name]["weight"], np.float32) for name in ("tok_embeddings", "output")}
  table = carried["tok_embeddings"]
  noise = np.random.default_rng((seed, 6)).standard_normal(table.shape).astype(np.float32)
  carried["tok_embeddings"] = table + SPREAD * np.sqrt(np.mean(table**2)) * noise
  return {**params, **{name: {"weight": weight} for name, weight in carried.items()}}
