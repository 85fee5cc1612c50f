"""The networks that a command is told to use: one set of options in all commands, read and loaded in one way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxspec import shipped
from jaxspec.cli.errors import UserError

if TYPE_CHECKING:
  from jaxspec.methods import Method
  from jaxspec.pipeline import Pipeline


class Networks(NamedTuple):
  """Values of the options `jaxspec.cli.options.NETWORKS`; None is nothing said.

  Attributes:
    model: a bundle or a converted network, by folder or shipped name.
    tokenizer: folder of the image tokenizer; ``text_encoder`` that of the network that reads prompts.
    draft_model: folder of a draft besides those of a bundle.
  """

  model: Path | None = None
  tokenizer: Path | None = None
  text_encoder: Path | None = None
  draft_model: Path | None = None

  @classmethod
  def of(cls, options: dict[str, Any], argument: str | None = None) -> Networks:
    """What the options of a command name.

    Args:
      argument: the parameter of a command that takes its networks as an argument, too.
    Raises:
      UserError: for options that contradict each other.
    """
    found = cls(**{name: options[name] for name in cls._fields if name in options})
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

  def needed(self, argument: str) -> Path:
    """The model; a `UserError` where a command that cannot do without got none."""
    if self.model is None:
      raise UserError(f"Must have {argument} or --model, by folder or shipped name")
    return self.model

  @property
  def parts(self) -> dict[str, Path]:
    """What `jaxspec.load_pipeline` takes besides the first argument."""
    found = {"tokenizer": self.tokenizer, "text": self.text_encoder, "draft": self.draft_model}
    return {name: path for name, path in found.items() if path is not None}

  def load(self, default: str | None = None, **kwargs: Any) -> Pipeline:
    """Their pipeline.

    Args:
      default: the shipped bundle where no model is named; None is the default bundle.
      kwargs: as for `jaxspec.load_pipeline`.
    Raises:
      UserError: in one line.
    """
    from jaxspec.cli.job import load

    path = self.model
    if path is None and default is not None:  # nobody typed that name, so it is none of a folder here
      path = shipped.shipped(default)
      if not path.is_dir():
        raise UserError(f"Must have --model DIR: no networks {default} come with this copy")
    try:
      return load(path, **self.parts, **kwargs)
    except ValueError as error:
      if self.model is not None and "part 'tokenizer'" in str(error):
        raise UserError("Must have --tokenizer DIR with --model: the tokenizer turns tokens into pixels") from error
      raise

  def unread(self, method: Method) -> list[str]:
    """A warning about a draft that a method does not draft with."""
    is_unread = self.draft_model is not None and method.draft_family is None
    return [f"Not read by --method {method.name}: --draft-model"] if is_unread else []
