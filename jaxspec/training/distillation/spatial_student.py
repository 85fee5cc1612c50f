"""Trains spatial heads (`jaxspec.models.heads.spatial_heads`) of any target of images that heads can be put on.

1. The target, at its guidance, reads its samples once. The heads read the features of the guided distribution, as an EAGLE
   head does (`jaxspec.training.distillation.eagle_student`), so they run without guidance.
2. A step draws windows at random places of each row, about as many as cover it, and compares the row of every place of a
   window with the target's distribution there, given the row's own tokens.
3. Place j of a window counts if the places before it are accepted. The loss is therefore the expected number of accepted
   drafts of a window, ``sum_j prod_(i <= j) a_i`` with the acceptances ``a_i = 1 - TV`` of its places, as a share of the
   window, and a little cross entropy of every place, which reaches places that are never accepted yet.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.network import Network
from jaxspec.models.conditions import Pairs
from jaxspec.models.heads.feature_head import attach, borrowed
from jaxspec.models.heads.spatial_heads import SpatialConfig, SpatialHeads, known_above, spatial_fns
from jaxspec.models.nn.call import call
from jaxspec.run.pipeline import Pipeline
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
class SpatialSettings(DistillationSettings):
  """Settings of `spatial_student`.

  Attributes:
    num_places, num_rows: fields of `jaxspec.models.heads.spatial_heads.SpatialConfig`.
    token_weight: weight of the cross entropy.
  """

  num_places: int = 15
  num_rows: int = 2
  token_weight: float = 0.1
  num_samples: int = 3072
  optimizer: OptimizerConfig = OptimizerConfig(
    name="muon", learning_rate=2e-3, warmup_steps=30, weight_decay=0.01, muon_learning_rate=0.02
  )
  loop: LoopConfig = LoopConfig(num_steps=1500, log_every=10, eval_every=100, checkpoint_every=100)

  def check(self, target: Network) -> None:
    """Checks that such heads can be put on a target; see the base class."""
    super().check(target)
    self.config_of(target.config)

  def config_of(self, host) -> SpatialConfig:
    """The config of the heads for the config of a target.

    Raises:
      ValueError: for a target that such heads cannot be put on.
    """
    return SpatialConfig.of(host, num_places=self.num_places, num_rows=self.num_rows)


def make_loss_fn(settings: SpatialSettings, config: SpatialConfig, temperature: float) -> StudentLossFn:
  """The loss of the windows; metrics ``acceptance`` (of a place), ``accepted`` (drafts of a window) and ``token``.

  The batch has ``features [B, N, D]`` of the target: entry i is the feature that token i is drawn from. ``frozen`` are the
  tables that the heads borrow.
  """
  heads, num = SpatialHeads(config), config.num_places

  def loss_fn(params, frozen, batch, key):
    features, tokens = batch["features"].astype(jnp.float32), batch["tokens"]
    rows, length, dim = features.shape
    weights, row = attach(params, frozen), jnp.arange(rows)
    states = call(heads, weights, Pairs(tokens[:, :-1], features[:, :-1]), method="states")  # [B, N - 1, D]
    windows = -(-length // num)
    key = jax.random.key(0) if key is None else key
    newest = jax.random.randint(key, (rows, windows), 0, length - 1)
    place = newest[..., None] + 1 + jnp.arange(num)[None, None]  # [B, W, K] indices of the drafted tokens
    above, known = known_above(config, newest.reshape(-1), num)  # [B W, R, K]
    of_row = jnp.repeat(row, windows)
    read = states[of_row[:, None, None], jnp.clip(above, 0, length - 2)]
    output = call(heads, weights, states[of_row, newest.reshape(-1)][:, None], read, known, method="places")

    inside = jnp.minimum(place, length - 1)
    wanted = features[row[:, None, None], inside]
    valid = (place < length) & batch["valid"][row[:, None, None], inside]
    distribution = jax.nn.softmax(jnp.einsum("bwkd,vd->bwkv", wanted, frozen["output"]["weight"]) / temperature)
    log_rows = jax.nn.log_softmax(output.need_logits().reshape(distribution.shape) / temperature)
    acceptance = jnp.where(valid, jnp.sum(jnp.minimum(distribution, jnp.exp(log_rows)), axis=-1), 0.0)
    accepted = jnp.sum(jnp.cumprod(acceptance, axis=-1), axis=-1)
    mean = lambda values: jnp.sum(jnp.where(valid, values, 0.0)) / jnp.maximum(jnp.sum(valid), 1)
    token = mean(-jnp.sum(distribution * log_rows, axis=-1))
    whole = jnp.maximum(jnp.sum(valid, axis=-1), 1)  # a window may end with the image
    loss = jnp.mean(1 - accepted / whole) + settings.token_weight * token
    return loss, {"acceptance": mean(acceptance), "accepted": jnp.mean(accepted), "token": token}

  return loss_fn


def spatial_student(pipeline: Pipeline, settings: SpatialSettings) -> Student:
  """The heads of a pipeline's target; its two tables stay the target's."""
  target = pipeline.target
  config = settings.config_of(target.config)
  target_side = teacher(pipeline, features="combined")

  def teach_fn(params, batch):
    output, prefix = read_rows(target_side.fns, params, batch)
    return {"features": output.features[:, prefix - 1 :].astype(jnp.float16)}

  params = jax.jit(spatial_fns(config).init)(jax.random.key(settings.seed))
  loss_fn = make_loss_fn(settings, config, target_side.sampling.temperature)
  tables = borrowed(target.config, target.params)
  return Student("spatial", config, master(params), target_side.params, teach_fn, tables, loss_fn)
