"""A folder of PNG images with their prompts: reading, checking, writing."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from jaxspec.core.command_line import UserError

PROMPT_FILES = ("prompts.json", "prompts.txt")

DEFAULT_NUM = 128  # image files


class ImageFolder(NamedTuple):
  """Images of a folder, in the natural order of the names ("2.png" before "10.png")."""

  names: list[str]
  pixels: np.ndarray  # [N, side, side, 3] uint8
  prompts: list[str] | None
  num_resized: int


def list_images(folder: Path) -> list[Path]:
  """The PNG files of a folder in natural order."""
  natural = lambda path: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name.lower())]
  return sorted((path for path in folder.iterdir() if path.suffix.lower() == ".png" and path.is_file()), key=natural)


def read_folder(folder: Path, side: int | None, *, prompt_file: Path | None = None, captioned: bool = True) -> ImageFolder:
  """Reads every PNG, with transparency on white, resized to ``side``.

  Args:
    side: in pixels; None: the side of the first image.
    prompt_file: see `read_prompts`; by default the first of `PROMPT_FILES` in the folder, if any.
    captioned: whether to read prompts.
  Raises:
    UserError: in one line, naming the file and the error.
  """
  if not folder.is_dir():
    raise UserError(f"No folder at {folder}")
  try:
    paths = list_images(folder)
  except OSError as error:
    raise UserError(f"Cannot read {folder}: {error.strerror}") from error
  if not paths:
    raise UserError(f"Must have PNG images in {folder}, there are none")
  images, num_resized = [], 0
  for path in paths:
    try:
      with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with Image.open(path, formats=("PNG",)) as image:
          if image.mode.startswith("I"):
            raise UserError(f"Must have images of 8 bits a channel, {path} has 16")
          image = image.convert("RGBA")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
      raise UserError(f"Must have a PNG image, {path} cannot be read ({type(error).__name__})") from error
    if image.width != image.height:
      raise UserError(f"Must have square images, {path} has {image.width}x{image.height} pixels")
    image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    side = image.width if side is None else side
    if image.width != side:
      num_resized += 1
      image = image.resize((side, side), Image.Resampling.LANCZOS)
    images.append(np.asarray(image))
  names = [path.name for path in paths]
  if captioned and prompt_file is None:
    prompt_file = next((folder / name for name in PROMPT_FILES if (folder / name).is_file()), None)
  prompts = read_prompts(prompt_file, names) if captioned and prompt_file is not None else None
  return ImageFolder(names, np.stack(images), prompts, num_resized)


def read_prompts(file: Path, names: Sequence[str] | None = None) -> list[str]:
  """Prompts of a file: one per line, a JSON list, or a JSON object from image name to prompt.

  Args:
    names: their images, in order; None if the images do not exist yet.
  Raises:
    UserError: if the file cannot be read, a prompt has no word, or prompts and images do not match.
  """
  from jaxspec.cli.prompts import read_lines
  from jaxspec.io.text.prompt_spelling import normalize_prompt

  try:
    lines = read_lines(file)
    document = json.loads("\n".join(lines)) if file.suffix.lower() == ".json" else [line.strip() for line in lines]
  except (OSError, ValueError, RecursionError) as error:
    raise UserError(f"Cannot read prompts from {file}: {getattr(error, 'strerror', None) or error}") from error
  if isinstance(document, dict):
    if names is None:
      raise UserError(f"Must have a list of prompts in {file}: there are no images yet to name")
    if missing := [name for name in names if name not in document]:
      raise UserError(f"Must have a prompt for every image, {file} has none for {missing[0]}")
    document = [document[name] for name in names]
  elif isinstance(document, list):
    while document and document[-1] == "":
      document.pop()
  if not isinstance(document, list) or not all(isinstance(prompt, str) for prompt in document):
    raise UserError(f"Must have a list of prompts or an object from image to prompt in {file}")
  if not document:
    raise UserError(f"Must have prompts in {file}, it is empty")
  if names is not None and len(document) != len(names):
    raise UserError(f"Must have one prompt per image, {file} has {len(document)} for {len(names)} images")
  for number, prompt in enumerate(document, 1):
    if not normalize_prompt(prompt):
      raise UserError(f"Must have a word in every prompt, prompt {number} of {file} is {prompt!r}")
  return document


def chosen_prompts(file: Path, num: int | None) -> list[str]:
  """The first ``num`` prompts of a file, or all.

  Raises:
    UserError: as `read_prompts`, or if there are fewer.
  """
  prompts = read_prompts(file)
  if num is not None and num > len(prompts):
    raise UserError(f"Must have a prompt for each of --num {num} images, {file} has {len(prompts)}")
  return prompts[:num]


def check_new_folder(folder: Path) -> None:
  """Checks that a folder for images is empty or can be made."""
  if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
    raise UserError(f"Must have a new or empty folder for images, {folder} is neither")
  if folder.is_symlink() or folder.resolve() == Path.cwd():
    raise UserError(f"Must have a new or empty folder for images, {folder} is a link or the working directory")
  if not folder.parent.is_dir():
    raise UserError(f"Cannot write {folder}: there is no folder {folder.parent}, make it first")
  try:
    with tempfile.TemporaryFile(dir=folder if folder.exists() else folder.parent):
      pass
  except OSError as error:
    raise UserError(f"Cannot write {folder}: {error.strerror}, choose another place") from error


def write_folder(folder: Path, pixels: np.ndarray, prompts: Sequence[str]) -> None:
  """Writes ``0000.png`` ... and ``prompts.txt``, for `read_folder`; the folder is written atomically."""
  work = None
  try:
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name[:32]}.", dir=folder.parent))
    for number, image in enumerate(pixels):
      Image.fromarray(image).save(work / f"{number:04d}.png")
    lines = (" ".join(prompt.split()) for prompt in prompts)
    (work / PROMPT_FILES[1]).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    work.chmod(0o755)  # temporary folders are private to their owner
    work.rename(folder)  # over an empty folder too
  except OSError as error:
    raise UserError(f"Cannot write images to {folder}: {error.strerror or error}") from error
  finally:
    if work is not None:
      shutil.rmtree(work, ignore_errors=True)
