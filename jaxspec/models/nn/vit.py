"""Pre-norm transformer block with bidirectional attention, as in vision transformers (arXiv 2010.11929).

``x + proj(attention(norm1 x))``, then ``x + fc2(gelu(fc1(norm2 x)))``: affine layer norms, exact GELU, biases
everywhere, one fused matrix for queries, keys and values. The block does not depend on the order of rows: a permutation of
the rows permutes the output, and only the embeddings carry positions. Submodules carry timm's names.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxspec.core.types import Array
from jaxspec.models.nn.attention import attend
from jaxspec.models.nn.linear import Dense, affine
from jaxspec.models.nn.mlp import MLP, gelu
from jaxspec.models.nn.norm import LayerNorm


def take_rows(x: Array, start: Array, size: int) -> Array:
  """Rows ``[B, size, ...]`` of ``x [B, N, ...]`` from ``start [B or 1]`` on (a slice if all share it).

  ``start + size <= N`` must hold; XLA would move the window otherwise.
  """
  if start.shape[0] == 1:
    return jax.lax.dynamic_slice_in_dim(x, start[0], size, axis=1)
  return jax.vmap(lambda row, at: jax.lax.dynamic_slice_in_dim(row, at, size, axis=0))(x, start)


class FusedQKV(nn.Module):
  """Queries, keys and values ``[B, N, D]`` from one matrix; queries of other rows if ``queries`` are given."""

  @nn.compact
  def __call__(self, x: Array, queries: Array | None = None) -> tuple[Array, Array, Array]:
    width = x.shape[-1]
    weight = self.param("weight", nn.initializers.xavier_uniform(), (3 * width, width), jnp.float32)
    bias = self.param("bias", nn.initializers.zeros, (3 * width,), jnp.float32)
    if queries is None:
      q, k, v = jnp.split(affine(x, weight, bias), 3, axis=-1)
      return q, k, v
    k, v = jnp.split(affine(x, weight[width:], bias[width:]), 2, axis=-1)
    return affine(queries, weight[:width], bias[:width]), k, v


class Attention(nn.Module):
  """Bidirectional attention of all rows, or of some rows, to the rows where ``key_mask`` is True."""

  num_heads: int
  attn_dropout: float = 0.0
  proj_dropout: float = 0.0

  @nn.compact
  def __call__(self, x: Array, key_mask: Array, queries: Array | None = None, train: bool = False) -> Array:
    batch, _, width = x.shape
    q, k, v = FusedQKV(name="qkv")(x, queries)
    heads = lambda y: y.reshape(batch, y.shape[1], self.num_heads, -1).swapaxes(1, 2)  # [B, H, N, D / H]
    q, k, v = heads(q), heads(k), heads(v)
    if train and self.attn_dropout:
      scores = jnp.einsum("bhtd,bhsd->bhts", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
      weights = jax.nn.softmax(jnp.where(key_mask[:, None, None], scores, -jnp.inf), axis=-1)
      weights = nn.Dropout(self.attn_dropout, deterministic=False)(weights).astype(q.dtype)
      out = jnp.einsum("bhts,bhsd->bhtd", weights, v)
    else:
      fold = lambda y: y.reshape(batch * self.num_heads, *y.shape[2:])
      out = attend(q, fold(k), fold(v), key_mask[:, None])
    out = out.swapaxes(1, 2).reshape(batch, -1, width)
    return nn.Dropout(self.proj_dropout, deterministic=not train)(Dense(width, name="proj")(out))


class Block(nn.Module):
  """One block.

  Attributes:
    num_heads: heads of the attention.
    mlp_ratio: hidden width of the MLP in units of the width.
    attn_dropout: rate on the attention weights while training.
    proj_dropout: rate after each projection while training.
    eps: of the norms.
  """

  num_heads: int
  mlp_ratio: float = 4.0
  attn_dropout: float = 0.0
  proj_dropout: float = 0.0
  eps: float = 1e-6

  @nn.compact
  def __call__(self, x: Array, key_mask: Array, rows: tuple[Array, int] | None = None, train: bool = False) -> Array:
    """Output of all rows, or of a window of them.

    Args:
      x: ``[B, N, D]``.
      key_mask: ``[B or 1, N]`` bool, False on rows that are not attended to; every batch row must have a True.
      rows: ``(start [B or 1], size)`` of the requested rows; the others serve as keys only.
      train: apply dropout (needs the random stream ``dropout``).
    """
    norm = LayerNorm(self.eps, name="norm1")
    queries = None
    normed = norm(x)
    if rows is not None:
      x, queries = take_rows(x, *rows), take_rows(normed, *rows)
    attention = Attention(self.num_heads, self.attn_dropout, self.proj_dropout, name="attn")
    x = x + attention(normed, key_mask, queries, train)
    mlp = MLP(int(x.shape[-1] * self.mlp_ratio), activation=gelu, std=None, dropout=self.proj_dropout, name="mlp")
    return x + mlp(LayerNorm(self.eps, name="norm2")(x), train)
