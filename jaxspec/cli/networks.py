"""The networks of a command: common options, and one way to load them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxspec.core.command_line import UserError
from jaxspec.io import shipped
from jaxspec.run.sources import Sources

if TYPE_CHECKING:
  from jaxspec.methods import Method
  from jaxspec.run.pipeline import Pipeline


def sources_of(options: dict[str, Any], argument: str | None = None) -> Sources:
  """Sources of networks from a command's options (`jaxspec.cli.options.NETWORKS`).

  Args:
    argument: the parameter of a command that also takes its networks as an argument.
  Raises:
    UserError: for options that contradict each other.
  """
  found = Sources(**{name: options[name] for name in Sources._fields if name in options})
  if argument is not None and (given := options[argument]) is not None:
    if found.model is not None:
      raise UserError(f"Must have either {argument.upper()} or --model, we instead got {given} and {found.model}")
    found = found._replace(model=given)
  for name in ("tokenizer", "text_encoder"):
    if found.model is None and getattr(found, name) is not None:
      raise UserError(f"--{name.replace('_', '-')} goes with --model DIR, a converted transformer of images")
  if found.draft_model is not None and options.get("draft") is not None:
    raise UserError("Must have either --draft or --draft-model, not both")
  return found


def needed(sources: Sources, argument: str) -> Path:
  """The model; a `UserError` if it is missing."""
  if sources.model is None:
    raise UserError(f"Must have {argument} or --model, by folder or shipped name")
  return sources.model


def load_sources(sources: Sources, default: str | None = None, **kwargs: Any) -> Pipeline:
  """The pipeline of networks.

  Args:
    default: the shipped bundle without a model; None is the default bundle.
    kwargs: as for `jaxspec.load_pipeline`.
  Raises:
    UserError: in one line.
  """
  from jaxspec.cli.job import load

  path = sources.model
  if path is None and default is not None:  # this name is not from the user, so it is not a folder
    path = shipped.shipped(default)
    if not path.is_dir():
      raise UserError(f"Must have --model DIR: no networks {default} come with this copy")
  try:
    return load(path, **sources.parts, **kwargs)
  except ValueError as error:
    if sources.model is not None and "part 'tokenizer'" in str(error):
      raise UserError("Must have --tokenizer DIR with --model: the tokenizer turns tokens into pixels") from error
    raise


def unread_draft(sources: Sources, method: Method) -> list[str]:
  """A warning about a draft that a method does not use."""
  is_unread = sources.draft_model is not None and method.draft_family is None
  return [f"Not read by --method {method.name}: --draft-model"] if is_unread else []
