"""Images that a bundle draws of captions, for the commands that measure images."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxspec.cli.declared import Chosen
from jaxspec.cli.errors import UserError, interruptible


class Drawn(NamedTuple):
  """What a bundle drew."""

  name: str
  pixels: np.ndarray  # [N, side, side, 3] uint8
  about: dict[str, Any]  # settings and counters; JSON
  warnings: list[str]


def draw_captions(
  options: dict[str, Any], chosen: Chosen, captions: list[str], *, side: int | None, purpose: str, report
) -> Drawn:
  """One image of each caption.

  Args:
    options: of the command: ``path``, ``seed``, ``batch``, ``dtype`` and ``matmul_precision``.
    side: of the images, in pixels; None where any will do.
    purpose: what needs this size, for messages.
    report: told what is going on.
  Raises:
    UserError: before anything is drawn, if the bundle draws no captions, or images of another size.
  """
  from jaxspec.cli import decoding
  from jaxspec.cli.batches import batch_rows, make_batches
  from jaxspec.cli.job import load, make_job
  from jaxspec.models.conditions import ClassLabels, OrderedLabels

  rows = batch_rows(options["batch"], len(captions))
  pipeline = load(options["path"], dtype=options["dtype"], matmul_precision=options["matmul_precision"])
  if pipeline.host.noun != "image":
    raise UserError(f"Must have a bundle that draws images, {options['path']} continues texts")
  if pipeline.host.condition_type in (ClassLabels, OrderedLabels):
    raise UserError(f"Must have a bundle that draws captions, {options['path']} draws classes")
  made = getattr(getattr(pipeline.host, "tokenizer", None), "config", None)
  if side is not None and (size := getattr(made, "image_size", side)) != side:
    raise UserError(f"Must have images of {side} pixels for {purpose}, {options['path']} draws {size}")
  job = make_job(pipeline, chosen, interruptible(pipeline.encode, captions), seed=options["seed"])
  batches = make_batches(job.condition, samples=1, seed=job.seed, rows=rows)
  runs = decoding.decode_methods(job, batches, methods=[job.method], repeats=0, report=report)
  decoding.finish(job, batches, runs, report)
  counters = {name: int(values.sum()) for name, values in runs[0].counters().items()}
  return Drawn(pipeline.name, runs[0].outputs, {"settings": job.settings(), "counters": counters}, job.warnings)
