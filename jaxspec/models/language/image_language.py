"""Language models that draw images: image codes and the tokens that end rows and images are part of their vocabulary.

They draw local ids: the codes, and with row ends those that end rows and images (``drawn_ids`` of a config). Prompts keep
the ids of the vocabulary. When they draw, the output matrix has the rows of the local ids only.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, ModelFns, ModelOutput, Params, PyTree
from jaxspec.models.conditions import Prefixed, Prompt
from jaxspec.models.language.image_rows import ImageRows
from jaxspec.models.language.language import language_fns, read_inputs
from jaxspec.models.nn.causal import Positions
from jaxspec.models.nn.config_checks import HeadSizes
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.norm import RMSNorm
from jaxspec.models.nn.rope_text import Rope, rope_table
from jaxspec.models.nn.transformer import Transformer, enter, read_out
from jaxspec.models.trunk import Tables, Trunk


class ImageLanguageConfig(HeadSizes):
  """A base of configs of such networks.

  Attributes:
    max_positions: longest sequence the network is meant for.
    rows: rows of codes of an image, and ``columns`` codes of a row.
    num_codes: image codes; ``first_code`` is the id of code 0, and the others follow.
    dtype: compute dtype.
  """

  vocab_size: int
  num_layers: int
  ffn_hidden: int
  norm_eps: float
  rope_theta: float
  max_positions: int
  rows: int
  columns: int
  num_codes: int
  first_code: int
  dtype: str

  def check_images(self) -> None:
    """Checks the fields of heads, positions and images.

    Raises:
      ValueError: in one line.
    """
    self.check_heads(2)
    if min(self.rows, self.columns, self.num_codes) < 1:
      raise ValueError(f"Must have rows, columns and codes, we instead got {self.rows}, {self.columns}, {self.num_codes}")
    _ = self.rope  # refuses an impossible base

  @property
  def rope(self) -> Rope:
    return Rope(self.rope_theta)

  @property
  def end_ids(self) -> tuple[int, ...]:
    """Ids that end rows and images, in the order of `ImageRows`; none for images of codes alone."""
    raise NotImplementedError

  @property
  def grid(self) -> tuple[int, int]:
    """Rows and columns of the tokens of an image, the column of row ends included."""
    return self.rows, self.columns + bool(self.end_ids)

  @property
  def image_rows(self) -> ImageRows | None:
    """Where rows end; None for images of codes alone."""
    return ImageRows(self.num_codes, self.rows, self.columns, len(self.end_ids) - 1) if self.end_ids else None

  @property
  def drawn_ids(self) -> np.ndarray:
    """``[V]`` int32, ids of the local tokens: the codes, then ``end_ids``."""
    codes = np.arange(self.first_code, self.first_code + self.num_codes, dtype=np.int32)
    return np.concatenate([codes, np.asarray(self.end_ids, np.int32)])


class ImageLanguage(Transformer):
  """Token embeddings, blocks with rotary positions over text and image alike, final RMSNorm, output matrix.

  Attributes:
    draws: whether tokens are local ids of images.
    block_type: class of the blocks, made of the config.
  """

  config: Any
  draws: bool = False
  block_type: ClassVar[Callable[[Any], nn.Module]]

  def setup(self):
    cfg = self.config
    self.embed_tokens = Embedding(cfg.vocab_size, cfg.dim)
    self.layers = [type(self).block_type(cfg) for _ in range(cfg.num_layers)]
    self.norm = RMSNorm(cfg.norm_eps)
    self.lm_head = Linear(len(cfg.drawn_ids) if self.draws else cfg.vocab_size)

  def embed(self, inputs, cache=None, positions=None, mask=None, inject=None, slot=None) -> tuple[Array, Positions]:
    """See `Transformer.embed`."""
    cfg = self.config
    inputs = self._of_vocabulary(inputs) if self.draws else inputs
    ids, text_positions, at = read_inputs(inputs, cache, positions, mask, slot)
    at = dataclasses.replace(at, rotation=rope_table(cfg.rope, text_positions, cfg.head_dim))
    return enter(self.embed_tokens(ids), cfg.dtype, inject), at

  def head(self, x: Array, logits_at: Array | None = None) -> ModelOutput:
    """See `Transformer.head`."""
    return read_out(self.norm(x), self.lm_head, logits_at)

  def _of_vocabulary(self, inputs: PyTree) -> PyTree:
    """Inputs whose local ids are replaced by the vocabulary's; those of prompts are already."""
    if isinstance(inputs, Prompt):
      return inputs
    look_up = lambda tokens: jnp.take(jnp.asarray(self.config.drawn_ids), tokens, mode="clip")
    if isinstance(inputs, Prefixed):
      return Prefixed(inputs.condition, look_up(inputs.tokens))
    return look_up(inputs)


def image_language_trunk(module_of: Callable[..., ImageLanguage], null_prompt: Callable[[Any, Prompt], Prompt]) -> Trunk:
  """A family of such networks as they draw images, and as heads see them.

  Args:
    module_of: class of the networks.
    null_prompt: the unconditional partner of prompts for a config.
  """

  @functools.cache
  def drawing_fns(config: Any) -> ModelFns:
    """Pure functions over local ids; their parameters are those of `drawing_params`."""
    fns = language_fns(module_of(config, draws=True))
    return fns._replace(null_condition=lambda params, prompt: null_prompt(config, prompt))

  return Trunk(fns=drawing_fns, params=drawing_params, tables=_tables, head_fields=_head_fields)


def drawing_params(config: Any, params: Params) -> Params:
  """The parameters over the whole vocabulary with those rows of the output matrix that draw images."""
  return {**params, "lm_head": {"weight": _drawn_rows(config, params["lm_head"]["weight"])}}


def _drawn_rows(config: Any, weight: Array) -> Array:
  """Rows ``[V, D]`` of a table of the whole vocabulary; of a shape their shape (`jaxspec.io.checkpoints.load`)."""
  rows = lambda weight: jnp.take(weight, jnp.asarray(config.drawn_ids), axis=0)
  return jax.eval_shape(rows, weight) if isinstance(weight, jax.ShapeDtypeStruct) else rows(weight)


def _tables(config: Any, params: Params) -> Tables:
  return Tables(_drawn_rows(config, params["embed_tokens"]["weight"]), params["lm_head"]["weight"])


def _head_fields(config: Any) -> dict[str, Any]:
  """A head reads images alone: the features that it continues have read the prompt, whose rows have lengths of their own."""
  rows, columns = config.grid
  same = {name: getattr(config, name) for name in ("dim", "num_heads", "ffn_hidden", "dtype")}
  same |= {"num_kv_heads": config.kv_heads}
  positions = {"num_tokens": rows * columns, "columns": columns, "prefix_len": 1}
  return same | positions | {"vocab_size": len(config.drawn_ids), "rope_base": config.rope_theta}
