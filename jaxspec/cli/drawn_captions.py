"""Images of captions by a bundle, for commands that measure images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxspec.cli.guards import interruptible
from jaxspec.core.command_line import UserError
from jaxspec.run.decode_options import DecodeOptions

if TYPE_CHECKING:  # options are checked before heavy imports
  from jaxspec.run.pipeline import Pipeline


class Drawn(NamedTuple):
  """Images of a bundle."""

  name: str
  pixels: np.ndarray  # [N, side, side, 3] uint8
  about: dict[str, Any]  # settings and counters; JSON
  warnings: list[str]


def load_drawing(options: dict[str, Any], *, side: int | None, purpose: str) -> Pipeline:
  """The bundle of a command, for captions.

  Args:
    options: options of the command: ``path``, ``dtype`` and ``matmul_precision``.
    side: required side of the images in pixels; None for any.
    purpose: the reason for this size, for messages.
  Raises:
    UserError: if the bundle does not draw captions, or draws images of another size.
  """
  from jaxspec.cli.job import load
  from jaxspec.models.conditions import ClassLabels, OrderedLabels

  pipeline = load(options["path"], dtype=options["dtype"], matmul_precision=options["matmul_precision"])
  if pipeline.family.noun != "image":
    raise UserError(f"Must have a bundle that draws images, {options['path']} continues texts")
  if pipeline.family.condition_type in (ClassLabels, OrderedLabels):
    raise UserError(f"Must have a bundle that draws captions, {options['path']} draws classes")
  made = getattr(getattr(pipeline.family, "tokenizer", None), "config", None)
  if side is not None and (size := getattr(made, "image_size", side)) != side:
    raise UserError(f"Must have images of {side} pixels for {purpose}, {options['path']} draws {size}")
  return pipeline


def draw_captions(
  pipeline: Pipeline, options: dict[str, Any], decoding: DecodeOptions, captions: list[str], report
) -> Drawn:
  """One image per caption.

  Args:
    pipeline: from `load_drawing`.
    options: options of the command: ``seed`` and ``batch``.
    report: receives progress.
  Raises:
    UserError: for a batch or an option that does not fit, before anything is drawn.
  """
  from jaxspec.cli.job import make_job
  from jaxspec.run.batches import batch_rows
  from jaxspec.run.generation import per_row
  from jaxspec.run.run import run

  rows = batch_rows(options["batch"], len(captions))
  job = make_job(pipeline, decoding, interruptible(pipeline.encode, captions), seed=options["seed"])
  found = interruptible(run, job, job.batches(rows), report)
  report("Turning tokens into images")
  images = interruptible(found.need_images)
  counters = {name: int(values.sum()) for name, values in per_row(found.counters).items()}
  return Drawn(pipeline.name, images, {"settings": job.settings(), "counters": counters}, job.warnings)
