"""Trains an edge network with an Inter-Head against its cloud (CIAR, arXiv 2603.25463, sections 3.2 and 3.4).

1. Contexts are rows that the cloud drew itself (an edge network reads such rows while decoding).
2. The edge network starts from the cloud's first layers, its norm and its output matrix; its radii are 0.5 everywhere.
3. A step minimises the Inter-DRO loss to the distributions of the frozen, guided cloud. The edge network learns them from
   the condition alone and runs without guidance, at half the cost.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxspec.core.network import Network
from jaxspec.intervals.scores import IntervalScore
from jaxspec.models.heads.inter_head import edge_from_cloud, inter_head_fns
from jaxspec.models.trunk import trunk_of
from jaxspec.run.pipeline import Pipeline
from jaxspec.training.distillation.student import (
  DistillationSettings,
  Student,
  acceptance_of,
  master,
  read_rows,
  teacher,
)
from jaxspec.training.inter_dro import InterDro, inter_dro
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class InterHeadSettings(DistillationSettings):
  """Settings of `inter_head_student`.

  Attributes:
    num_layers: depth of the edge network; the paper takes 1, 2, 3 and 5.
    num_heads, combination: fields of `jaxspec.models.heads.inter_head.InterHeadConfig`.
    temperature: of the distributions that the edge network learns; 1 as published. Thresholds are on scores at temperature 1
      either way.
    guided: train an edge network that runs with its own guidance, as in the paper; its two halves then learn the cloud's two
      halves.
  """

  num_layers: int = 2
  num_heads: int = 1
  combination: str = "ensemble"
  loss: InterDro = InterDro()
  num_samples: int = 512
  batch_size: int = 8
  temperature: float = 1.0
  guided: bool = False
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3, warmup_steps=20, weight_decay=0.01)
  loop: LoopConfig = LoopConfig(num_steps=800, log_every=10, eval_every=200, checkpoint_every=200)

  def check(self, target: Network) -> None:
    """Checks that such a head can be put on a target; see the base class."""
    super().check(target)
    trunk_of(target.config)
    if not 1 <= self.num_layers <= target.config.num_layers:
      raise ValueError(f"Must have 1 to {target.config.num_layers} layers, we instead got {self.num_layers}")


def inter_head_student(pipeline: Pipeline, settings: InterHeadSettings) -> Student:
  """The edge network of a pipeline's target; metrics are the terms of the loss, ``acceptance``, ``radius`` and U.

  Raises:
    ValueError: for a ``guided`` one of a target without guidance.
  """
  cloud = pipeline.target
  if settings.guided and cloud.fns.null_condition is None:
    raise ValueError(f"Must have a target with guidance for guided=True, {pipeline.name} has none")
  config, params = edge_from_cloud(
    cloud.config, cloud.params, settings.num_layers, jax.random.key(settings.seed),
    num_heads=settings.num_heads, combination=settings.combination,
  )  # fmt: skip
  edge, score_fn = inter_head_fns(config), IntervalScore(combination=settings.combination)
  side = teacher(pipeline)
  fns, target_params = (cloud.fns, cloud.params) if settings.guided else (side.fns, side.params)

  def halves(batch, params):
    """Rows with their conditions, then the same rows without."""
    double = lambda a, b: jnp.concatenate([a, b])
    condition, null_condition = batch["condition"], cloud.fns.null_condition
    assert null_condition is not None
    condition = jax.tree.map(double, condition, null_condition(params, condition))
    return {"condition": condition, "tokens": double(batch["tokens"], batch["tokens"])}

  def teach_fn(params, batch):
    """``logits [B, G, N, V]``: G is 2 (with the condition and without) for an edge network with its own guidance."""
    output, prefix = read_rows(fns, params, halves(batch, params) if settings.guided else batch)
    logits = output.need_logits()[:, prefix - 1 :]
    return {"logits": jnp.moveaxis(logits.reshape(-1, len(batch["tokens"]), *logits.shape[1:]), 0, 1)}

  def loss_fn(params, frozen, batch, key):
    inputs = halves(batch, frozen) if settings.guided else batch
    output, prefix = read_rows(edge, params, inputs)
    distribution = jnp.concatenate(jnp.moveaxis(batch["logits"], 1, 0)) / settings.temperature
    intervals = jax.tree.map(lambda x: x[:, prefix - 1 :], output.intervals)
    valid = jnp.concatenate([batch["valid"]] * (1 + settings.guided))
    loss, terms = inter_dro(intervals, distribution, settings.loss, valid)
    p, q = jax.nn.softmax(distribution), jnp.mean(jax.nn.softmax(intervals.centre), axis=-2)
    first = jax.tree.map(lambda x: x[:, 0], intervals)  # U of one position per row: a glance, not an evaluation
    uncertainty = score_fn(first, jnp.zeros((p.shape[0], 1)), key)
    figures = {
      "acceptance": acceptance_of(p, q, valid), "radius": jnp.mean(intervals.radius), "uncertainty": jnp.mean(uncertainty)
    }  # fmt: skip
    return loss, terms | figures

  meta = {"guided": settings.guided, "distilled_at_temperature": settings.temperature}
  frozen = cloud.params if settings.guided else ()  # the unconditional condition is a parameter of the cloud
  return Student(f"inter-{settings.num_layers}", config, master(params), target_params, teach_fn, frozen, loss_fn, meta)
