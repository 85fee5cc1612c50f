"""Shared parts of language models: their inputs, and the pure functions around their module.

The cache slots of a row hold ``[padding, prompt, generated tokens]``. `align_right` moves the padding of every row to its
beginning, so all rows generate at the same slot. The padding of a row is hidden from its other positions. Positions in the
text (rotary angles, learned positions, windows) count from the first token of the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, ModelFns, Params, PyTree
from jaxspec.models.conditions import Prefixed, Prompt, align_right
from jaxspec.models.nn import kv_cache
from jaxspec.models.nn.causal import Positions, read_positions
from jaxspec.models.nn.transformer import Transformer, transformer_fns
from jaxspec.models.trunk import Tables, Trunk


def read_inputs(
  inputs: PyTree, cache: kv_cache.KVCache | None, positions: Array | None, mask: Array | None, slot: Array | None
) -> tuple[Array, Array, Positions]:
  """Reads the arguments of `jaxspec.core.types.ApplyFn`.

  Args:
    inputs: ids ``[B, T]``, a `Prompt`, or a `Prefixed` prompt without a cache. Outputs of a prompt have the order of
      `align_right`.
    positions: ``[B or 1, T]``, None for a whole text.
  Returns:
    The ids ``[B, T]`` int32, their positions in the text ``[B or 1, T]`` (0 on padding), and their `Positions` in the cache,
    which count padding too.
  """
  ids, valid = inputs, None
  if isinstance(inputs, Prefixed):
    assert isinstance(inputs.condition, Prompt)
    first, valid = align_right(inputs.condition)
    ids = jnp.concatenate([first, inputs.tokens], axis=1)
  elif isinstance(inputs, Prompt):
    ids, valid = align_right(inputs)
  at = read_positions(ids.shape[1], cache, positions, mask, slot, valid)
  padding = jnp.sum(~at.key_mask, axis=1, keepdims=True, dtype=at.positions.dtype)  # [B or 1, 1]
  return ids, jnp.maximum(at.positions - padding, 0), at


def language_fns(module: Transformer) -> ModelFns:
  """Pure functions of a language model; see `transformer_fns`."""
  return transformer_fns(module, np.zeros((1, 1), np.int32), lambda prompt: prompt.tokens.shape[1])


def language_trunk(fns: Callable[[Any], ModelFns], embedding: str) -> Trunk:
  """A family of language models as heads see it.

  A head reads the continuation alone: the features that it continues have read the prompt. The rows of its grid have one
  token, so that its positions have one dimension.

  Args:
    fns: of a config, the functions of its network.
    embedding: name of the embedding table among the parameters.
  """

  def tables(config: Any, params: Params) -> Tables:
    return Tables(params[embedding]["weight"], params[embedding if config.tie_embeddings else "lm_head"]["weight"])

  def head_fields(config: Any) -> dict[str, Any]:
    same = {name: getattr(config, name) for name in ("dim", "num_heads", "vocab_size", "dtype")}
    same |= {"num_kv_heads": config.kv_heads, "ffn_hidden": config.ffn_hidden or 4 * config.dim}
    return same | {"num_tokens": 1, "columns": 1, "prefix_len": 1}

  return Trunk(fns, lambda config, params: params, tables, head_fields)
