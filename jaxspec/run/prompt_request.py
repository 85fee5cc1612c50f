"""The prompts of a decode: texts, classes or features, and the shipped bundle that fits them."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxspec.families.family import check_texts
from jaxspec.families.token_images import FeatureFamily
from jaxspec.io import shipped
from jaxspec.io.text.prompt_spelling import normalize_prompt
from jaxspec.models.conditions import ClassLabels


class PromptRequest(NamedTuple):
  """The prompts of a decode.

  Attributes:
    kind: prompt, class, features or text.
    prompts: texts, class names or numbers as text; a path for features.
    captions: texts of the rows, if they differ from the prompts.
  """

  kind: str
  prompts: Any
  captions: list[str] | None = None

  def checkpoint(self, method: str | None) -> str | None:
    """The shipped bundle for this kind of prompts; None is the default bundle."""
    return shipped.bundle_for(self.kind, method)

  def for_family(self, family: Any) -> Any:
    """The prompts in the form for `jaxspec.run.pipeline.Pipeline.encode`.

    Raises:
      ValueError: if the networks read another kind of prompts.
    """
    where, names = family.target.path, getattr(family, "classes", ())
    if family.condition_type is ClassLabels:
      found = _numbers(self.prompts, names) if self.kind in ("class", "prompt") else []
      if self.kind == "class" or (found and (names or all(isinstance(label, int) for label in found))):
        return found
      raise ValueError(f"{where} draws classes: give --class {'NAME' if names else 'NUMBER'}")
    if self.kind == "class":
      flags = "--text" if family.noun == "text" else "prompts"
      raise ValueError(f"{where} draws no classes: give {flags} instead of --class")
    if self.kind == "features" and not isinstance(family, FeatureFamily):
      kind = "continues texts: give --text" if family.noun == "text" else "reads prompts: give prompts"
      raise ValueError(f"{where} {kind} instead of --features")
    if self.kind == "text" and family.noun != "text":
      raise ValueError(f"{where} draws {family.noun}s: give prompts instead of --text")
    return self.prompts


def check_prompts(prompts: list[str]) -> None:
  """Checks that every prompt has a word.

  Raises:
    ValueError: naming the first such prompt.
  """
  check_texts(prompts, "prompt")
  for number, prompt in enumerate(prompts, 1):
    if not normalize_prompt(prompt):
      raise ValueError(f"Must have a word in every prompt, prompt {number} is {prompt!r}")


def _numbers(names: list[str], known: tuple[str, ...]) -> list[str | int]:
  """Class names unchanged, and class numbers as integers."""
  is_number = lambda name: name.removeprefix("-").isdecimal() and name not in known
  return [int(name) if is_number(name) else name for name in names]
