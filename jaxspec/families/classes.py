"""Classes as prompts: numbers, or names if a bundle has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxspec.core.network import Network
from jaxspec.core.options import plain
from jaxspec.families.family import Encoded, FamilyParts, check_captions, check_texts
from jaxspec.models.conditions import ClassLabels


def class_names(target: Network, parts: FamilyParts) -> tuple[str, ...]:
  """The part ``classes``: names of a target's labels; () for numbers.

  Raises:
    ValueError: unless there is one name for each class.
  """
  classes = parts.value("classes", ())
  if not isinstance(classes, (list, tuple)) or not all(isinstance(name, str) for name in classes):
    raise ValueError(f"Must have a list of names as classes of {parts.owner}, we instead got {classes!r}")
  if classes and len(classes) != target.config.num_classes:
    raise ValueError(f"Must have {target.config.num_classes} classes for {target.path}, we instead got {len(classes)}")
  return tuple(classes)


def encode_classes(prompts: Any, names: Sequence[str], num_classes: int, captions: Sequence[str] | None) -> Encoded:
  """`ClassLabels` of class names or class numbers.

  Args:
    prompts: one, several, or an array of numbers ``[B]``.
    names: names of all classes, () for numbers.
    captions: texts of the rows for display; the classes by default.
  Raises:
    ValueError: for the first unknown class, with similar names.
  """
  labels = class_labels(prompts, names, num_classes)
  default = [names[label] if names else f"class {label}" for label in labels]
  return Encoded(ClassLabels(np.asarray(labels, np.int32)), check_captions(captions, default, "classes"))


def class_labels(prompts: Any, names: Sequence[str], num_classes: int) -> list[int]:
  """Class numbers of names and numbers; see `encode_classes`."""
  prompts = _listed(prompts)
  if not names or not any(isinstance(prompt, str) for prompt in prompts):
    return class_numbers(prompts, num_classes)
  labels = []
  for prompt in prompts:
    if isinstance(prompt, str) and check_texts(prompt, "class")[0] not in names:
      close = [known for known in names if prompt.partition("-")[0] in known][:8] or names[:8]
      raise ValueError(f"Must have a class such as {', '.join(close)}, we instead got {prompt!r}")
    number = names.index(prompt) if isinstance(prompt, str) else prompt
    labels += class_numbers(number, num_classes)
  return labels


def _listed(prompts: Any) -> list[Any]:
  """A list of one prompt, or of the items of an array or iterable, as plain Python values."""
  prompts = plain(prompts)
  if isinstance(prompts, str) or not isinstance(prompts, Iterable):
    return [prompts]
  return [plain(prompt) for prompt in prompts]


def class_numbers(prompts: Any, num_classes: int) -> list[int]:
  """Class numbers as plain integers; one number is a list of one.

  Raises:
    ValueError: for the first invalid class.
  """
  prompts = _listed(prompts)
  if not prompts:
    raise ValueError("Must have at least one class, we instead got none")
  for label in prompts:
    if isinstance(label, bool) or not isinstance(label, int) or not 0 <= label < num_classes:
      raise ValueError(f"Must have a class from 0 to {num_classes - 1}, we instead got {label!r}")
  return prompts
