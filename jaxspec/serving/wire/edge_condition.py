"""What an edge sends of the condition of a row: ids, a class label, or the text that it was made of."""

from __future__ import annotations

import numpy as np

from jaxspec.core.types import PyTree
from jaxspec.models.conditions import Caption, ClassLabels, Prompt


def sent_condition(condition: PyTree, caption: str | None = None) -> tuple[int, ...] | int | str:
  """The condition of one row as `jaxspec.serving.wire.handshake.Handshake` has it.

  Args:
    condition: `ClassLabels`, `Prompt` or `Caption` of one row.
    caption: the text that ``condition`` was made of. It is sent in place of a caption's features, or of a prompt's ids.
  Raises:
    ValueError: for another condition, a caption without its text, or a text beside another condition.
  """
  if isinstance(condition, Caption) and caption is None:
    raise ValueError("Must have the text of a caption to send it, we instead got its features alone")
  if caption is not None:
    if not isinstance(condition, Caption | Prompt):
      raise ValueError(f"Must have a Caption or a Prompt to send its text, we instead got {type(condition).__name__}")
    return caption
  if isinstance(condition, ClassLabels):
    return int(condition.labels[0])
  if isinstance(condition, Prompt):
    return tuple(np.asarray(condition.tokens)[0][np.asarray(condition.mask)[0]].tolist())
  raise ValueError(f"Must have class labels, a prompt or a caption to send, we instead got {type(condition).__name__}")
