"""Text features for LlamaGen's text networks, by a T5 encoder with weights loaded on demand.

As in LlamaGen: clean the text, truncate it to a number of tokens, encode it with padding on the right, then move the padding
to the left (`jaxspec.models.conditions.left_pad`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.network import Network
from jaxspec.core.types import Array, Params
from jaxspec.io import checkpoints
from jaxspec.io.text import t5_tokenizer
from jaxspec.io.text.caption_cleaning import clean_caption
from jaxspec.models.conditions import Caption, left_pad

_ROWS = 16  # encoded together


class T5Text:
  """A T5 encoder with its tokenizer.

  Args:
    encoder: of the family ``t5``; missing weights are loaded from its folder on demand, in the dtype of its leaves.
  Raises:
    ValueError: for a folder without a tokenizer, or one that does not fit.
  """

  def __init__(self, encoder: Network):
    self._encoder = encoder
    self._tokenizer = t5_tokenizer.load_t5_tokenizer(encoder.folder)
    self._loaded: Params | None = None
    if self._tokenizer.size > encoder.config.vocab_size:
      raise ValueError(
        f"Must have a tokenizer of at most the {encoder.config.vocab_size} tokens of {encoder.path}, we instead got "
        f"{self._tokenizer.size}"
      )

  def encode(self, texts: Sequence[str], max_tokens: int) -> tuple[Caption, list[str]]:
    """`Caption` of texts, float32 numpy leaves, and warnings about truncated prompts.

    Args:
      max_tokens: positions ``P``, including the end token.
    Raises:
      ValueError: if a package for cleaning is missing, or the weights cannot be read.
    """
    cleaned = [clean_caption(text) for text in texts]
    ids, mask, num_dropped = t5_tokenizer.encode(self._tokenizer, cleaned, max_tokens)
    warnings = [f"Nothing of prompt {n} is left after cleaning" for n, text in enumerate(cleaned, 1) if not text]
    warnings += [
      f"Prompt {number} is too long: its last {dropped} of {max_tokens - 1 + dropped} tokens were cut off"
      for number, dropped in enumerate(num_dropped, 1)
      if dropped
    ]
    params, parts = self._params(), []
    size = min(_ROWS, len(texts))
    for start in range(0, len(texts), size):
      rows = np.minimum(np.arange(start, start + size), len(texts) - 1)  # the last batch is padded with the last text
      caption = _encode(params, ids[rows], mask[rows], apply_fn=self._encoder.fns.apply)
      parts.append(jax.device_get(caption))
    whole = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(texts)], *parts)
    return whole, warnings

  def release(self) -> None:
    """Frees the loaded weights; `encode` loads them again."""
    self._loaded = None

  def _params(self) -> Params:
    leaves = jax.tree.leaves(self._encoder.params)
    if not isinstance(leaves[0], jax.ShapeDtypeStruct):
      return self._encoder.params
    if self._loaded is None:
      self._loaded = checkpoints.load(self._encoder.folder, dtype=leaves[0].dtype).params
    return self._loaded


@functools.partial(jax.jit, static_argnames="apply_fn")
def _encode(params: Params, ids: Array, mask: Array, *, apply_fn: Callable) -> Caption:
  return left_pad(apply_fn(params, ids, mask).astype(jnp.float32), mask)
