"""A causal transformer over vector tokens with a diffusion head: the autoregressive variant of MAR (arXiv 2406.11838).

It has the tokens and the DiffLoss head of MAR, but raster order, causal attention and a KV cache. One pass over a whole
draft gives the features of the token after every prefix of the draft, so speculative decoding pays here. The trunk is
LlamaGen's (2-D rotary positions, SwiGLU, RMSNorm; `jaxspec.models.llamagen`):

1. class -> one condition row; tokens ``[C]`` -> rows by a linear layer;
2. causal blocks; a final norm gives ``z`` of the next token;
3. `jaxspec.models.heads.diff_loss` samples the token given z.
"""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.types import Array, Key, ModelFns, ModelOutput, Params, PyTree
from jaxspec.diffusion.ddpm import PredictFn
from jaxspec.models.conditions import ClassLabels, Prefixed
from jaxspec.models.heads.diff_loss import DiffLoss
from jaxspec.models.llamagen import Block, ClassEmbedding, LlamaGenConfig
from jaxspec.models.nn import kv_cache
from jaxspec.models.nn.call import call
from jaxspec.models.nn.causal import read_positions, run_blocks, wanted
from jaxspec.models.nn.config_checks import check_whole
from jaxspec.models.nn.denoising import bind_head
from jaxspec.models.nn.linear import Dense
from jaxspec.models.nn.norm import RMSNorm
from jaxspec.models.nn.rope import rope_2d
from jaxspec.models.token_fns import HeadFns


@dataclasses.dataclass(frozen=True)
class CausalTokensConfig:
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
    self.trunk  # noqa: B018  raises for an impossible trunk

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


class CausalTokens(nn.Module):
  """The transformer without its head; call it through `causal_token_fns`."""

  config: CausalTokensConfig

  @nn.compact
  def __call__(
    self,
    inputs: PyTree,
    cache: kv_cache.KVCache | None,
    positions: Array | None,
    logits_at: Array | None = None,
    slot: Array | None = None,
  ) -> tuple[Array, kv_cache.KVCache | None]:
    cfg = self.config.trunk
    x = self._embed(inputs).astype(cfg.dtype)  # [B, T, D]
    at = read_positions(x.shape[1], cache, positions, None, slot)
    table = rope_2d(
      at.positions, prefix_len=1, grid=cfg.grid, head_dim=cfg.head_dim, base=cfg.rope_base, prefix_keys=cfg.prefix_keys
    )
    block = lambda i, x, layer: Block(cfg, name=f"layers_{i}")(x, table, at, layer)
    x, cache = run_blocks(block, cfg.num_layers, x, cache, at.key_mask)
    return RMSNorm(cfg.norm_eps, name="norm")(wanted(x, logits_at)).astype(jnp.float32), cache

  def _embed(self, inputs: PyTree) -> Array:
    embed_condition = ClassEmbedding(self.config.trunk, name="cls_embedding")
    project = Dense(self.config.dim, name="input_proj")
    of_tokens = lambda tokens: project(tokens.astype(self.config.dtype))
    if isinstance(inputs, Prefixed):
      assert isinstance(inputs.condition, ClassLabels)
      condition = embed_condition(inputs.condition).astype(self.config.dtype)
      return jnp.concatenate([condition, of_tokens(inputs.tokens)], axis=1)
    return embed_condition(inputs) if isinstance(inputs, ClassLabels) else of_tokens(inputs)


@functools.cache
def causal_token_fns(config: CausalTokensConfig) -> HeadFns:
  """Pure functions of one network; the same object for equal configs, so that jit caches hit.

  Its `ModelFns.apply` takes ``tokens [B, T, C]`` float32, `ClassLabels`, or both as `Prefixed` without a cache (training),
  and returns features ``[B, T, D]`` float32, see `jaxspec.models.token_fns.TokenFns`. It has no logits, draft trees or
  injections.
  """
  module = CausalTokens(config)
  head = DiffLoss(config.token_dim, config.diffloss_width, config.diffloss_depth, config.dtype)

  def init(key: Key) -> Params:
    trunk_key, head_key = jax.random.split(key)
    tokens = jnp.zeros((1, 1, config.token_dim))
    inputs = Prefixed(ClassLabels(jnp.zeros((1,), jnp.int32)), tokens)
    params = module.init(trunk_key, inputs, None, None)["params"]
    z, time = jnp.zeros((1, config.dim)), jnp.zeros((1,), jnp.int32)
    return {**params, "diffloss": head.init(head_key, tokens[:, 0], time, z)["params"]}

  def init_cache(batch: int, max_len: int) -> kv_cache.KVCache:
    trunk = config.trunk
    return kv_cache.init_cache(trunk.num_layers, batch, trunk.kv_heads, max_len, trunk.head_dim, config.dtype)

  def apply(params, inputs, cache=None, *, positions=None, mask=None, inject=None, logits_at=None, slot=None):
    if mask is not None or inject is not None:
      raise ValueError("Must have neither mask nor inject for a network of vector tokens")
    own = {name: leaf for name, leaf in params.items() if name != "diffloss"}
    z, cache = call(module, own, inputs, cache, positions, logits_at, slot)
    return ModelOutput(None, z), cache

  def null_condition(params: Params, condition: ClassLabels) -> ClassLabels:
    return ClassLabels(jnp.full_like(condition.labels, config.num_classes))

  def predictor(params: Params, z: Array, timesteps: np.ndarray) -> PredictFn:
    return bind_head(head, params["diffloss"], z, timesteps)

  network = ModelFns(init, init_cache, apply, lambda condition: 1, null_condition)
  return HeadFns(network, predictor, config.num_tokens, config.token_dim)
