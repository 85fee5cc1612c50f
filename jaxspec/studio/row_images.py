"""Images of rows as bytes, and the pieces of texts."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from jaxspec.render import image_sheet
from jaxspec.run.generation import Generation
from jaxspec.run.job import Job
from jaxspec.run.json_values import finite

_UNKNOWN = 128  # grey, seen on light and dark pages


def data_url(pixels: np.ndarray) -> str:
  """An image ``[H, W, 3]`` uint8 as a data URL (PNG)."""
  file = io.BytesIO()
  Image.fromarray(pixels).save(file, "PNG")
  return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def veiled(pixels: np.ndarray, known: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
  """An image ``[H, W, 3]`` uint8 with grey areas for tokens that are not decoded yet.

  Args:
    known: ``[N]`` bool, the decoded tokens.
    grid: rows and columns of the tokens. An image that it does not divide, such as one with tokens of row ends, is returned
      unchanged.
  """
  (rows, columns), (height, width) = grid, pixels.shape[:2]
  if known.size != rows * columns or height % rows or width % columns:
    return pixels
  seen = known.reshape(grid).repeat(height // rows, 0).repeat(width // columns, 1)
  return np.where(seen[..., None], pixels, np.uint8(_UNKNOWN))


def pieces(job: Job, tokens: np.ndarray, start: int, stop: int) -> list[str]:
  """The text that each token from ``start`` to ``stop`` adds to a row ``[N]``; the last token of a letter adds it."""
  lengths = np.arange(start, stop + 1)
  texts = job.pipeline.family.decode(np.broadcast_to(tokens, (len(lengths), len(tokens))), lengths=lengths)
  texts = [text.rstrip("\ufffd") for text in texts]
  return [after[len(before) :] for before, after in zip(texts, texts[1:])]


def sheet(runs: list[Generation]) -> bytes:
  """The images of all methods side by side with their captions, as a PNG with their settings."""
  titles = [run.heading for run in runs] if len(runs) > 1 else []
  rows = zip(*(run.outputs for run in runs))
  panels = [[image_sheet.enlarge(image) for image in row] for row in rows]
  cells = [image_sheet.Cell(row, titles, text) for row, text in zip(panels, runs[0].captions)]
  drawn, file = image_sheet.draw_grid(cells, image_sheet.columns_for(len(cells), panels=len(runs))), io.BytesIO()
  settings = [finite(run.job.settings()) for run in runs]
  about = {"source": runs[0].job.pipeline.name, "settings": settings, "captions": runs[0].captions}
  image_sheet.save_png(drawn, file, about)
  return file.getvalue()
