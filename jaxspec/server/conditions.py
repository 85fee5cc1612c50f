"""What a stream is conditioned on: from what an edge sends to the arrays that the target reads.

All that is read here comes from strangers, so every id is checked against what the target has.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxspec.link.bitstream import require
from jaxspec.models.conditions import ClassLabels, Prompt
from jaxspec.types import PyTree

# The ids of a prompt, a class label, or a caption -> the family's condition with one row.
ReadCondition = Callable[[tuple[int, ...] | int | str], PyTree]


def reader_like(example: PyTree, vocab: int) -> ReadCondition:
  """Reads conditions like an example: prompts of at most its length, or class labels up to its label.

  Args:
    example: a condition of one row.
    vocab: ids of a prompt are below it.
  Returns:
    A function that raises a MessageError for what is no such condition. For other examples it refuses everything: a
    server of captions needs a reader of its own, which has the text encoder.
  """
  if isinstance(example, Prompt):
    return lambda sent: _prompt(sent, example.tokens.shape[1], vocab)
  if isinstance(example, ClassLabels):
    return lambda sent: _label(sent, int(example.labels[0]))
  return lambda sent: require(False, "kind", f"{_named(sent)}, and this server has no reader for {type(example).__name__}")


def _prompt(sent: tuple[int, ...] | int | str, most: int, vocab: int) -> Prompt:
  require(isinstance(sent, tuple), "kind", f"{_named(sent)} instead of a prompt")
  require(1 <= len(sent) <= most, "range", f"a prompt of {len(sent)} ids, 1 to {most} allowed")
  require(all(0 <= token < vocab for token in sent), "range", f"a prompt with an id outside of 0 .. {vocab - 1}")
  return Prompt(np.asarray([sent], np.int32), np.ones((1, len(sent)), bool))


def _label(sent: tuple[int, ...] | int | str, largest: int) -> ClassLabels:
  require(isinstance(sent, int), "kind", f"{_named(sent)} instead of a class label")
  require(0 <= sent <= largest, "range", f"class {sent}, 0 to {largest} allowed")
  return ClassLabels(np.asarray([sent], np.int32))


def _named(sent: tuple[int, ...] | int | str) -> str:
  return {tuple: "a prompt", int: "a class label", str: "a caption"}.get(type(sent), "an unknown condition")
