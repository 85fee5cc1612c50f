"""The networks that judge images: a folder with three checkpoints and the vocabulary of their captions.

- ``concept``: drawings of one concept in different styles are neighbours (an `image_encoder`);
- ``classifier``: drawing style and group of the concept (an `image_classifier`);
- ``caption``: images and captions in one space (a `caption_encoder`).

``experiments/train/evaluators.py`` trains them on the training split. Their scores on held-out images are stored in ``meta``
of each ``config.json``.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from jaxspec import checkpoints
from jaxspec.checkpoints import Checkpoint
from jaxspec.data import text_tokenizer
from jaxspec.models.tokenizer_fns import from_uint8

PARTS = {"concept": "image_encoder", "classifier": "image_classifier", "caption": "caption_encoder"}
VOCABULARY_FILE = "vocabulary.json"
_BATCH = 64


@dataclasses.dataclass(frozen=True)
class Evaluators:
  """The loaded networks; see the module docstring."""

  path: Path
  concept: Checkpoint
  classifier: Checkpoint
  caption: Checkpoint
  vocabulary: Tokenizer

  @property
  def image_size(self) -> int:
    return self.concept.config.image_size

  def embed(self, name: str, pixels: np.ndarray) -> np.ndarray:
    """``[N, D]`` float32 vectors of root mean square 1 of ``[N, H, W, 3]`` uint8 images; ``name`` is one of `PARTS`."""
    part: Checkpoint = getattr(self, name)
    return embed_images(part, pixels)

  def embed_text(self, captions: Sequence[str]) -> np.ndarray:
    """``[N, D]`` float32 vectors of captions in the space of the part ``caption``."""
    return embed_captions(self.caption, self.vocabulary, captions)

  def classify(self, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices ``[N]`` into the styles and ``[N]`` into the groups of the classifier's config."""
    return classify_images(self.classifier, pixels)


def default_evaluators() -> Path:
  """The shipped folder."""
  package = Path(checkpoints.__file__).parent
  in_repository = package.parent / "checkpoints" / "evaluators"
  return in_repository if in_repository.is_dir() else package / "_checkpoints" / "evaluators"


def load_evaluators(path: str | os.PathLike | None = None) -> Evaluators:
  """Loads a folder of evaluators, the shipped one by default.

  Raises:
    ValueError: one line naming the file and what is wrong with it.
  """
  path = default_evaluators() if path is None else Path(path)
  if not path.is_dir():
    raise ValueError(f"No folder of evaluators at {path}: make one with python -m experiments.train.evaluators")
  parts = {name: checkpoints.load(path / name) for name in PARTS}
  for name, family in PARTS.items():
    if parts[name].family != family:
      raise ValueError(f"Must have a {family} in {path / name}, we instead got a {parts[name].family}")
  vocabulary = text_tokenizer.load_text_tokenizer(path / VOCABULARY_FILE)
  if len({part.config.image_size for part in parts.values()}) > 1:
    raise ValueError(f"Must have evaluators of one image size, those in {path} differ")
  if vocabulary.get_vocab_size() > parts["caption"].config.vocab_size:
    raise ValueError(f"Must have a vocabulary that fits the caption encoder, that in {path} is larger")
  return Evaluators(path, vocabulary=vocabulary, **parts)


def embed_images(part: Checkpoint, pixels: np.ndarray) -> np.ndarray:
  """See `Evaluators.embed`."""
  return in_batches(lambda x: _embed(part.fns)(part.params, x), pixels)


def classify_images(part: Checkpoint, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """See `Evaluators.classify`."""
  return in_batches(lambda x: _classify(part.fns)(part.params, x), pixels)


def embed_captions(part: Checkpoint, vocabulary: Tokenizer, captions: Sequence[str]) -> np.ndarray:
  """See `Evaluators.embed_text`."""
  ids, mask, _ = text_tokenizer.encode(vocabulary, captions, max_tokens=part.config.max_tokens)
  return in_batches(lambda i, m: _embed_text(part.fns)(part.params, i, m), ids, mask)


def in_batches(function: Callable, *arrays: np.ndarray, batch: int = _BATCH):
  """Calls ``function`` on equal batches of the rows; the last one is filled up, so that shapes never change."""
  outputs, total = [], len(arrays[0])
  for start in range(0, total, batch):
    rows = np.minimum(np.arange(start, start + batch), total - 1)
    output = jax.device_get(function(*(jnp.asarray(array[rows]) for array in arrays)))
    outputs.append(jax.tree.map(lambda leaf, kept=min(batch, total - start): leaf[:kept], output))
  return jax.tree.map(lambda *leaves: np.concatenate(leaves), *outputs)


@functools.cache
def _embed(fns) -> Callable:
  return jax.jit(lambda params, pixels: fns.embed(params, from_uint8(pixels)))


@functools.cache
def _embed_text(fns) -> Callable:
  return jax.jit(fns.embed_text)


@functools.cache
def _classify(fns) -> Callable:
  def classify(params, pixels):
    logits = fns.classify(params, from_uint8(pixels))
    return jnp.argmax(logits.style, axis=-1), jnp.argmax(logits.group, axis=-1)

  return jax.jit(classify)
