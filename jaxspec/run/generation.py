"""The result of a job: rows of tokens, their images or texts, and the time of decoding."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

from jaxspec.core.state import Counters, DecodeResult
from jaxspec.core.types import PyTree
from jaxspec.families.family import Family
from jaxspec.io.stored_files import check_path
from jaxspec.io.whole_files import write_whole
from jaxspec.methods import Method, Plain
from jaxspec.run import measure
from jaxspec.run.batches import Batches
from jaxspec.run.job import Job
from jaxspec.run.memory_check import memory_errors
from jaxspec.sampling import AnySampling


@dataclasses.dataclass(eq=False, repr=False)
class Generation:
  """Result of one job. Arrays are numpy; images and texts are computed on first access.

  Copies share the networks of the job (`copy.deepcopy`); a result is not pickled, its tokens, images and texts are.

  Attributes:
    job: the networks, prompts and settings.
    batches: the rows.
    by_batch: `DecodeResult` of every batch, after `Family.finish`: continuous tokens in raster order.
    compile_s: seconds of tracing and compiling; 0 if the program was cached.
    run_s: seconds of decoding all rows to tokens, one entry per repeat.
    messages: traffic of a decode over a cloud (`jaxspec.serving.messages`); None without one.
    failure: the error that ended the decode early. The rows that exist are complete, except for those of a decode that its
      callback cancelled.
  """

  job: Job
  batches: Batches
  by_batch: list[DecodeResult]
  compile_s: float = 0.0
  run_s: list[float] = dataclasses.field(default_factory=list)
  messages: Any = None
  failure: Exception | None = None

  def __repr__(self) -> str:
    number, noun = self.num, self.job.noun
    what = f"{number} {noun}{'s' * (number != 1)} by {self.method.name}, tokens {list(self.tokens.shape)}"
    return f"<Generation: {what}; .{noun}s .tokens .counters .result>"

  @property
  def num(self) -> int:
    """Rows ``R``."""
    return self.batches.num

  @property
  def method(self) -> Method:
    """The method, with its draft by name."""
    return self.job.method

  @property
  def sampling(self) -> AnySampling:
    """The sampling settings."""
    return self.job.sampling

  @property
  def family(self) -> Family:
    """The family, which decodes tokens to images or texts."""
    return self.job.pipeline.family

  @property
  def warnings(self) -> list[str]:
    """Warnings for the user, one line each."""
    return self.job.warnings

  @property
  def name(self) -> str:
    """Name of the method."""
    return self.method.name

  @property
  def heading(self) -> str:
    """Title of columns and panels."""
    return "plain" if self.name == Plain.name else self.name

  @functools.cached_property
  def captions(self) -> list[str]:
    """One text per row."""
    return [self.job.captions[prompt] for prompt in self.batches.prompt]

  @functools.cached_property
  def condition(self) -> PyTree:
    """The condition, leaves ``[R, ...]``."""
    return _whole(self.batches.condition, self.num)

  @functools.cached_property
  def result(self) -> DecodeResult:
    """All rows, leaves ``[R, ...]``."""
    return _whole(self.by_batch, self.num)

  @property
  def tokens(self) -> np.ndarray:
    """``[R, N]`` int32 or ``[R, N, C]`` float32; 0 after a row's length."""
    return np.asarray(self.result.tokens)

  @property
  def lengths(self) -> np.ndarray:
    """``[R]`` int32, tokens of each row, including its end token."""
    return np.asarray(self.result.lengths)

  @property
  def counters(self) -> Counters:
    """`Counters` with leaves ``[R]``."""
    return self.result.counters

  @property
  def num_tokens(self) -> int:
    """Tokens of all rows."""
    return int(np.sum(self.lengths))

  @property
  def median_s(self) -> float:
    """Seconds of decoding, the median of the repeats."""
    return float(np.median(self.run_s))

  @property
  def token_s(self) -> float:
    """Seconds per token, the median of the repeats, with the same tokens."""
    return measure.per_token([self.median_s], [self.num_tokens])[0]

  @property
  def images(self) -> np.ndarray | None:
    """``[R, H, W, 3]`` uint8; None for texts and incomplete images."""
    outputs = self.outputs if self.job.noun == "image" else None
    return outputs if isinstance(outputs, np.ndarray) else None

  def need_images(self) -> np.ndarray:
    """`images`.

    Raises:
      ValueError: for texts and incomplete images.
    """
    if (images := self.images) is None:
      raise ValueError(f"Must have whole images, we instead got {self.job.noun}s of {self.lengths.min()} tokens and more")
    return images

  @property
  def texts(self) -> list[str] | None:
    """``R`` texts, including their prompts; None for images."""
    outputs = self.outputs if self.job.noun == "text" else None
    return outputs if isinstance(outputs, list) else None

  @property
  def outputs(self) -> np.ndarray | list[str] | None:
    """`images` or `texts`."""
    return self._outputs[0]

  @property
  def pixels_s(self) -> float:
    """Seconds to make `outputs`, including compilation."""
    return self._outputs[1]

  @property
  def pil(self) -> list[Image.Image] | None:
    """`images` as ``R`` PIL images."""
    return None if self.images is None else [Image.fromarray(image) for image in self.images]

  def save(self, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes every image as ``0000.png``, or every text as ``0000.txt``, by its row.

    Args:
      folder: made if it is missing; files of these names are replaced.
    Returns:
      The written files.
    Raises:
      ValueError: for incomplete images, an empty name, or a folder that cannot be written to.
    """
    rows, folder = self.texts or self.need_images(), check_path(folder, "a folder to write to")
    suffix = ".txt" if self.texts else ".png"
    write = lambda path, row: path.write_text(row, "utf-8") if self.texts else Image.fromarray(row).save(path, "PNG")
    try:
      folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      raise ValueError(f"Cannot write to {folder}: {error.strerror}") from error
    paths = [folder / f"{number:04}{suffix}" for number in range(len(rows))]
    for path, row in zip(paths, rows):
      write_whole(path, functools.partial(write, row=row))
    return paths

  @functools.cached_property
  @memory_errors()
  def _outputs(self) -> tuple[Any, float]:
    family, sampling, start, parts = self.family, self.sampling, time.perf_counter(), []
    if self.job.noun == "image" and (self.lengths < family.row_tokens(sampling)).any():
      return None, 0.0
    for result, condition in zip(self.by_batch, self.batches.condition):
      parts.append(family.decode(result.tokens, lengths=np.asarray(result.lengths), condition=condition, sampling=sampling))
    whole = [text for part in parts for text in part] if isinstance(parts[0], list) else np.concatenate(parts)
    return whole[: self.num], time.perf_counter() - start


def _whole(parts: list[PyTree], num: int) -> PyTree:
  """The first ``num`` rows of all batches, in numpy."""
  return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:num], *jax.device_get(parts))


def per_row(counters: Counters) -> dict[str, np.ndarray]:
  """Counters as ``{name: [R] int}``."""
  return {name: np.asarray(getattr(counters, name)) for name in counters.__dataclass_fields__}
