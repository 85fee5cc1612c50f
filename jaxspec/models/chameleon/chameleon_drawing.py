"""Chameleon networks as they draw images: tokens are local ids, prompts keep the ids of the vocabulary.

Local ids are the codes, and with row ends those that end rows and images (`ChameleonConfig.drawn_ids`). The output matrix
has their rows only, an eighth of all.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxspec.core.types import Array, ModelFns, Params
from jaxspec.models.chameleon.chameleon import Chameleon, ChameleonConfig
from jaxspec.models.conditions import Prompt, align_right
from jaxspec.models.language.language import language_fns
from jaxspec.models.trunk import Tables, Trunk, declare


@functools.cache
def drawing_fns(config: ChameleonConfig) -> ModelFns:
  """Pure functions over local ids; their parameters are those of `drawing_params`."""
  fns = language_fns(Chameleon(config, draws=True))
  return fns._replace(null_condition=lambda params, prompt: null_prompt(config, prompt))


def drawing_params(config: ChameleonConfig, params: Params) -> Params:
  """The parameters of `chameleon_fns` with those rows of the output matrix that draw images."""
  return {**params, "lm_head": {"weight": _drawn_rows(config, params["lm_head"]["weight"])}}


def _drawn_rows(config: ChameleonConfig, weight: Array) -> Array:
  """Rows ``[V, D]`` of a table of the whole vocabulary; of a shape their shape (`jaxspec.io.checkpoints.load`)."""
  rows = lambda weight: jnp.take(weight, jnp.asarray(config.drawn_ids), axis=0)
  return jax.eval_shape(rows, weight) if isinstance(weight, jax.ShapeDtypeStruct) else rows(weight)


def _tables(config: ChameleonConfig, params: Params) -> Tables:
  return Tables(_drawn_rows(config, params["embed_tokens"]["weight"]), params["lm_head"]["weight"])


def _head_fields(config: ChameleonConfig) -> dict[str, Any]:
  """A head reads images alone: the features that it continues have read the prompt, whose rows have lengths of their own."""
  rows, columns = config.grid
  same = {name: getattr(config, name) for name in ("dim", "num_heads", "ffn_hidden", "dtype")}
  same |= {"num_kv_heads": config.kv_heads}
  positions = {"num_tokens": rows * columns, "columns": columns, "prefix_len": 1}
  return same | positions | {"vocab_size": len(config.drawn_ids), "rope_base": config.rope_theta}


TRUNK = Trunk(fns=drawing_fns, params=drawing_params, tables=_tables, head_fields=_head_fields)
declare("chameleon", ChameleonConfig, TRUNK)


def null_prompt(config: ChameleonConfig, prompt: Prompt) -> Prompt:
  """The unconditional partner of prompts ``[B, P]``: their ends, in the same slots, with positions that begin at 0."""
  tokens, _ = align_right(prompt)
  first = tokens.shape[1] - config.null_length
  if first < 0:
    raise ValueError(f"Must have prompts of at least {config.null_length} tokens, we instead got {tokens.shape[1]}")
  if config.null_begins == "text":
    tokens = tokens.at[:, first].set(config.begin_text)
  mask = jnp.arange(tokens.shape[1])[None] >= first
  return Prompt(tokens, jnp.broadcast_to(mask, tokens.shape))
