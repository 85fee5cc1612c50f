"""Drafts that are copied from known tokens, without a network: the continuation of an earlier n-gram, or the row above.

`NgramLookup` finds the longest of the newest token runs of a row that occurs earlier in its prompt or tokens, the latest of
equally long ones, and drafts the tokens that followed there (prompt lookup decoding, Saxena 2023; suffix decoding, arXiv
2411.04975). `RowAbove` drafts the tokens one row higher in an image. A copied token is certain: its proposal is a point
mass. Both are functions for `jaxspec.core.constructors.from_history`.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from jaxspec.core.constructors import History
from jaxspec.core.types import Array, Cursor, Draft, Key, PyTree
from jaxspec.drafters.window_init import point_mass
from jaxspec.models.conditions import Prompt, align_right


@dataclasses.dataclass(frozen=True)
class NgramLookup:
  """Copies the continuation of an earlier occurrence of the newest tokens.

  Attributes:
    window: most drafts.
    vocab_size: ``V``.
    longest: most tokens that are compared.
    shortest: fewest tokens that have to be equal.
    reads_prompt: whether the ids of a prompt are those of the row; the prompts of images have other ids.
  """

  window: int
  vocab_size: int
  longest: int
  shortest: int
  reads_prompt: bool = True

  def __call__(self, params: PyTree, keys: Key, cursor: Cursor, history: History) -> Draft:
    known, begin, length = _known(history, cursor, self.reads_prompt)  # [B, S], [B], [B]
    end = begin + length - 1  # index of the newest token
    place = jnp.arange(known.shape[1])[None]
    take = lambda index: jnp.take_along_axis(known, jnp.clip(index, 0, known.shape[1] - 1), axis=1)
    same = jnp.ones(known.shape, bool)
    equal = jnp.zeros(known.shape, jnp.int32)  # tokens before and at each place that equal the newest ones
    for back in range(self.longest):
      same = same & (take(place - back) == take((end - back)[:, None])) & (place - back >= begin[:, None])
      equal = equal + same
    equal = jnp.where(place < end[:, None], equal, 0)
    best = jnp.argmax(equal * known.shape[1] + place, axis=1).astype(jnp.int32)  # the longest; of these, the latest
    found = jnp.max(equal, axis=1) >= self.shortest
    return _copies(known, best + 1, jnp.where(found, end - best, 0), self.window, self.vocab_size)


@dataclasses.dataclass(frozen=True)
class RowAbove:
  """Copies the tokens one row higher.

  Attributes:
    window: most drafts.
    vocab_size: ``V``.
    columns: tokens of a row of the image.
  """

  window: int
  vocab_size: int
  columns: int

  def __call__(self, params: PyTree, keys: Key, cursor: Cursor, history: History) -> Draft:
    start = cursor.length - self.columns
    number = jnp.where(start >= 0, self.columns, 0)
    return _copies(history.tokens, start, number, self.window, self.vocab_size)


def _known(history: History, cursor: Cursor, reads_prompt: bool) -> tuple[Array, Array, Array]:
  """The tokens of prompt and row ``[B, S]``, the index of the first one ``[B]``, and their number ``[B]``."""
  tokens = history.tokens
  if not (reads_prompt and isinstance(history.condition, Prompt)):
    return tokens, jnp.zeros_like(cursor.length), cursor.length
  prompt, mask = align_right(history.condition)
  size = jnp.sum(mask, axis=1).astype(jnp.int32)
  return jnp.concatenate([prompt, tokens], axis=1), prompt.shape[1] - size, size + cursor.length


def _copies(known: Array, start: Array, number: Array, window: int, vocab_size: int) -> Draft:
  """A chain of up to ``window`` of ``number [B]`` tokens from ``start [B]`` on."""
  index = jnp.clip(start[:, None] + jnp.arange(window)[None], 0, known.shape[1] - 1)
  copied = jnp.take_along_axis(known, index, axis=1)
  return Draft.chain(copied, point_mass(copied, vocab_size), jnp.minimum(number, window).astype(jnp.int32), 0)
