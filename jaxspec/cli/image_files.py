"""Image files and maps of ``jaxspec generate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from jaxspec.cli.summary_sections import draw_map_of
from jaxspec.io.whole_files import write_whole
from jaxspec.render import image_sheet
from jaxspec.run.generation import Generation
from jaxspec.run.json_values import finite


def cells_of(runs: list[Generation], panel: Callable[[np.ndarray], Image.Image] = Image.fromarray) -> list[image_sheet.Cell]:
  """A cell for each image: one panel per method, with its name above if there are several, and the caption.

  Args:
    panel: function of an image ``[H, W, 3]`` uint8.
  """
  titles = [run.heading for run in runs] if len(runs) > 1 else []
  outputs = zip(*(run.outputs for run in runs))
  return [image_sheet.Cell([panel(image) for image in cell], titles, text) for cell, text in zip(outputs, runs[0].captions)]


def write_images(files: dict[str, Path], runs: list[Generation], *, samples: int, raw: bool) -> None:
  """Writes ``files["images"]``, and ``files["heatmap"]`` if requested.

  Args:
    runs: finished runs, one panel each. The map is that of the first.
    samples: images per prompt, in one row if they fit.
    raw: images at original size, without margins and captions.
  """
  job, captions = runs[0].job, runs[0].captions
  about = {"source": job.pipeline.name, "settings": finite(job.settings()), "captions": captions}
  cells = list(zip(*(run.outputs for run in runs)))  # per image, one panel per method
  columns = image_sheet.columns_for(len(cells), samples, len(runs))
  if raw:
    sheet = image_sheet.raw_grid(cells, columns)
  else:
    sheet = image_sheet.draw_grid(cells_of(runs, image_sheet.enlarge), columns)
  write_whole(files["images"], lambda path: image_sheet.save_png(sheet, path, about))
  if "heatmap" in files:
    columns = image_sheet.columns_for(len(cells), samples, panels=3)
    grid = job.pipeline.family.space.grid
    maps = draw_map_of(runs[0])(runs[0].result, runs[0].outputs, captions, columns=columns, grid=grid)
    write_whole(files["heatmap"], lambda path: image_sheet.save_png(maps, path, about))
