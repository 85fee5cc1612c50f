"""``jaxspec evaluate --standard``: FID, Inception score and CLIP score of images, by released networks.

1. Images of a folder, or drawn by a bundle for the prompts of a file.
2. The figures of `jaxspec.evaluation.standard_metrics`, against a folder of real images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxspec.cli.drawn_captions import Drawn
from jaxspec.cli.guards import interruptible
from jaxspec.core.command_line import UserError
from jaxspec.run.decode_options import DecodeOptions

FEWEST = 2  # images for a covariance


def evaluate_standard(options: dict[str, Any], decoding: DecodeOptions, is_bundle: bool, report) -> dict[str, Any]:
  """The figures of a folder of images, or of a bundle's images.

  Args:
    options: options of the command, with the common checks done.
    report: receives progress.
  Returns:
    A document of JSON values, including warnings.
  Raises:
    UserError: in one line, for a mismatch; the networks are loaded before drawing.
  """
  from jaxspec.cli.drawn_captions import draw_captions, load_drawing
  from jaxspec.cli.image_folder import chosen_prompts, read_folder, write_folder
  from jaxspec.evaluation import standard_metrics as standard

  if options["reference"] is None:
    raise UserError("Must have --reference FOLDER with real images for --standard: FID is a distance from them")
  reference = read_folder(options["reference"], None, captioned=False)
  _check_count(reference.pixels, "real images")
  if is_bundle:
    if options["prompt_file"] is None:
      raise UserError(f"Must have --prompts FILE for --standard: it says what {options['path']} is to draw")
    prompts = chosen_prompts(options["prompt_file"], options["num"])
    _check_count(prompts, "images")  # before they are drawn
    images, pipeline = None, load_drawing(options, side=None, purpose="--standard")
  else:
    images, prompts = _read(options)
    _check_count(images.pixels, "images")
  metrics = interruptible(standard.load_standard, prompts is not None)
  if images is None:
    assert prompts is not None  # a bundle draws those of --prompts
    drawn = draw_captions(pipeline, options, decoding, prompts, report)
    images = drawn._replace(about={"prompts": str(options["prompt_file"])} | drawn.about)
    if options["save_images"] is not None:
      write_folder(options["save_images"], images.pixels, prompts)
  if reference.num_resized:
    images.warnings.append(f"{reference.num_resized} real images were resized to {_size(reference.pixels)} pixels")
  report("Computing the standard figures")
  return {
    "images": {"source": images.name, "count": len(images.pixels)} | images.about,
    "reference": {"count": len(reference.pixels), "folder": str(options["reference"])},
    "standard": interruptible(standard.standard_metrics, metrics, images.pixels, reference.pixels, prompts),
    "warnings": images.warnings,
  }


def _read(options: dict[str, Any]) -> tuple[Drawn, list[str] | None]:
  """The images of a folder, and their prompts if it has any."""
  from jaxspec.cli.image_folder import read_folder

  found = read_folder(options["path"], None, prompt_file=options["prompt_file"])
  warnings = []
  if found.num_resized:
    warnings.append(f"{found.num_resized} images were resized to {_size(found.pixels)} pixels")
  if found.prompts is None:
    warnings.append("No prompts.txt or prompts.json: there is no CLIP score")
  return Drawn(options["path"].resolve().name, found.pixels, {"names": found.names}, warnings), found.prompts


def _size(pixels) -> str:
  return f"{pixels.shape[2]}x{pixels.shape[1]}"


def _check_count(things: Sequence | np.ndarray, noun: str) -> None:
  """Checks that a set is large enough for a covariance."""
  if len(things) < FEWEST:
    raise UserError(f"Must have at least {FEWEST} {noun}, we instead got {len(things)}")
