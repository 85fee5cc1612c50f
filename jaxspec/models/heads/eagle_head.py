"""EAGLE drafter network (arXiv 2401.15077, 2406.16858; for images arXiv 2410.03355).

It continues the target's features instead of its tokens. Position j holds the pair of the target's feature at position j and
the embedding of the token at position j + 1, and predicts the feature at position j + 1:

1. ``x = W_fc [embedding; feature] + b``, twice the width to the width;
2. ``x += attention(x)``, without a norm before it; position j has the 2-D rotary angles of the token in its pair;
3. ``x += ffn(rmsnorm(x))``; no final norm: x is the predicted feature;
4. the target's frozen output matrix turns it into logits.

The embedding table and the output matrix are the target's (`jaxspec.models.heads.feature_head`). Token ids of the condition
are 0, as in the training of the public drafters.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from jaxspec.core.mesh import constrain
from jaxspec.core.types import Array, Key, ModelFns, ModelOutput, Params
from jaxspec.models.conditions import Pairs
from jaxspec.models.heads.feature_head import HOST_TABLES, FeatureHeadConfig
from jaxspec.models.llamagen import attention_of, feed_forward
from jaxspec.models.nn.causal import LayerCache, Positions, read_positions
from jaxspec.models.nn.linear import Embedding, Linear
from jaxspec.models.nn.norm import RMSNorm
from jaxspec.models.nn.rope import rope_2d
from jaxspec.models.nn.transformer import Transformer, read_out, transformer_fns


@dataclasses.dataclass(frozen=True)
class EagleConfig(FeatureHeadConfig):
  """Architecture of a drafter. It has ``P - 1`` positions before the first drawn token."""


class Eagle(Transformer):
  """The network; see the module docstring. Call it through `eagle_fns`."""

  config: EagleConfig

  @property
  def num_layers(self) -> int:
    return 1

  def setup(self):
    cfg = self.config
    self.tok_embeddings = Embedding(cfg.vocab_size, cfg.dim)
    self.fc_bias = self.param("fc_bias", nn.initializers.zeros, (cfg.dim,), jnp.float32)
    self.fc = Linear(cfg.dim)
    self.attention = attention_of(cfg)
    self.ffn_norm = RMSNorm(cfg.norm_eps)
    self.feed_forward = feed_forward(cfg.ffn_hidden)
    self.output = Linear(cfg.vocab_size)

  def embed(self, inputs: Pairs, cache=None, positions=None, mask=None, inject=None, slot=None) -> tuple[Array, Positions]:
    if inject is not None:
      raise ValueError("Must have no injected embeddings in an EAGLE drafter, we instead got some")
    cfg = self.config
    embedding = self.tok_embeddings(inputs.tokens)
    if (width := inputs.features.shape[-1]) != cfg.dim:
      raise ValueError(f"Must have features of width {cfg.dim} in an EAGLE drafter, we instead got {width}")
    embedding = constrain(embedding.astype(cfg.dtype))  # the target's tables may be divided
    x = jnp.concatenate([embedding, inputs.features.astype(cfg.dtype)], axis=-1)  # [B, T, 2 D]
    x = self.fc(x) + self.fc_bias.astype(x.dtype)[None, None]
    at = read_positions(x.shape[1], cache, positions, mask, slot)
    table = rope_2d(at.positions, prefix_len=cfg.prefix_len - 1, grid=cfg.grid, head_dim=cfg.head_dim, base=cfg.rope_base)
    return x, dataclasses.replace(at, rotation=table)

  def block(self, i: int, x: Array, at: Positions, cache: LayerCache) -> tuple[Array, LayerCache]:
    attended, cache = self.attention(x, at, cache)
    x = x + attended
    return x + self.feed_forward(self.ffn_norm(x)), cache

  def head(self, x: Array, logits_at: Array | None = None) -> ModelOutput:
    return read_out(x, self.output, logits_at)


@functools.cache
def eagle_fns(config: EagleConfig) -> ModelFns:
  """Pure functions of one drafter network, for inputs that are `Pairs`.

  ``init`` gives the drafter's own parameters; ``apply`` takes them with the target's tables (`attach`).
  """

  def null_condition(params: Params, condition):
    return condition  # the target's features include the unconditional half

  sample = Pairs(np.zeros((1, 1), np.int32), np.zeros((1, 1, config.dim), np.float32))
  fns = transformer_fns(Eagle(config), sample, lambda condition: config.prefix_len - 1, null_condition)

  def init(key: Key) -> Params:
    return {name: leaf for name, leaf in fns.init(key).items() if name not in HOST_TABLES}

  return fns._replace(init=init)
