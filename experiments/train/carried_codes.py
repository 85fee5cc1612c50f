"""Weights of a network of tokens, carried to the codes of another tokenizer.

A new code stands for the old codes of the patches on which both tokenizers are seen: its embedding and its row of the output
matrix begin as the means of theirs, weighted by their frequency. An old code that splits into many new ones shares its
probability among them: each logit is lower by the log of the new code's share. The output matrix has no bias, so the offset
lies along the direction on which the final features have the projection 1. A network of the flat world then begins in the
textured one with what it knows of objects and captions, and learns the textures.
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


def counts_of_codes(old: Network, new: Network, materials: Sequence[str], num_images: int, seed: int = 0) -> np.ndarray:
  """How often a patch with each new code has each old one.

  Args:
    old: tokenizer of the flat world; it reads the scenes without their textures.
    new: tokenizer of the world with ``materials``.
    num_images: scenes of training captions.
  Returns:
    ``[V_new, V_old]`` float32. A code that is never seen counts as half a patch with the old codes of all patches.
  """
  counts = np.zeros((new.config.num_codes, old.config.num_codes), np.float32)
  of_old, of_new, generator = scene_encoder(old), scene_encoder(new), np.random.default_rng((seed, 5))
  for start in range(0, num_images, _CHUNK):
    numbers = range(start, start + _CHUNK)
    textured = [scenes.draw_scene(seed, number, materials=materials)[1] for number in numbers]
    flat = [scenes.Scene(scene.background, scene.objects) for scene in textured]
    np.add.at(counts, (of_new(textured, generator), of_old(flat, generator)), 1.0)
  counts[counts.sum(1) == 0] = 0.5 * counts.sum(0) / counts.sum()
  return counts


def carry(params: Params, counts: np.ndarray, features: np.ndarray, seed: int = 0) -> Params:
  """The target's parameters with embedding and output of new codes.

  Args:
    params: of the network of old codes.
    counts: as of `counts_of_codes`.
    features: ``[M, D]`` final features of that network, from which the direction of the offsets is fitted.
    seed: of the noise on the embeddings.
  """
  shares = counts / counts.sum(1, keepdims=True)  # of old codes, given the new one
  splits = counts / np.maximum(counts.sum(0, keepdims=True), 1.0)  # of new codes, given the old one
  offset = np.sum(shares * np.log(np.where(counts > 0, splits, 1.0)), axis=1, dtype=np.float32)
  direction = np.linalg.lstsq(features.astype(np.float32), np.ones(len(features), np.float32), rcond=None)[0]
  carried = {name: shares @ np.asarray(params[name]["weight"], np.float32) for name in ("tok_embeddings", "output")}
  carried["output"] += offset[:, None] * direction
  table = carried["tok_embeddings"]
  noise = np.random.default_rng((seed, 6)).standard_normal(table.shape).astype(np.float32)
  carried["tok_embeddings"] = table + SPREAD * np.sqrt(np.mean(table**2)) * noise
  return {**params, **{name: {"weight": weight} for name, weight in carried.items()}}
