"""Scenes as tokens: paints images and encodes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np

from jaxspec.core.network import Network
from jaxspec.evaluation import scenes
from jaxspec.models.tokenizers.tokenizer_fns import from_uint8

ScenesToTokens = Callable[[Sequence[scenes.Scene], np.random.Generator], np.ndarray]


def scene_encoder(tokenizer: Network) -> ScenesToTokens:
  """A function of scenes, and of a generator for their textures, to tokens ``[B, N]`` int32, row by row."""
  encode = jax.jit(lambda params, pixels: tokenizer.fns.encode(params, from_uint8(pixels))[0])
  return lambda drawn, generator: np.asarray(encode(tokenizer.params, scenes.paint_batch(drawn, generator)))
