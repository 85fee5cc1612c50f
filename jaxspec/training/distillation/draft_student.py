"""Distils a draft network of a target's first layers.

1. The draft starts from the target's embeddings, first layers, norm and output matrix.
2. It minimises the total variation to the target's guided distributions, ``1 - acceptance`` (Leviathan et al. 2023, Theorem
   3.5), plus a little of the Kullback-Leibler divergence, which pulls on tokens that the draft misses entirely.

The draft learns the *guided* distribution from the condition alone, so it runs without guidance, at half the cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxspec.core.network import Network
from jaxspec.core.types import ModelFns
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.models import registry
from jaxspec.models.trunk import first_layers
from jaxspec.run.pipeline import Pipeline
from jaxspec.training.common_losses import distillation_kl
from jaxspec.training.distillation.student import (
  DistillationSettings,
  Student,
  acceptance_of,
  master,
  read_rows,
  teacher,
)
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftSettings(DistillationSettings):
  """Settings of `draft_student`.

  Attributes:
    num_layers: layers of the draft.
    kl_weight: weight of the divergence.
  """

  num_layers: int = 1
  kl_weight: float = 0.1
  optimizer: OptimizerConfig = OptimizerConfig(
    name="muon", learning_rate=2e-3, warmup_steps=20, weight_decay=0.01, muon_learning_rate=0.02
  )
  loop: LoopConfig = LoopConfig(num_steps=1400, log_every=10, eval_every=100, checkpoint_every=100)

  def check(self, target: Network) -> None:
    """Checks that a draft can be cut out of a target.

    Raises:
      ValueError: for more layers than it has, or a target whose checkpoint has other ids than it draws.
    """
    super().check(target)
    if not hasattr(target.config, "num_layers") or target.fns is not _make_fns(target)(target.config):
      raise ValueError("Must have a target that draws all ids of its checkpoint to cut a draft out of it, not this one")
    if not 1 <= self.num_layers < target.config.num_layers:
      raise ValueError(
        f"Must have at least 1 layer in a draft, and fewer than the target's {target.config.num_layers}, we instead got "
        f"{self.num_layers}"
      )


def _make_fns(target: Network) -> Callable[[Any], ModelFns]:
  return registry.FAMILIES[target.family_name].make_fns


def draft_student(pipeline: Pipeline, settings: DraftSettings) -> Student:
  """The draft of a pipeline's target; metrics are ``acceptance`` and ``kl``."""
  target = pipeline.target
  make_fns = _make_fns(target)
  config, params = first_layers(make_fns, target.config, target.params, settings.num_layers)
  fns, target_side = make_fns(config), teacher(pipeline)
  temperature = target_side.sampling.temperature

  def teach_fn(params, batch):
    output, prefix = read_rows(target_side.fns, params, batch)
    return {"distribution": jax.nn.log_softmax(output.need_logits()[:, prefix - 1 :] / temperature).astype(jnp.float16)}

  def loss_fn(params, frozen, batch, key):
    del frozen, key
    output, prefix = read_rows(fns, params, batch)
    logits = output.need_logits()[:, prefix - 1 :] / temperature
    distribution, valid = batch["distribution"].astype(jnp.float32), batch["valid"]
    acceptance = acceptance_of(jax.nn.softmax(distribution), jax.nn.softmax(logits), valid)
    kl = distillation_kl(distribution, logits, valid=valid)
    return 1 - acceptance + settings.kl_weight * kl, {"acceptance": acceptance, "kl": kl}

  tokenizer = target.folder / TOKENIZER_FILE
  files: tuple[Path, ...] = (tokenizer,) if tokenizer.is_file() else ()
  name = f"draft-{settings.num_layers}"
  return Student(name, config, master(params), target_side.params, teach_fn, (), loss_fn, files=files)
