"""What the user wants drawn: prompts, classes, features or texts, and the networks that are meant by it."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxspec.cli.errors import interruptible
from jaxspec.core.command_line import UserError

if TYPE_CHECKING:
  from jaxspec.families.family import Encoded, Family
  from jaxspec.run.asked import Asked
  from jaxspec.run.pipeline import Pipeline


def encode(pipeline: Pipeline, *asked: Asked) -> Encoded:
  """Prompts as the target of a pipeline takes them, one part after the other; what only reads prompts leaves the memory.

  Raises:
    ValueError: naming the first prompt that cannot be encoded.
  """
  found = [part.for_family(pipeline.family) for part in asked]
  if len(found) == 1:
    encoded = interruptible(pipeline.encode, found[0], asked[0].captions)
  else:
    encoded = interruptible(pipeline.encode, [prompt for part in found for prompt in part])
  pipeline.family.release()
  return encoded


def read(options: dict[str, Any]) -> Asked | None:
  """What the options of a command ask for, those of them that it has; None if they ask for nothing.

  Raises:
    UserError: for two kinds at once, or a prompt without a word.
  """
  from jaxspec.families.family import check_texts
  from jaxspec.run.asked import Asked, check_prompts

  prompts = list(options["prompts"]) + read_prompt_file(options.get("prompt_file"))
  kinds = {"class": options.get("classes"), "features": options.get("features"), "text": options.get("texts")}
  given = [name for name, value in kinds.items() if value]
  if len(given) > 1:
    raise UserError(f"Must have one of --class, --features and --text, we instead got --{' and --'.join(given)}")
  if not given:
    if not prompts:
      return None
    check_prompts(prompts)
    return Asked("prompt", prompts)
  if prompts:
    check_texts(prompts, "caption")
  (kind,) = given
  if kind == "text" and prompts:
    raise UserError(f"Must have either --text or prompts of images, we instead got both ({prompts[0]!r})")
  if kind == "features":
    return Asked(kind, kinds[kind], prompts or None)
  return Asked(kind, check_texts(kinds[kind], kind), prompts or None)


def examples(family: Family, num: int, *, part: int = 0, parts: int = 1) -> Asked:
  """Prompts where nobody asked for any: built-in ones, or classes that are evenly spread over all.

  Args:
    num: at most so many.
    part: of ``parts`` sets (two at most) without a common prompt, where there are enough classes for that.
  """
  from jaxspec.cli.example_prompts import HELD_OUT, PROMPTS
  from jaxspec.models.conditions import ClassLabels
  from jaxspec.run.asked import Asked

  if family.condition_type is not ClassLabels:
    return Asked("prompt", list((PROMPTS, HELD_OUT)[part][:num]))
  classes = family.target.config.num_classes
  spread = list(dict.fromkeys(number * classes // (num * parts) for number in range(num * parts)))
  return Asked("class", [str(label) for label in spread[part::parts] or spread])


def read_prompt_file(file: Path | None) -> list[str]:
  """The prompts of a text file, one per line; none without a file.

  Raises:
    UserError: if the file cannot be read or is empty.
  """
  if file is None:
    return []
  lines = [line for line in map(str.strip, read_lines(file)) if line]
  if not lines:
    raise UserError(f"Must have one prompt per line in {file}, it is empty")
  return lines


def read_lines(file: Path) -> list[str]:
  """The lines of a text file in UTF-8, or in UTF-16 with a mark; a line ends at a newline and nowhere else.

  Raises:
    UserError: if the file cannot be read.
  """
  try:
    content = file.read_bytes()
    marked = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    text = content.decode("utf-16" if marked else "utf-8-sig")  # some editors write a mark first
  except UnicodeDecodeError as error:
    raise UserError(f"Cannot read prompts from {file}: it is no text in UTF-8 (byte {error.start})") from error
  except OSError as error:
    raise UserError(f"Cannot read prompts from {file}: {error.strerror}") from error
  return text.replace("\r\n", "\n").split("\n")
