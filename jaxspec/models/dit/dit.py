"""DiT: a diffusion transformer that draws whole latent images (Peebles and Xie 2022, arXiv 2212.09748).

A state is a latent image ``[h, w, c]`` of an autoencoder, here one vector of ``C = h w c`` numbers (channels last). The
samplers of `jaxspec.diffusion` treat it as a token. The network predicts noise and variance of a state:

1. patches: a convolution without overlap, plus fixed positions (sines and cosines of the column, then of the row);
2. ``y = time(t) + class``, from the original step number t and a table of classes, whose last row stands for no class;
3. blocks: ``x + gate attention(LN(x) (1 + scale) + shift)``, then the same with an MLP; shifts, scales and gates of a block
   are ``Linear(SiLU(y))``, all of them 0 in a new network;
4. an adaptive norm, and a matrix to the patches of eps and v (`jaxspec.diffusion.ddpm.Prediction`).

Norms have no weights. Submodules carry the names of the official state dict, a list index joined to its list by an
underscore.
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
from jaxspec.diffusion import ddpm
from jaxspec.diffusion.ddpm import PredictFn, Prediction
from jaxspec.diffusion.schedule import SCHEDULES
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.nn.config_checks import check_whole, published
from jaxspec.models.nn.conv import Conv
from jaxspec.models.nn.denoising import FinalLayer, bind_head, time_embed, timestep_features
from jaxspec.models.nn.linear import Dense, Embedding
from jaxspec.models.nn.mlp import MLP
from jaxspec.models.nn.norm import layer_norm
from jaxspec.models.nn.vit import Attention

# Guidance changes the noise of these leading channels only; the released networks were measured in this way.
GUIDED_CHANNELS = 3
_EPS = 1e-6
_MAX_PERIOD = 10000.0

# width: (width, layers, heads)
_WIDTHS = {"S": (384, 12, 6), "B": (768, 12, 12), "L": (1024, 24, 16), "XL": (1152, 28, 16)}
# name: (width, layers, heads, side of a patch)
PUBLISHED_SIZES = {f"DiT-{name}/{patch}": (*width, patch) for name, width in _WIDTHS.items() for patch in (2, 4, 8)}


@dataclasses.dataclass(frozen=True)
class DiTConfig:
  """Architecture of one network; the defaults are DiT-XL/2 for images of 256 pixels.

  Attributes:
    latent_size: side of the latent image.
    latent_channels: its channels.
    patch_size: side of a patch of latent pixels.
    num_classes: classes; label ``num_classes`` is the unconditional one.
    dim: width.
    num_layers: blocks.
    num_heads: heads of every block.
    mlp_ratio: hidden width of an MLP in units of the width.
    schedule: the noise schedule of its training, a name of `jaxspec.diffusion.schedule.SCHEDULES`.
    radius: whether it also predicts a radius of the noise, ``softplus`` of one more final layer (after CIAR, arXiv
      2603.25463).
    dtype: compute dtype; norms and the last layer are float32.
  """

  latent_size: int = 32
  latent_channels: int = 4
  patch_size: int = 2
  num_classes: int = 1000
  dim: int = 1152
  num_layers: int = 28
  num_heads: int = 16
  mlp_ratio: float = 4.0
  schedule: str = "linear"
  radius: bool = False
  dtype: str = "float32"

  def __post_init__(self):
    check_whole(self)
    if self.latent_size % self.patch_size:
      raise ValueError(
        f"Must have a latent_size divisible by patch_size, we instead got {self.latent_size} and {self.patch_size}"
      )
    if self.dim % self.num_heads or self.dim % 4:
      raise ValueError(f"Must have a width divisible by its heads and by 4, we instead got {self.dim} and {self.num_heads}")
    if self.mlp_ratio <= 0:
      raise ValueError(f"Must have a positive mlp_ratio, we instead got {self.mlp_ratio}")
    if self.schedule not in SCHEDULES:
      raise ValueError(f"Must have a schedule in {', '.join(SCHEDULES)}, we instead got {self.schedule!r}")

  @property
  def grid(self) -> int:
    """Patches along one side."""
    return self.latent_size // self.patch_size

  @property
  def state_dim(self) -> int:
    """Numbers ``C`` of a state."""
    return self.latent_size**2 * self.latent_channels

  @classmethod
  def named(cls, name: str, **overrides) -> DiTConfig:
    """A published network, one of `PUBLISHED_SIZES`; ``latent_size=64`` for images of 512 pixels."""
    dim, layers, heads, patch = published(PUBLISHED_SIZES, name)
    fields: dict[str, Any] = dict(dim=dim, num_layers=layers, num_heads=heads, patch_size=patch)
    return cls(**fields | overrides)


def grid_positions(grid: int, dim: int) -> np.ndarray:
  """The fixed positions ``[1, grid^2, dim]`` float32 of patches in raster order.

  ``[sin(c w), cos(c w), sin(r w), cos(r w)]`` at column c and row r with ``w_j = 10000^(-4 j / dim)``, computed in float64.
  """
  frequencies = _MAX_PERIOD ** (-np.arange(dim // 4) / (dim // 4))
  angles = np.arange(grid)[:, None] * frequencies
  along = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)  # [grid, dim / 2]
  columns, rows = np.tile(along, (grid, 1)), np.repeat(along, grid, axis=0)
  return np.concatenate([columns, rows], axis=1)[None].astype(np.float32)


def to_latents(states: Array, config: DiTConfig) -> Array:
  """States ``[..., C]`` as latent images ``[..., h, w, c]``."""
  return states.reshape(*states.shape[:-1], config.latent_size, config.latent_size, config.latent_channels)


def to_states(latents: Array) -> Array:
  """Inverse of `to_latents`."""
  return latents.reshape(*latents.shape[:-3], -1)


class Block(nn.Module):
  """Attention and MLP, each with an adaptive norm before it and a gate after it."""

  num_heads: int
  mlp_ratio: float

  @nn.compact
  def __call__(self, x: Array, y: Array) -> Array:
    """Output ``[B, N, D]`` of patches ``x [B, N, D]`` with conditions ``y [B, 1, D]``."""
    width = x.shape[-1]
    modulation = Dense(6 * width, 0.0, name="adaLN_modulation")(jax.nn.silu(y))
    shift1, scale1, gate1, shift2, scale2, gate2 = jnp.split(modulation, 6, axis=-1)
    norm = lambda h: layer_norm(h, _EPS).astype(h.dtype)
    everywhere = jnp.ones((1, x.shape[1]), bool)
    x = x + gate1 * Attention(self.num_heads, name="attn")(norm(x) * (1 + scale1) + shift1, everywhere)
    mlp = MLP(int(self.mlp_ratio * width), std=None, name="mlp")
    return x + gate2 * mlp(norm(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
  """The network, a `jaxspec.models.nn.denoising.Denoiser` of labels and states; call it through `dit_fns`."""

  config: DiTConfig

  def setup(self):
    cfg = self.config
    self.x_embedder = Conv(cfg.dim, size=cfg.patch_size, stride=cfg.patch_size, padding="VALID")
    self.pos_embed = self.param("pos_embed", lambda key: jnp.asarray(grid_positions(cfg.grid, cfg.dim)))
    self.t_embedder = time_embed(cfg.dim)
    self.y_embedder = Embedding(cfg.num_classes + 1, cfg.dim)
    self.blocks = [Block(cfg.num_heads, cfg.mlp_ratio) for _ in range(cfg.num_layers)]
    self.final_layer = FinalLayer(2 * cfg.patch_size**2 * cfg.latent_channels)
    if cfg.radius:
      self.radius_layer = FinalLayer(cfg.patch_size**2 * cfg.latent_channels)

  def embed_time(self, timesteps: Array) -> Array:
    """``[...]`` original step numbers to ``[..., D]``."""
    return self.t_embedder(timestep_features(timesteps).astype(self.config.dtype))

  def embed_condition(self, labels: Array) -> Array:
    """``[...]`` int32 labels to ``[..., D]``."""
    return self.y_embedder(labels).astype(self.config.dtype)

  def denoise(self, x: Array, y: Array) -> Prediction:
    """Prediction at ``x [..., C]`` for the sum ``y [..., D]`` of both embeddings."""
    cfg = self.config
    side, patch, channels = cfg.grid, cfg.patch_size, cfg.latent_channels
    latents = to_latents(x.reshape(-1, cfg.state_dim), cfg).astype(cfg.dtype)
    y = y.reshape(-1, 1, cfg.dim)
    h = self.x_embedder(latents).reshape(-1, side * side, cfg.dim)
    h = h + self.pos_embed.astype(h.dtype)
    for block in self.blocks:
      h = block(h, y)

    def in_states(out: Array) -> list[Array]:
      """Outputs of a final layer for patches, as states; one for each `latent_channels` channels."""
      parts = out.shape[-1] // (patch**2 * channels)
      out = out.reshape(-1, side, side, patch, patch, parts * channels).swapaxes(2, 3)
      out = out.reshape(-1, cfg.latent_size, cfg.latent_size, parts * channels)
      return [to_states(part).reshape(x.shape) for part in jnp.split(out, parts, axis=-1)]

    (radius,) = in_states(self.radius_layer(h, y)) if cfg.radius else (None,)
    eps, v = in_states(self.final_layer(h, y))
    return Prediction(eps, v, radius if radius is None else jax.nn.softplus(radius))

  def __call__(self, x: Array, timesteps: Array, labels: Array) -> Prediction:
    """Prediction at ``x [..., C]``, each row at its own step number ``[...]`` and label ``[...]``."""
    return self.denoise(x, self.embed_time(timesteps) + self.embed_condition(labels))


class DiTFns(NamedTuple):
  """One network as pure functions.

  ``predictor(params, condition, timesteps)`` binds it to labels ``[B]`` and to the original step numbers ``[T]`` of a
  schedule: a `jaxspec.diffusion.ddpm.PredictFn` for states ``[B, C]``, or ``[R, B, C]`` with an index of that rank.

  ``guided_predictor(params, condition, timesteps, scale)`` is the same with classifier-free guidance, at twice the cost: the
  noise of the first `GUIDED_CHANNELS` channels is guided by ``scale`` (``[]`` float32), other outputs are those of the
  labels.
  """

  init: Callable[[Key], Params]
  predictor: Callable[[Params, ClassLabels, np.ndarray], PredictFn]
  guided_predictor: Callable[[Params, ClassLabels, np.ndarray, Array], PredictFn]
  null_condition: Callable[[Params, ClassLabels], ClassLabels]  # the unconditional partner
  state_dim: int
  schedule: str  # of training


@functools.cache
def dit_fns(config: DiTConfig) -> DiTFns:
  """Pure functions of one network; the same object for equal configs, so that jit caches hit."""
  module = DiT(config)

  def init(key: Key) -> Params:
    zero = jnp.zeros((1,), jnp.int32)
    return module.init(key, jnp.zeros((1, config.state_dim)), zero, zero)["params"]

  def predictor(params: Params, condition: ClassLabels, timesteps: np.ndarray) -> PredictFn:
    return bind_head(module, params, condition.labels, timesteps)

  def guided_predictor(params: Params, condition: ClassLabels, timesteps: np.ndarray, scale: Array) -> PredictFn:
    null = null_condition(params, condition)
    both = ClassLabels(jnp.concatenate([condition.labels, null.labels]))
    predict_fn = predictor(params, both, timesteps)
    is_guided = np.arange(config.state_dim) % config.latent_channels < GUIDED_CHANNELS
    scales = jnp.where(is_guided, scale, 1.0)  # [C]

    def predict(index: Array, x: Array) -> Prediction:
      factor = scales.reshape((1,) * (x.ndim - 1) + (-1,))
      return ddpm.guided(predict_fn, factor, axis=-2)(index, x)

    return predict

  def null_condition(params: Params, condition: ClassLabels) -> ClassLabels:
    return ClassLabels(jnp.full_like(condition.labels, config.num_classes))

  return DiTFns(init, predictor, guided_predictor, null_condition, config.state_dim, config.schedule)
