"""Networks and jobs of a command, interruptible, with errors of one line for damaged files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxspec.cli.guards import interruptible, reading
from jaxspec.families.family import Encoded
from jaxspec.run.decode_options import DecodeOptions
from jaxspec.run.job import Job
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline


def load(path: str | Path | None, **kwargs: Any) -> Pipeline:
  """`load_pipeline`, `interruptible`."""
  with reading(path or "of the default bundle"):
    return interruptible(load_pipeline, path, **kwargs)


def make_job(pipeline: Pipeline, decoding: DecodeOptions, prompts: Encoded, *, seed: int, max_len: int | None = None) -> Job:
  """`DecodeOptions.job`, `interruptible`.

  Raises:
    ValueError: in one line, for a mismatch.
  """
  with reading(pipeline.name):
    return interruptible(decoding.job, pipeline, prompts, seed=seed, max_len=max_len)
