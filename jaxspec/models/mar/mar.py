"""MAR: masked autoregressive image generation over continuous tokens (Li et al. 2024, arXiv 2406.11838).

An image is ``L`` tokens of ``C`` numbers (latents of a KL VAE). Given any subset of known tokens, the network describes
the distribution of each other token by a vector ``z``, from which `jaxspec.models.heads.diff_loss` samples:

1. encoder: ``[class x Nb (the buffer), known tokens]`` with learned positions, layer norm, bidirectional blocks;
2. decoder: a learned mask token at every unknown position, other learned positions, blocks over all ``Nb + L`` rows;
3. ``z`` of a position: its decoder row after the last norm, plus a third table of positions.

**Rows are in generation order.** ``order [B, L]`` names the raster position of the j-th generated token, so the known tokens
are always a prefix. Attention does not depend on the order of rows, and positions are gathered by ``order``. Therefore the
encoder reads the first ``S`` slots, and a key mask hides the unknown ones in rows with shorter prefixes. The official code
masks the *first* entries of its order and generates from its end: ``order = official[:, ::-1]``.

Submodules carry the names of the official state dict.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, Key, Params
from jaxspec.diffusion.ddpm import PredictFn
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.heads.diff_loss import DiffLoss
from jaxspec.models.nn.call import call
from jaxspec.models.nn.config_checks import check_whole, published
from jaxspec.models.nn.denoising import bind_head
from jaxspec.models.nn.linear import Dense, Embedding
from jaxspec.models.nn.norm import LayerNorm
from jaxspec.models.nn.vit import Block, take_rows

_EPS = 1e-6
_STD = 0.02


@dataclasses.dataclass(frozen=True)
class MARConfig:
  """Architecture of one MAR network with its diffusion head.

  Attributes:
    num_tokens: tokens ``L`` of an image; a perfect square.
    latent_channels: channels of the latent image.
    patch_size: side ``p`` of the patch of latent pixels that makes a token; ``C = latent_channels p^2``.
    num_classes: classes; label ``num_classes`` is the unconditional one.
    buffer_size: rows ``Nb`` before the tokens, all with the class embedding.
    attn_dropout: training only.
    proj_dropout: training only.
    dtype: compute dtype; norms and the last layer of the head are float32.
  """

  num_tokens: int = 256
  latent_channels: int = 16
  patch_size: int = 1
  num_classes: int = 1000
  buffer_size: int = 64
  encoder_dim: int = 768
  encoder_depth: int = 12
  encoder_heads: int = 12
  decoder_dim: int = 768
  decoder_depth: int = 12
  decoder_heads: int = 12
  mlp_ratio: float = 4.0
  diffloss_width: int = 1024
  diffloss_depth: int = 6
  attn_dropout: float = 0.1
  proj_dropout: float = 0.1
  dtype: str = "float32"

  def __post_init__(self):
    check_whole(self)
    if self.grid**2 != self.num_tokens:
      raise ValueError(f"Must have a square number of tokens, we instead got {self.num_tokens}")
    for side in ("encoder", "decoder"):
      dim, heads = getattr(self, f"{side}_dim"), getattr(self, f"{side}_heads")
      if dim % heads:
        raise ValueError(f"Must have a {side} width divisible by its heads, we instead got {dim} and {heads}")
    if self.mlp_ratio <= 0:
      raise ValueError(f"Must have a positive mlp_ratio, we instead got {self.mlp_ratio}")

  @property
  def grid(self) -> int:
    """Tokens along one side."""
    return round(self.num_tokens**0.5)

  @property
  def token_dim(self) -> int:
    return self.latent_channels * self.patch_size**2

  @classmethod
  def named(cls, name: str, **overrides) -> MARConfig:
    """A published network, one of `PUBLISHED_SIZES`."""
    dim, depth, heads, head_width, head_depth = published(PUBLISHED_SIZES, name)
    fields: dict[str, Any] = dict(diffloss_width=head_width, diffloss_depth=head_depth)
    for side in ("encoder", "decoder"):
      fields |= {f"{side}_dim": dim, f"{side}_depth": depth, f"{side}_heads": heads}
    return cls(**fields | overrides)


# name: (width, depth, heads) of encoder and decoder, (width, depth) of the diffusion head
PUBLISHED_SIZES = {
  "MAR-B": (768, 12, 12, 1024, 6),
  "MAR-L": (1024, 16, 16, 1280, 8),
  "MAR-H": (1280, 20, 16, 1536, 12),
}


def patchify(latents: Array, patch_size: int) -> Array:
  """Latents ``[B, h, w, c]`` to raster-ordered tokens ``[B, L, C]``; components are channel-major."""
  batch, height, width, channels = latents.shape
  p = patch_size
  x = latents.reshape(batch, height // p, p, width // p, p, channels)
  return x.transpose(0, 1, 3, 5, 2, 4).reshape(batch, -1, channels * p * p)


def unpatchify(tokens: Array, patch_size: int) -> Array:
  """Inverse of `patchify` for square images."""
  batch, length, width = tokens.shape
  p, grid = patch_size, round(length**0.5)
  x = tokens.reshape(batch, grid, grid, width // p**2, p, p)
  return x.transpose(0, 1, 4, 2, 5, 3).reshape(batch, grid * p, grid * p, width // p**2)


class MAR(nn.Module):
  """Encoder and decoder; see the module docstring. Call it through `mar_fns`."""

  config: MARConfig

  def setup(self):
    cfg = self.config
    table = lambda name, rows, dim: self.param(name, nn.initializers.normal(_STD), (1, rows, dim), jnp.float32)
    rows = cfg.buffer_size + cfg.num_tokens
    self.class_emb = Embedding(cfg.num_classes, cfg.encoder_dim)
    self.fake_latent = self.param("fake_latent", nn.initializers.normal(_STD), (1, cfg.encoder_dim), jnp.float32)
    self.z_proj = Dense(cfg.encoder_dim)
    self.z_proj_ln = LayerNorm(_EPS)
    self.encoder_positions = table("encoder_pos_embed_learned", rows, cfg.encoder_dim)
    self.encoder_blocks = [self._block(cfg.encoder_heads) for _ in range(cfg.encoder_depth)]
    self.encoder_norm = LayerNorm(_EPS)
    self.decoder_embed = Dense(cfg.decoder_dim)
    self.mask_token = table("mask_token", 1, cfg.decoder_dim)
    self.decoder_positions = table("decoder_pos_embed_learned", rows, cfg.decoder_dim)
    self.decoder_blocks = [self._block(cfg.decoder_heads) for _ in range(cfg.decoder_depth)]
    self.decoder_norm = LayerNorm(_EPS)
    self.diffusion_positions = table("diffusion_pos_embed_learned", cfg.num_tokens, cfg.decoder_dim)

  def _block(self, num_heads: int) -> Block:
    cfg = self.config
    return Block(num_heads, cfg.mlp_ratio, cfg.attn_dropout, cfg.proj_dropout, _EPS)

  def encode(self, tokens: Array, order: Array, known: Array, condition: ClassLabels, train: bool = False) -> Array:
    """Encoder rows ``[B, Nb + S, D_e]`` of the buffer and the first ``known [B or 1]`` of ``tokens [B, S, C]``."""
    cfg = self.config
    batch, slots, _ = tokens.shape
    labels = condition.labels[:, None]  # [B, 1]
    embedded = self.class_emb(labels)
    embedded = jnp.where((labels == cfg.num_classes)[..., None], self.fake_latent[None], embedded)  # [B, 1, D]
    buffer = jnp.broadcast_to(embedded.astype(cfg.dtype), (batch, cfg.buffer_size, cfg.encoder_dim))
    x = jnp.concatenate([buffer, self.z_proj(tokens.astype(cfg.dtype))], axis=1)
    x = self.z_proj_ln(x + self._positions(self.encoder_positions, order[:, :slots]))
    key_mask = jnp.arange(-cfg.buffer_size, slots)[None] < known[:, None]
    for block in self.encoder_blocks:
      x = block(x, key_mask, None, train)
    return self.encoder_norm(x)

  def decode(self, encoded: Array, order: Array, known: Array, rows: tuple[Array, int] | None, train: bool = False) -> Array:
    """Conditions ``[B, n, D_d]`` of the requested rows."""
    cfg = self.config
    first, last = cfg.buffer_size, len(self.decoder_blocks) - 1
    batch, slots = encoded.shape[0], encoded.shape[1] - first
    x = self.decoder_embed(encoded)
    masked = jnp.broadcast_to(self.mask_token.astype(x.dtype), (batch, cfg.num_tokens, cfg.decoder_dim))
    is_known = (jnp.arange(slots)[None] < known[:, None])[..., None]
    x = jnp.concatenate([x[:, :first], jnp.where(is_known, x[:, first:], masked[:, :slots]), masked[:, slots:]], axis=1)
    x = x + self._positions(self.decoder_positions, order)
    everywhere = jnp.ones((1, x.shape[1]), bool)
    window = None if rows is None else (rows[0] + first, rows[1])
    for i, block in enumerate(self.decoder_blocks):
      # Only the requested rows of the last block's output are read.
      x = block(x, everywhere, window if i == last else None, train)
    x, positions = (x[:, first:], order) if rows is None else (x, take_rows(order, *rows))
    x = self.decoder_norm(x)
    return x + jnp.take(self.diffusion_positions[0], positions, axis=0).astype(x.dtype)

  def _positions(self, table: Array, order: Array) -> Array:
    """Rows of a table of positions for the buffer and for tokens at the positions of ``order [B, S]``."""
    first = self.config.buffer_size
    buffer = jnp.broadcast_to(table[:, :first], (order.shape[0], first, table.shape[-1]))
    return jnp.concatenate([buffer, jnp.take(table[0], first + order, axis=0)], axis=1).astype(self.config.dtype)

  def __call__(
    self,
    tokens: Array,
    order: Array,
    known: Array,
    condition: ClassLabels,
    rows: tuple[Array, int] | None = None,
    train: bool = False,
  ) -> Array:
    encoded = self.encode(tokens, order, known, condition, train)
    return self.decode(encoded, order, known, rows, train).astype(jnp.float32)


class MARFns(NamedTuple):
  """One MAR network as pure functions, the counterpart of `jaxspec.core.types.ModelFns` for continuous tokens.

  ``condition(params, tokens, order, known, condition, start=None, size=None, dropout_key=None)`` gives the input vectors of
  the diffusion head for the positions from slot ``start`` on.

  * tokens: ``[B, S, C]`` float, the tokens of the first ``S`` slots in generation order; S static, ``S >= known``.
  * order: ``[B, L]`` int32, the raster position of every slot.
  * known: ``[B]`` int32 known tokens of each row, or ``[1]`` where all rows share the number (cheaper).
  * condition: `ClassLabels`; label ``num_classes`` is unconditional.
  * start: ``[B]`` or ``[1]`` int32 first requested slot, with ``start + size <= L``; None is all ``L`` slots.
  * dropout_key: a key, consumed, switches dropout on; None is evaluation.
  * returns ``[B, size, Z]`` float32.

  ``predictor(params, z, timesteps)`` binds the head to conditions ``z [..., Z]`` and to the original step numbers ``[T]``
  of a schedule: a `jaxspec.diffusion.ddpm.PredictFn` for states ``[..., C]``, or ``[T, ..., C]`` with an index of that
  rank.
  """

  init: Callable[[Key], Params]
  condition: Callable[..., Array]
  predictor: Callable[[Params, Array, np.ndarray], PredictFn]
  null_condition: Callable[[Params, ClassLabels], ClassLabels]  # the unconditional partner, for guidance
  cost: Callable[[int, int, int], float]  # (slots S, tokens predicted, steps) -> multiply-adds of one iteration and row
  num_tokens: int
  token_dim: int


def multiply_adds(config: MARConfig, slots: int, predicted: int, num_steps: int) -> float:
  """Multiply-adds of one iteration for one row: encoder over ``slots`` tokens, decoder, head for ``predicted`` tokens."""

  def blocks(rows: int, dim: int, depth: int) -> float:
    return depth * ((4 + 2 * config.mlp_ratio) * rows * dim**2 + 2 * rows**2 * dim)

  width = config.diffloss_width
  head = config.diffloss_depth * 5 * width**2 + 2 * width**2 + 3 * config.token_dim * width
  return (
    blocks(config.buffer_size + slots, config.encoder_dim, config.encoder_depth)
    + blocks(config.buffer_size + config.num_tokens, config.decoder_dim, config.decoder_depth)
    + num_steps * predicted * head
  )


@functools.cache
def mar_fns(config: MARConfig) -> MARFns:
  """Pure functions of one network; the same object for equal configs, so that jit caches hit."""
  transformer = MAR(config)
  head = DiffLoss(config.token_dim, config.diffloss_width, config.diffloss_depth, config.dtype)

  def init(key: Key) -> Params:
    transformer_key, head_key = jax.random.split(key)
    tokens, order = jnp.zeros((1, 1, config.token_dim)), jnp.arange(config.num_tokens)[None]
    condition = ClassLabels(jnp.zeros((1,), jnp.int32))
    params = transformer.init(transformer_key, tokens, order, jnp.ones((1,), jnp.int32), condition)["params"]
    z, time = jnp.zeros((1, config.decoder_dim)), jnp.zeros((1,), jnp.int32)
    return {**params, "diffloss": head.init(head_key, tokens[:, 0], time, z)["params"]}

  def condition(params, tokens, order, known, condition, start=None, size=None, dropout_key=None):
    rows = None if start is None else (start, size)
    rngs = None if dropout_key is None else {"dropout": dropout_key}
    own = {name: leaf for name, leaf in params.items() if name != "diffloss"}
    return call(transformer, own, tokens, order, known, condition, rows, dropout_key is not None, rngs=rngs)

  def predictor(params: Params, z: Array, timesteps: np.ndarray) -> PredictFn:
    return bind_head(head, params["diffloss"], z, timesteps)

  def null_condition(params: Params, condition: ClassLabels) -> ClassLabels:
    return ClassLabels(jnp.full_like(condition.labels, config.num_classes))

  cost = functools.partial(multiply_adds, config)
  return MARFns(init, condition, predictor, null_condition, cost, config.num_tokens, config.token_dim)
