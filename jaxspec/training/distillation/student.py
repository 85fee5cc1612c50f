"""A drafter in training, the settings that every training has, and its teacher: the target as its decodes sample it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxspec.core.network import Network
from jaxspec.core.types import Array, Key, ModelFns, ModelOutput, Params, PyTree
from jaxspec.models.conditions import Prefixed
from jaxspec.run.pipeline import Pipeline
from jaxspec.sampling import SamplingConfig
from jaxspec.training.distillation.samples import Batch
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig

Metrics = dict[str, Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillationSettings:
  """Settings of every training of a drafter.

  Attributes:
    num_samples: rows of training and evaluation.
    sample_seed: seed of the rows that the target draws; runs with different ``seed`` may share them.
    num_held_out: rows of them that no update reads, in whole batches.
    kept_gib: memory of the host for outputs of the target. They are computed once if they need less, else in every step.
  """

  seed: int = 0
  num_samples: int = 4608
  sample_seed: int = 0
  num_held_out: int = 128
  batch_size: int = 16
  optimizer: OptimizerConfig = OptimizerConfig()
  loop: LoopConfig = LoopConfig(num_steps=1000)
  ema_decay: float = 0.99
  matmul_precision: str | None = "bfloat16"
  kept_gib: float = 2.0

  def check(self, target: Network) -> None:
    """Checks all settings together, and against a target; its weights are not read.

    Raises:
      ValueError: in one line.
    """
    del target
    if self.batch_size < 1 or self.num_held_out < 1 or self.num_held_out % self.batch_size:
      raise ValueError(f"Must have num_held_out in whole batches of {self.batch_size}, we instead got {self.num_held_out}")
    if self.num_samples <= self.num_held_out:
      raise ValueError(f"Must have num_samples above the {self.num_held_out} held out, we instead got {self.num_samples}")


class StudentLossFn(Protocol):
  """Objective of a student.

  Args:
    params: of the student.
    frozen: `Student.frozen`.
    batch: of `jaxspec.training.distillation.samples.Samples.batch`, with the outputs of ``teach_fn``.
    key: of the step; consumed. None in evaluations.
  Returns:
    ``(loss [], metrics)``; the metric ``acceptance`` is the expected acceptance.
  """

  def __call__(self, params: Params, frozen: PyTree, batch: Batch, key: Key | None, /) -> tuple[Array, Metrics]: ...


class Student(NamedTuple):
  """A drafter in training.

  Attributes:
    name: default name in a bundle.
    config: of its checkpoint.
    params: its initial parameters.
    target: arrays that ``teach_fn`` reads.
    teach_fn: ``(target, batch) -> arrays by name``, the outputs of the target that the loss reads.
    frozen: further arrays that the loss reads and no update changes.
    meta: metadata of the checkpoint.
    finish_fn: from trained parameters to those of the checkpoint.
    files: files of the target that belong into the checkpoint.
  """

  name: str
  config: Any
  params: Params
  target: PyTree
  teach_fn: Callable[[PyTree, Batch], dict[str, Array]]
  frozen: PyTree
  loss_fn: StudentLossFn
  meta: dict[str, Any] = {}
  finish_fn: Callable[[Params], Params] = lambda params: params
  files: tuple[Path, ...] = ()


class Teacher(NamedTuple):
  """The target as decodes sample it: its functions and parameters with guidance, and the settings."""

  fns: ModelFns
  params: Params
  sampling: SamplingConfig


def teacher(pipeline: Pipeline, *, features: str = "both", levels: tuple[int, ...] = ()) -> Teacher:
  """The target of a pipeline at its default settings.

  Args:
    features: see `jaxspec.models.guidance.guided`.
    levels: see `jaxspec.models.feature_levels`.
  Raises:
    ValueError: unless it draws discrete tokens.
  """
  if not isinstance(sampling := pipeline.sampling(), SamplingConfig):
    drawn = pipeline.family.space.noun
    raise ValueError(f"Must have a target that draws discrete tokens for this, {pipeline.name} draws {drawn}")
  fns, side = sampling.side(pipeline.target, features=features, levels=levels)
  return Teacher(fns, side.model, sampling)


def read_rows(fns: ModelFns, params: Params, batch: Batch) -> tuple[ModelOutput, int]:
  """The output ``[B, P + N - 1, ...]`` of a pass over prompts and tokens, and ``P``; the last token is never fed."""
  condition, tokens = batch["condition"], batch["tokens"]
  prefix = fns.prefix_len(condition)
  positions = jnp.arange(prefix + tokens.shape[1] - 1)[None]
  return fns.apply(params, Prefixed(condition, tokens[:, :-1]), None, positions=positions)[0], prefix


def acceptance_of(p: Array, q: Array, valid: Array) -> Array:
  """``1 - TV``, the expected acceptance of a draft from ``q`` (Leviathan et al. 2023, Theorem 3.5).

  Args:
    p: ``[B, N, V]`` probabilities of the target.
    q: ``[B, N, V]`` probabilities of the drafter.
    valid: ``[B, N]`` bool; the mean is over these positions.
  """
  each = jnp.sum(jnp.minimum(p, q), axis=-1)
  return jnp.sum(jnp.where(valid, each, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def master(params: Params) -> Params:
  """Copies of parameters in float32, in which they are trained."""
  return jax.tree.map(lambda leaf: jnp.array(leaf, jnp.float32), params)
