"""Trains an EAGLE drafter (arXiv 2401.15077) of any target that heads can be put on (`jaxspec.models.trunk`).

1. The target, at its guidance, reads its samples once. What it drafts for later is the guided distribution, and that has
   features too: the output matrix is linear, so the features of both halves are guided as their logits are.
2. The drafter reads (feature at j, token at j + 1) and predicts the feature at j + 1: total variation between the two
   distributions after the target's output matrix (1 - TV is the expected acceptance), a little of their cross entropy, and
   smooth L1 on the feature.
3. A second pass reads the drafter's own predictions at random positions, as it does from its second draft on (the idea of
   arXiv 2408.15766); uniform noise on the features makes both robust.

The drafter needs neither the condition nor guidance; it runs at half the cost.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.network import Network
from jaxspec.models.conditions import Pairs
from jaxspec.models.heads.eagle_head import EagleConfig, eagle_fns
from jaxspec.models.heads.feature_head import attach, borrowed
from jaxspec.models.trunk import trunk_of
from jaxspec.run.pipeline import Pipeline
from jaxspec.training.common_losses import feature_losses
from jaxspec.training.distillation.student import (
  DistillationSettings,
  Student,
  StudentLossFn,
  acceptance_of,
  master,
  read_rows,
  teacher,
)
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class EagleSettings(DistillationSettings):
  """Settings of `eagle_student`.

  Attributes:
    noise: half-width of the uniform noise on the features, as a share of their root mean square.
    own_fraction: of the positions of the second pass, those that read the drafter's own prediction.
  """

  feature_weight: float = 0.5
  token_weight: float = 0.1
  noise: float = 0.1
  own_fraction: float = 0.5
  optimizer: OptimizerConfig = OptimizerConfig(
    name="muon", learning_rate=2e-3, warmup_steps=30, weight_decay=0.01, muon_learning_rate=0.02
  )
  loop: LoopConfig = LoopConfig(num_steps=2000, log_every=10, eval_every=100, checkpoint_every=100)

  def check(self, target: Network) -> None:
    """Checks that a head can be put on a target; see the base class."""
    super().check(target)
    trunk_of(target.config)


def make_loss_fn(settings: EagleSettings, config: EagleConfig, temperature: float) -> StudentLossFn:
  """The loss of both passes; metrics ``acceptance`` and ``acceptance_own`` are their 1 - TV at the temperature.

  The batch has ``features [B, P + N - 1, D]`` of the target, ``P`` the drafter's. ``frozen`` are the tables that the drafter
  borrows.
  """
  fns, first = eagle_fns(config), config.prefix_len - 1

  def loss_fn(params, frozen, batch, key):
    features = batch["features"].astype(jnp.float32)
    # Position j pairs the feature at j with the token at j + 1; the ids at positions of the condition are 0.
    tokens = jnp.pad(batch["tokens"][:, :-1], ((0, 0), (first, 0)))  # [B, P + N - 2]
    given, wanted = features[:, :-1], features[:, 1:]
    distribution = jnp.einsum("btd,vd->btv", wanted, frozen["output"]["weight"]) / temperature
    valid = jnp.pad(batch["valid"][:, 1:], ((0, 0), (first, 0)))  # the first token needs no drafter
    weights = attach(params, frozen)

    def compare(read):
      output, _ = fns.apply(weights, Pairs(tokens, read), None, positions=None)
      logits = output.need_logits() / temperature
      losses = feature_losses(output.features, wanted, logits, distribution, valid)
      acceptance = acceptance_of(jax.nn.softmax(distribution), jax.nn.softmax(logits), valid)
      loss = 1 - acceptance + settings.token_weight * losses.token + settings.feature_weight * losses.feature
      return loss, acceptance, losses, output.features

    if key is None:
      read, pick_key = given, jax.random.key(0)
    else:
      noise_key, pick_key = jax.random.split(key)
      size = settings.noise * jnp.sqrt(jnp.mean(jnp.square(given)))
      read = given + size * jax.random.uniform(noise_key, given.shape, minval=-1.0)
    loss, acceptance, losses, predicted = compare(read)

    # The drafter's output one position before is its input here.
    own = jnp.concatenate([given[:, :1], jax.lax.stop_gradient(predicted[:, :-1])], axis=1)
    chosen = jax.random.bernoulli(pick_key, settings.own_fraction, tokens.shape)
    own_loss, own_acceptance, _, _ = compare(jnp.where(chosen[..., None], own, read))
    metrics = {
      "acceptance": acceptance, "acceptance_own": own_acceptance, "feature": losses.feature, "token": losses.token
    }  # fmt: skip
    return 0.5 * (loss + own_loss), metrics

  return loss_fn


def eagle_student(pipeline: Pipeline, settings: EagleSettings) -> Student:
  """The drafter of a pipeline's target; its two tables stay the target's."""
  target = pipeline.target
  config = EagleConfig.of(target.config)
  target_side = teacher(pipeline, features="combined")

  def teach_fn(params, batch):
    output, prefix = read_rows(target_side.fns, params, batch)
    return {"features": output.features[:, prefix - config.prefix_len :].astype(jnp.float16)}

  params = jax.jit(eagle_fns(config).init)(jax.random.key(settings.seed))
  loss_fn = make_loss_fn(settings, config, target_side.sampling.temperature)
  tables = borrowed(target.config, target.params)
  return Student("eagle", config, master(params), target_side.params, teach_fn, tables, loss_fn)
