"""``jaxspec evaluate --scenes``: images of the world of scenes (`jaxspec.evaluation.scenes`), scored by reading them.

1. Captions of a folder, of a file, or of the grammar, and their requests.
2. The images, from the folder or drawn by the bundle.
3. Objects of each image, and satisfied demands of its caption.
4. Shares by task, and the distribution of unconstrained attributes against the painter's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxspec.cli.guards import interruptible
from jaxspec.cli.image_folder import DEFAULT_NUM
from jaxspec.cli.options import was_given
from jaxspec.core.command_line import UserError
from jaxspec.evaluation import scenes
from jaxspec.run.decode_options import DecodeOptions


class _Images(NamedTuple):
  """Images to score."""

  name: str
  pixels: np.ndarray  # [N, 96, 96, 3] uint8
  captions: list[str]
  requests: list[scenes.Request]
  about: dict[str, Any]  # their source; JSON
  warnings: list[str]


def evaluate_scenes(options: dict[str, Any], decoding: DecodeOptions, is_bundle: bool, report) -> dict[str, Any]:
  """The scores of a folder of images, or of a bundle's images.

  Args:
    options: options of the command, with the common checks done.
    report: receives progress.
  Returns:
    A document of JSON values, including warnings.
  Raises:
    UserError: in one line, for a mismatch; all captions are read before drawing.
  """
  images = _drawn(options, decoding, report) if is_bundle else _read(options)
  report(f"Reading {len(images.pixels)} images")
  readings = interruptible(scenes.read, images.pixels)
  scores = scenes.score_readings(images.requests, readings)
  report("Comparing with the painter")
  distances = interruptible(scenes.compare_with_painter, scores, seed=options["seed"])
  rows = [
    {"caption": caption, "task": request.task, **held}
    for caption, request, held in zip(images.captions, scores.requests, scores.held, strict=True)
  ]
  return {
    "images": {"source": images.name, "count": len(images.pixels)} | images.about,
    "scores": _shares(scores),
    "unconstrained": {aspect: _aspect(aspect, row) for aspect, row in distances.items()},
    "rows": rows,
    "warnings": images.warnings,
  }


def _drawn(options: dict[str, Any], decoding: DecodeOptions, report) -> _Images:
  """Images by a bundle, for captions of the grammar or of a file."""
  from jaxspec.cli.drawn_captions import draw_captions, load_drawing
  from jaxspec.cli.image_folder import chosen_prompts, write_folder

  file, split, seed = options["prompt_file"], options["split"], options["seed"]
  if file is None:
    captions = [scenes.draw_scene(seed, number, split)[0] for number in range(options["num"] or DEFAULT_NUM)]
    about = {"split": split}
  else:
    _check_no_split(f"captions come from {file}")
    captions = chosen_prompts(file, options["num"])
    about = {"prompts": str(file)}
  requests = _requests(captions, file)
  pipeline = load_drawing(options, side=scenes.IMAGE_SIZE, purpose="--scenes")
  drawn = draw_captions(pipeline, options, decoding, captions, report)
  if options["save_images"] is not None:
    write_folder(options["save_images"], drawn.pixels, captions)
  return _Images(drawn.name, drawn.pixels, captions, requests, about | drawn.about, drawn.warnings)


def _read(options: dict[str, Any]) -> _Images:
  """The images and captions of a folder."""
  from PIL import Image

  from jaxspec.cli.image_folder import list_images, read_folder

  folder, side = options["path"], scenes.IMAGE_SIZE
  _check_no_split(f"{folder} is a folder of images")
  found = read_folder(folder, side, prompt_file=options["prompt_file"])
  if found.prompts is None:
    raise UserError(f"Must have captions for --scenes: give prompts.txt or prompts.json in {folder}, or --prompts FILE")
  if found.num_resized:
    for path in list_images(folder):
      with Image.open(path) as image:
        if image.width != side:
          raise UserError(f"Must have images of {side}x{side} pixels for --scenes, {path} has {image.width}x{image.height}")
  requests = _requests(found.prompts, options["prompt_file"] or folder)
  return _Images(folder.resolve().name, found.pixels, found.prompts, requests, {"names": found.names}, [])


def _check_no_split(why: str) -> None:
  if was_given("split"):
    raise UserError(f"--split chooses captions of the grammar: it does not go with --scenes where {why}")


def _requests(captions: Sequence[str], source: Path | None) -> list[scenes.Request]:
  """Requests of captions.

  Raises:
    UserError: in one line, for the first that cannot be read.
  """
  requests, wrong = [], []
  for number, caption in enumerate(captions, 1):
    try:
      requests.append(scenes.parse(caption))
    except ValueError as error:
      wrong.append((number, error))
  if not wrong:
    return requests
  (first, error), *others = wrong
  where = "" if source is None else f" of {source}"
  more = f" ({len(others)} more cannot be read, the next is caption {others[0][0]})" if others else ""
  raise UserError(f"Cannot read caption {first}{where}: {error}{more}")


def _shares(scores: scenes.Scores) -> dict[str, dict[str, dict[str, float]]]:
  """Shares with intervals and counts, by row and demand."""
  from jaxspec.run.json_values import interval_fields

  as_json = lambda share: interval_fields(share) | {"count": int(share.count)}
  table = scenes.summarise(scores)
  return {name: {demand: as_json(share) for demand, share in row.items()} for name, row in table.items()}


def _aspect(aspect: str, row: scenes.AttributeDistance) -> dict[str, Any]:
  """One aspect, with the frequencies of its values."""
  values = [str(value) for value in scenes.ASPECTS[aspect]]
  return {
    "distance": row.distance,
    "expected": row.expected,
    "p_value": row.p_value,
    "count": row.count,
    "images": dict(zip(values, row.first.tolist(), strict=True)),
    "painter": dict(zip(values, row.second.tolist(), strict=True)),
  }
