"""A causal transformer over continuous tokens with a diffusion head: the autoregressive variant of MAR (arXiv 2406.11838).

It has the tokens and the DiffLoss head of MAR, but raster order, causal attention and a KV cache. One pass over a whole
draft gives the features of the token after every prefix of the draft, so speculative decoding saves compute. The trunk is
LlamaGen's (2-D rotary positions, SwiGLU, RMSNorm; `jaxspec.models.llamagen`):

1. class -> one condition row; tokens ``[C]`` -> rows by a linear layer;
2. causal blocks; a final norm gives ``z`` of the next token;
3. `jaxspec.models.heads.diff_loss` samples the token given z.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, Key, ModelOutput, Params
from jaxspec.diffusion.ddpm import PredictFn
from jaxspec.models.conditions import ClassLabels, Prefixed
from jaxspec.models.continuous_fns import HeadFns
from jaxspec.models.heads.diff_loss import DiffLoss
from jaxspec.models.llamagen import Block, ClassEmbedding, LlamaGenConfig, rotated
from jaxspec.models.nn.causal import Positions, read_positions, wanted
from jaxspec.models.nn.config_checks import HeadSizes, check_whole
from jaxspec.models.nn.denoising import bind_head
from jaxspec.models.nn.linear import Dense
from jaxspec.models.nn.norm import RMSNorm
from jaxspec.models.nn.transformer import Transformer, transformer_fns


@dataclasses.dataclass(frozen=True)
class CausalTokensConfig(HeadSizes):
  """Architecture of one network.

  Attributes:
    num_tokens: tokens ``L`` of an image; a perfect square.
    latent_channels: channels of the latent image.
    patch_size: side ``p`` of the patch of latent pixels that makes a token; ``C = latent_channels p^2``.
    num_classes: classes; label ``num_classes`` is the unconditional one.
    num_layers: blocks of the trunk, ``dim`` their width, ``num_heads`` their heads.
    diffloss_width: width of the head, ``diffloss_depth`` its blocks.
    dtype: compute dtype; norms and the last layer of the head are float32.
  """

  num_tokens: int = 256
  latent_channels: int = 16
  patch_size: int = 1
  num_classes: int = 1000
  dim: int = 768
  num_layers: int = 12
  num_heads: int = 12
  diffloss_width: int = 1024
  diffloss_depth: int = 6
  dtype: str = "float32"

  def __post_init__(self):
    check_whole(self)
    self.trunk  # noqa: B018  raises for an invalid trunk

  @property
  def token_dim(self) -> int:
    return self.latent_channels * self.patch_size**2

  @property
  def grid(self) -> int:
    """Tokens along one side."""
    return self.trunk.grid

  @property
  def trunk(self) -> LlamaGenConfig:
    """The blocks, as a LlamaGen network of the same width."""
    return LlamaGenConfig(
      num_layers=self.num_layers, dim=self.dim, num_heads=self.num_heads, vocab_size=1, num_tokens=self.num_tokens,
      num_classes=self.num_classes, multiple_of=16, prefix_keys=True, dtype=self.dtype,
    )  # fmt: skip


class CausalTokens(Transformer):
  """The transformer without its head; call it through `causal_token_fns`."""

  config: CausalTokensConfig

  def setup(self):
    cfg = self.config.trunk
    self.cls_embedding = ClassEmbedding(cfg)
    self.input_proj = Dense(cfg.dim)
    self.layers = [Block(cfg) for _ in range(cfg.num_layers)]
    self.norm = RMSNorm(cfg.norm_eps)

  def embed(self, inputs, cache=None, positions=None, mask=None, inject=None, slot=None) -> tuple[Array, Positions]:
    if mask is not None or inject is not None:
      raise ValueError("Must have neither mask nor inject for a network of vector tokens")
    project = lambda tokens: self.input_proj(tokens.astype(self.config.dtype))
    if isinstance(inputs, Prefixed):
      assert isinstance(inputs.condition, ClassLabels)
      condition = self.cls_embedding(inputs.condition).astype(self.config.dtype)
      x = jnp.concatenate([condition, project(inputs.tokens)], axis=1)
    else:
      x = self.cls_embedding(inputs) if isinstance(inputs, ClassLabels) else project(inputs)
    at = read_positions(x.shape[1], cache, positions, None, slot)
    return x.astype(self.config.dtype), rotated(self.config.trunk, at)

  def head(self, x: Array, logits_at: Array | None = None) -> ModelOutput:
    return ModelOutput(None, self.norm(wanted(x, logits_at)).astype(jnp.float32))


@functools.cache
def causal_token_fns(config: CausalTokensConfig) -> HeadFns:
  """Pure functions of one network; the same object for equal configs, so that jit caches hit.

  Its `ModelFns.apply` takes ``tokens [B, T, C]`` float32, `ClassLabels`, or both as `Prefixed` without a cache (training),
  and returns features ``[B, T, D]`` float32, see `jaxspec.models.continuous_fns.ContinuousFns`. It has no logits, draft
  trees or injections.
  """
  head = DiffLoss(config.token_dim, config.diffloss_width, config.diffloss_depth, config.dtype)

  def null_condition(params: Params, condition: ClassLabels) -> ClassLabels:
    return ClassLabels(jnp.full_like(condition.labels, config.num_classes))

  def predictor(params: Params, z: Array, timesteps: np.ndarray) -> PredictFn:
    return bind_head(head, params["diffloss"], z, timesteps)

  sample = Prefixed(ClassLabels(np.zeros((1,), np.int32)), np.zeros((1, 1, config.token_dim), np.float32))
  trunk = transformer_fns(CausalTokens(config), sample, lambda condition: 1, null_condition)

  def init(key: Key) -> Params:
    trunk_key, head_key = jax.random.split(key)
    z, time = jnp.zeros((1, config.dim)), jnp.zeros((1,), jnp.int32)
    return {**trunk.init(trunk_key), "diffloss": head.init(head_key, sample.tokens[:, 0], time, z)["params"]}

  # Continuous tokens have no draft trees, and servers do not support them.
  network = trunk._replace(init=init, compact=None, take=None, put=None)
  return HeadFns(network, predictor, config.num_tokens, config.token_dim)
