"""Prompts, classes, features and texts from the options of a command."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxspec.cli.guards import interruptible
from jaxspec.core.command_line import UserError

if TYPE_CHECKING:
  from jaxspec.families.family import Encoded, Family
  from jaxspec.run.decode_options import DecodeOptions
  from jaxspec.run.job import Job
  from jaxspec.run.pipeline import Pipeline
  from jaxspec.run.prompt_request import PromptRequest
  from jaxspec.run.sources import Sources


def encode(pipeline: Pipeline, *requests: PromptRequest) -> Encoded:
  """Prompts in the target's form, part by part; then frees the weights of encoders.

  Raises:
    ValueError: naming the first prompt that cannot be encoded.
  """
  found = [part.for_family(pipeline.family) for part in requests]
  if len(found) == 1:
    encoded = interruptible(pipeline.encode, found[0], requests[0].captions)
  else:
    encoded = interruptible(pipeline.encode, [prompt for part in found for prompt in part])
  pipeline.family.release()
  return encoded


def read(options: dict[str, Any]) -> PromptRequest | None:
  """The prompts in a command's options; None if there are none.

  Raises:
    UserError: for two kinds at once, a prompt without a word, or one that is a folder of networks.
  """
  from jaxspec.families.family import check_texts
  from jaxspec.run.prompt_request import PromptRequest, check_prompts

  _check_no_networks(options["prompts"])
  prompts = list(options["prompts"]) + read_prompt_file(options.get("prompt_file"))
  kinds = {"class": options.get("classes"), "features": options.get("features"), "text": options.get("texts")}
  given = [name for name, value in kinds.items() if value]
  if len(given) > 1:
    raise UserError(f"Must have one of --class, --features and --text, we instead got --{' and --'.join(given)}")
  if not given:
    if not prompts:
      return None
    check_prompts(prompts)
    return PromptRequest("prompt", prompts)
  if prompts:
    check_texts(prompts, "caption")
  (kind,) = given
  if kind == "text" and prompts:
    raise UserError(f"Must have either --text or prompts of images, we instead got both ({prompts[0]!r})")
  if kind == "features":
    return PromptRequest(kind, kinds[kind], prompts or None)
  return PromptRequest(kind, check_texts(kinds[kind], kind), prompts or None)


def _check_no_networks(prompts: Sequence[str]) -> None:
  """Refuses ``jaxspec diagnose FOLDER``, which would take the shipped networks and the prompt "FOLDER"."""
  from jaxspec.io.bundle import BUNDLE_FILE
  from jaxspec.io.checkpoints import CONFIG_FILE

  options = {BUNDLE_FILE: "--checkpoint", CONFIG_FILE: "--model"}
  for prompt in filter(None, prompts):  # an empty one would be the current folder
    # Prompts may be longer than a file name.
    with contextlib.suppress(OSError, ValueError):
      for file in options:
        if (Path(prompt) / file).is_file():
          raise UserError(f"Must have prompts, we instead got the folder of networks {prompt}; use {options[file]} {prompt}")


def examples(family: Family, num: int, *, part: int = 0, parts: int = 1) -> PromptRequest:
  """Default prompts: built-in ones, or evenly spaced classes.

  Args:
    num: largest number of prompts.
    part: index of one of ``parts`` sets (at most two), disjoint if there are enough classes.
  """
  from jaxspec.cli.example_prompts import HELD_OUT, PROMPTS
  from jaxspec.models.conditions import ClassLabels
  from jaxspec.run.prompt_request import PromptRequest

  if family.condition_type is not ClassLabels:
    return PromptRequest("prompt", list((PROMPTS, HELD_OUT)[part][:num]))
  classes = family.target.config.num_classes
  spread = list(dict.fromkeys(number * classes // (num * parts) for number in range(num * parts)))
  return PromptRequest("class", [str(label) for label in spread[part::parts] or spread])


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
  """The lines of a text file in UTF-8, or in UTF-16 with a mark; only a newline ends a line.

  Raises:
    UserError: if the file cannot be read.
  """
  encoding = "UTF-8"
  try:
    content = file.read_bytes()
    if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
      encoding = "UTF-16"
    text = content.decode("utf-8-sig" if encoding == "UTF-8" else encoding)  # some editors write a byte order mark
  except UnicodeDecodeError as error:
    raise UserError(f"Cannot read prompts from {file}: it is no text in {encoding} (byte {error.start})") from error
  except OSError as error:
    raise UserError(f"Cannot read prompts from {file}: {error.strerror}") from error
  return text.replace("\r\n", "\n").split("\n")


def example_job(options: dict[str, Any], decoding: DecodeOptions) -> tuple[Job, Sources]:
  """The job of a command's prompts, classes or ``--prompts`` built-in ones (8), and the sources of its networks."""
  from jaxspec.cli import compilation_cache
  from jaxspec.cli.job import make_job
  from jaxspec.cli.networks import load_sources, sources_of

  networks, request = sources_of(options), read(options)
  if not options["no_cache"]:
    compilation_cache.enable()
  default = None if request is None else request.checkpoint(decoding.method)
  pipeline = load_sources(networks, default, dtype=options["dtype"], matmul_precision=options["matmul_precision"])
  request = request or examples(pipeline.family, options["num_prompts"] or 8)
  return make_job(pipeline, decoding, encode(pipeline, request), seed=options["seed"]), networks
