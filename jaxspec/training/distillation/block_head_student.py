"""Trains a block head (DFlash, arXiv 2602.06036) of any target that heads can be put on (`jaxspec.models.trunk`).

1. The target, at its guidance, reads its samples once. Features of three layers are kept; those of the last one give the
   distributions too.
2. Every row has some random anchors, indices of tokens. The head reads the features before an anchor, the token there and
   masks for the tokens after it. One pass reads all anchors of a row: the attention mask hides later features and the inputs
   of other anchors.
3. Row j of an anchor is compared with the target's distribution of token j after it: cross entropy of the sampled code, and
   total variation (1 - TV is the expected acceptance). Later rows are reached less often; row j has the weight
   ``exp(-(j - 1) / decay)``.

The head needs neither the condition nor guidance; it runs at half the cost.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.network import Network
from jaxspec.core.types import Array, Key
from jaxspec.models.conditions import Context, Prefixed
from jaxspec.models.heads.block_head import MASK, BlockHeadConfig, block_head_fns
from jaxspec.models.heads.feature_head import attach, borrowed
from jaxspec.models.trunk import trunk_of
from jaxspec.run.pipeline import Pipeline
from jaxspec.training.common_losses import token_losses
from jaxspec.training.distillation.student import (
  DistillationSettings,
  Student,
  StudentLossFn,
  master,
  read_rows,
  teacher,
)
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockHeadSettings(DistillationSettings):
  """Settings of `block_head_student`.

  Attributes:
    num_layers: layers of the head.
    gamma: drafts of a block.
    num_anchors: blocks of a row in one update.
    decay: rows after which the weight of a row has fallen to 1 / e.
    token_weight: of the cross entropy, beside the total variation.
  """

  num_layers: int = 2
  gamma: int = 7
  num_anchors: int = 16
  decay: float = 5.0
  token_weight: float = 0.1
  optimizer: OptimizerConfig = OptimizerConfig(
    name="muon", learning_rate=2e-3, warmup_steps=30, weight_decay=0.01, muon_learning_rate=0.02
  )
  loop: LoopConfig = LoopConfig(num_steps=2000, log_every=10, eval_every=100, checkpoint_every=100)

  def check(self, target: Network) -> None:
    """Checks that a head can be put on a target; see the base class."""
    super().check(target)
    trunk_of(target.config)
    for name in ("num_layers", "gamma", "num_anchors"):
      if getattr(self, name) < 1:
        raise ValueError(f"Must have {name} of at least 1, we instead got {getattr(self, name)}")
    if not self.decay > 0:
      raise ValueError(f"Must have a decay above 0, we instead got {self.decay}")


def anchors_of(key: Key | None, rows: int, number: int, length: int) -> Array:
  """Indices ``[B, A]`` of tokens, each with at least one token after it; evenly spaced ones without a key."""
  if key is None:
    return jnp.broadcast_to(jnp.arange(number)[None] * (length - 1) // number, (rows, number))
  return jax.random.randint(key, (rows, number), 0, length - 1)


def block_inputs(tokens: Array, anchors: Array, gamma: int, prefix_len: int, known: int) -> tuple[Array, Array, Array]:
  """Inputs of one pass over ``known`` features and the blocks of all anchors.

  Args:
    tokens: ``[B, N]`` of the rows.
    anchors: ``[B, A]`` indices of tokens; index i is at position ``prefix_len + i``.
  Returns:
    Ids ``[B, A K]``, positions ``[B, C + A K]`` and mask ``[B, C + A K, C + A K]`` of the features and the ids.
  """
  rows, number = anchors.shape
  newest = jnp.take_along_axis(tokens, anchors, axis=1)[..., None]
  ids = jnp.where(jnp.arange(gamma)[None, None] == 0, newest, MASK).reshape(rows, -1)
  first = prefix_len + jnp.repeat(anchors, gamma, axis=1)  # [B, A K] position of the anchor of each input
  of_features = jnp.broadcast_to(jnp.arange(known)[None], (rows, known))
  positions = jnp.concatenate([of_features, first + jnp.tile(jnp.arange(gamma), number)[None]], axis=1)
  block = jnp.concatenate([jnp.full((known,), -1), jnp.repeat(jnp.arange(number), gamma)])  # the features are in no block
  ends = jnp.concatenate([jnp.zeros_like(of_features), first], axis=1)  # an input sees the features before this position
  sees_feature = (block == -1)[None, None] & (positions[:, None] < ends[..., None])
  return ids, positions, sees_feature | (block[:, None] == block[None])[None]


def make_loss_fn(settings: BlockHeadSettings, config: BlockHeadConfig, temperature: float) -> StudentLossFn:
  """The loss; metrics are ``acceptance``, the mean over all rows of blocks, and ``tokens``, the expected number of tokens of
  a round: 1 and the products of the acceptances of a block's first rows.

  The batch has ``features [B, P + N - 1, L D]`` of the target, ``P`` the head's. ``frozen`` are the tables that the head
  borrows.
  """
  fns, gamma, prefix_len = block_head_fns(config), settings.gamma, config.prefix_len

  def loss_fn(params, frozen, batch, key):
    features, tokens = batch["features"].astype(jnp.float32), batch["tokens"]
    rows, length = tokens.shape
    anchors = anchors_of(key, rows, settings.num_anchors, length)
    ids, positions, mask = block_inputs(tokens, anchors, gamma, prefix_len, features.shape[1])
    inputs = Prefixed(Context(features), ids)
    output, _ = fns.apply(attach(params, frozen), inputs, None, positions=positions, mask=mask)
    logits = output.need_logits() / temperature  # [B, A K, V]

    drafted = (anchors[..., None] + 1 + jnp.arange(gamma)[None, None]).reshape(rows, -1)  # [B, A K] indices of tokens
    at = jnp.minimum(drafted, length - 1)
    valid = (drafted < length) & jnp.take_along_axis(batch["valid"], at, axis=1)
    newest = jnp.take_along_axis(features[..., -config.dim :], (prefix_len - 1 + at)[..., None], axis=1)
    distribution = jax.nn.softmax(jnp.einsum("btd,vd->btv", newest, frozen["output"]["weight"]) / temperature)
    acceptance = jnp.sum(jnp.minimum(distribution, jax.nn.softmax(logits)), axis=-1)
    token = token_losses(logits, jnp.take_along_axis(tokens, at, axis=1))

    weight = jnp.exp(-jnp.tile(jnp.arange(gamma), settings.num_anchors) / settings.decay)[None] * valid
    mean = lambda values, weight: jnp.sum(values * weight) / jnp.maximum(jnp.sum(weight), 1e-6)
    loss = mean(1 - acceptance + settings.token_weight * token, weight)
    by_block = lambda values: values.reshape(-1, gamma)
    reached = jnp.sum(jnp.cumprod(by_block(acceptance * valid), axis=1), axis=1)
    metrics = {
      "acceptance": mean(acceptance, valid), "token": mean(token, valid),
      "tokens": 1 + mean(reached, by_block(valid)[:, -1]),  # of whole blocks
    }  # fmt: skip
    return loss, metrics

  return loss_fn


def block_head_student(pipeline: Pipeline, settings: BlockHeadSettings) -> Student:
  """The head of a pipeline's target; its two tables stay the target's."""
  target = pipeline.target
  config = BlockHeadConfig.of(target.config, settings.num_layers)
  target_side = teacher(pipeline, features="combined", levels=config.levels)

  def teach_fn(params, batch):
    output, prefix = read_rows(target_side.fns, params, batch)
    return {"features": output.features[:, prefix - config.prefix_len :].astype(jnp.float16)}

  params = jax.jit(block_head_fns(config).init)(jax.random.key(settings.seed))
  loss_fn = make_loss_fn(settings, config, target_side.sampling.temperature)
  tables = borrowed(target.config, target.params)
  return Student(f"block-{settings.num_layers}", config, master(params), target_side.params, teach_fn, tables, loss_fn)
