"""The condition of a stream: from the handshake of an edge to the arrays that the target reads.

Handshakes are not trusted: every id is checked against the target's sizes.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from jaxspec.core.types import PyTree
from jaxspec.models.conditions import ClassLabels, Prompt, padded_length
from jaxspec.serving.wire.arrays import host_array
from jaxspec.serving.wire.bitstream import MessageError, require
from jaxspec.serving.wire.handshake import Condition

ReadCondition = Callable[[Condition], PyTree]  # returns the family's condition with one row


def reader_like(example: PyTree, vocab: int) -> ReadCondition:
  """Reads conditions like an example: prompts of at most its length, or class labels up to its label.

  Args:
    example: a condition of one row.
    vocab: ids of a prompt are below it.
  Returns:
    A function that raises a MessageError for any other condition. For other examples it refuses every condition: a server of
    captions needs a reader with the text encoder.
  """
  if isinstance(example, Prompt):
    return lambda sent: _prompt(sent, example.tokens.shape[1], vocab)
  if isinstance(example, ClassLabels):
    return lambda sent: _label(sent, int(example.labels[0]))

  def refuse(sent: Condition) -> PyTree:
    raise MessageError("kind", f"{_named(sent)}, and this server has no reader for {type(example).__name__}")

  return refuse


def _prompt(sent: Condition, most: int, vocab: int) -> Prompt:
  if not isinstance(sent, tuple):
    raise MessageError("kind", f"{_named(sent)} instead of a prompt")
  require(1 <= len(sent) <= most, "range", f"a prompt of {len(sent)} ids, 1 to {most} allowed")
  require(all(0 <= token < vocab for token in sent), "range", f"a prompt with an id outside of 0 .. {vocab - 1}")
  return Prompt(host_array(np.asarray([sent], np.int32)), host_array(np.ones((1, len(sent)), bool)))


def _label(sent: Condition, largest: int) -> ClassLabels:
  if not isinstance(sent, int):
    raise MessageError("kind", f"{_named(sent)} instead of a class label")
  require(0 <= sent <= largest, "range", f"class {sent}, 0 to {largest} allowed")
  return ClassLabels(host_array(np.asarray([sent], np.int32)))


def _named(sent: Condition) -> str:
  return {tuple: "a prompt", int: "a class label", str: "a caption"}.get(type(sent), "an unknown condition")


def lengths_of(example: PyTree, least: int) -> list[PyTree]:
  """The example in every compiled length. Prompts have 8, 16, ... ids and those of the example; others have one length.

  Args:
    least: fewest slots of a prompt.
  """
  if not isinstance(example, Prompt):
    return [example]
  most = example.tokens.shape[1]
  lengths = sorted(length for length in {padded_length(own) for own in range(least, most)} if length < most)
  return [Prompt(*(leaf[:, -length:] for leaf in example)) for length in (*lengths, most)]


def fitted(condition: PyTree, example: PyTree) -> PyTree:
  """A condition of one row in one of the compiled lengths, on the host; prompts are padded on the left.

  Args:
    example: a condition of one row, of the largest served length.
  Raises:
    ValueError: for another kind of condition than the example, arrays of other shapes, or a prompt that is too long.
  """
  if type(condition) is not type(example) or condition.batch_size != 1:
    raise ValueError(f"Must have one row of {type(example).__name__}, we instead got {type(condition).__name__}")
  condition = jax.tree.map(np.asarray, condition)
  if isinstance(condition, Prompt):
    most, own = example.tokens.shape[1], condition.tokens.shape[1]
    if not 1 <= own <= most or not condition.mask.any():
      raise ValueError(f"Must have a prompt of 1 to {most} tokens, we instead got {int(condition.mask.sum())} in {own}")
    condition = Prompt(*(np.pad(leaf, ((0, 0), (min(most, padded_length(own)) - own, 0))) for leaf in condition))
  else:
    for leaf, like in zip(jax.tree.leaves(condition), jax.tree.leaves(example)):
      if leaf.shape != like.shape:
        raise ValueError(f"Must have a condition of shapes {like.shape}, we instead got {leaf.shape}")
  return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), condition, example)
