"""Samples that a target draws itself, which are the prefixes that a drafter meets while decoding, and tokens of images.

A file keeps the drawn rows. A killed run continues it; the rows of a batch depend on the seed and the number of the batch
only.
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxspec.core.options import values_of
from jaxspec.core.types import HostArray
from jaxspec.io.whole_files import write_whole
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns, from_uint8
from jaxspec.run.pipeline import Pipeline
from jaxspec.run.progress import SILENT, Progress
from jaxspec.training.distillation.samples import Samples
from jaxspec.training.epochs import epochs_of

KEEP_EVERY_S = 10.0


class Drawing(NamedTuple):
  """What a target draws.

  Attributes:
    prompts: as `jaxspec.run.pipeline.Pipeline.encode` takes them; every prompt once before any repeats, in random order.
    num_samples: rows.
    batch: rows drawn together.
    max_len: tokens of a row; None: a whole image, or 64 tokens of text.
    seed: of the order of the prompts and of the tokens.
  """

  prompts: Sequence[Any]
  num_samples: int
  batch: int = 8
  max_len: int | None = None
  seed: int = 0

  def origin(self, target: str, sampling: Any) -> dict[str, Any]:
    """What determines the rows, as JSON; ``target`` identifies the network."""
    prompts = hashlib.sha256("\n".join(map(str, self.prompts)).encode()).hexdigest()[:16]
    return {
      "target": target, "prompts": prompts, "sampling": values_of(sampling), "batch": self.batch, "max_len": self.max_len,
      "seed": self.seed,
    }  # fmt: skip


def draw_samples(
  pipeline: Pipeline, drawing: Drawing, file: Path, origin: dict[str, Any], *, progress: Progress = SILENT
) -> Samples:
  """The rows of a file, which is written or continued if rows are missing.

  Args:
    file: ends in ``.npz``.
    origin: see `Drawing.origin`.
  Raises:
    ValueError: if the file is damaged or has another origin, or for prompts that cannot be encoded.
  """
  tokens, lengths, rows = _kept(file, origin)
  condition = pipeline.encode(list(drawing.prompts)).condition
  pipeline.family.release()
  chosen = epochs_of(np.arange(condition.batch_size), drawing.batch, (drawing.seed, 2))
  first = done = len(tokens)
  kept_at = time.monotonic()
  progress("Drawing samples")
  for index in range(done // drawing.batch, -(-drawing.num_samples // drawing.batch)):
    at = chosen(index)
    out = pipeline(
      jax.tree.map(lambda leaf, at=at: leaf[at], condition), key=jax.random.key(drawing.seed * 100_003 + index),
      method="ar", max_len=drawing.max_len,
    )  # fmt: skip
    part = np.asarray(out.tokens, np.int32)
    tokens = np.concatenate([tokens, part]) if len(tokens) else part
    lengths, rows = np.concatenate([lengths, np.asarray(out.lengths, np.int32)]), np.concatenate([rows, np.int32(at)])
    done = len(tokens)
    progress.step(min(done, drawing.num_samples), drawing.num_samples, "sample", since=first)
    if time.monotonic() - kept_at > KEEP_EVERY_S:
      kept_at = time.monotonic()
      _keep(file, origin, tokens, lengths, rows)
  if done > first:
    _keep(file, origin, tokens, lengths, rows)
  return Samples(tokens, lengths, rows, condition).first(drawing.num_samples)


def _kept(file: Path, origin: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  empty = np.zeros(0, np.int32)
  if not file.exists():
    return empty, empty, empty
  try:
    with np.load(file, allow_pickle=False) as archive:
      theirs = json.loads(str(archive["origin"]))
      found = archive["tokens"], archive["lengths"], archive["prompt_rows"]
  except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
    raise ValueError(f"Corrupt samples {file} ({type(error).__name__}): remove it, or name another file") from error
  if theirs != origin:
    name = next(name for name in origin if theirs.get(name) != origin[name])
    raise ValueError(
      f"Must have samples of this target and its prompts in {file}, they have another {name}: name another file (--samples)"
    )
  return found


def _keep(file: Path, origin: dict[str, Any], tokens: np.ndarray, lengths: np.ndarray, rows: np.ndarray) -> None:
  label = np.asarray(json.dumps(origin))
  write_whole(file, lambda path: np.savez(path, tokens=tokens, lengths=lengths, prompt_rows=rows, origin=label))


def image_side(pipeline: Pipeline) -> int:
  """Pixels of a side of the images of a target.

  Raises:
    ValueError: for a target that images cannot be encoded for.
  """
  space, tokenizer = pipeline.family.space, getattr(pipeline.family, "tokenizer", None)
  fns = getattr(tokenizer, "fns", None)
  if not isinstance(fns, TokenizerFns) or space.grid is None or space.legal is not None or space.grid[0] != space.grid[1]:
    raise ValueError(f"Must have a target that draws square images by their codes for images, {pipeline.name} draws others")
  assert tokenizer is not None
  return space.grid[0] * tokenizer.config.factor


def encode_images(
  pipeline: Pipeline, pixels: HostArray, prompts: Sequence[Any], *, batch: int = 8, progress: Progress = SILENT
) -> Samples:
  """Samples of images, by the encoder of the image tokenizer.

  Args:
    pixels: ``[M, S, S, 3]`` uint8, ``S`` by `image_side`.
    prompts: ``M``, one per image.
  """
  tokenizer, total = pipeline.family.tokenizer, len(pixels)  # pyright: ignore[reportAttributeAccessIssue]  # `image_side`
  condition = pipeline.encode(list(prompts)).condition
  pipeline.family.release()
  encode = jax.jit(lambda params, images: tokenizer.fns.encode(params, from_uint8(images))[0])
  parts = []
  progress("Encoding images")
  for start in range(0, total, batch):
    at = np.minimum(np.arange(start, start + batch), total - 1)
    parts.append(np.asarray(encode(tokenizer.params, pixels[at]))[: total - start])
    progress.step(min(start + batch, total), total, "image")
  tokens = np.concatenate(parts).astype(np.int32)
  return Samples(tokens, np.full(total, tokens.shape[1], np.int32), np.arange(total, dtype=np.int32), condition)
