"""Distils a one- or two-layer draft from the shipped target, or from another LlamaGen network of captions or classes.

Commands (from the repository root; an interrupted run resumes)::

    python -m experiments.data.own_samples --num-samples 4608
    python -m experiments.train.draft --config 1 --run-dir runs/draft-1 --export checkpoints/scenes

1. The target, guided at the bundle's scale, has drawn images for random training prompts (a draft reads such samples while
   decoding).
2. Its guided distributions over those images are computed once.
3. The draft starts from the target's embeddings, first layers, norm and head, and minimises the total variation to the
   guided distributions (1 - TV is the expected acceptance; Leviathan et al. 2023, Theorem 3.5) plus a little of the
   Kullback-Leibler divergence, which pulls on tokens the draft misses entirely.

The draft learns the *guided* distribution from the condition alone, so it runs without guidance at half the cost.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.sampled_target import conditions_of, guided_target
from experiments.data.samples import Samples, pick
from experiments.train.command import main
from experiments.train.student import Student, check_export, samples_of, train_student
from jaxspec.models.conditions import Prefixed
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline
from jaxspec.training.common_losses import distillation_kl
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig


@dataclasses.dataclass(frozen=True)
class DraftRun:
  """Everything a run depends on, besides the bundle."""

  seed: int = 0
  num_layers: int = 1
  num_samples: int = 4608
  batch_size: int = 16
  kl_weight: float = 0.1
  optimizer: OptimizerConfig = OptimizerConfig(
    name="muon", learning_rate=2e-3, warmup_steps=20, weight_decay=0.01, muon_learning_rate=0.02
  )
  loop: LoopConfig = LoopConfig(num_steps=1400, log_every=10, eval_every=100, checkpoint_every=100)
  ema_decay: float = 0.99
  matmul_precision: str | None = "bfloat16"
  samples: str = "runs/scenes-samples.npz"
  bundle: str = "checkpoints/scenes"


def get_config(arg: str = "1") -> DraftRun:
  """Config of a run: the number of layers, ``"1"`` or ``"2"``."""
  if arg not in ("1", "2"):
    raise ValueError(f"Must have config '1' or '2', we instead got {arg!r}")
  return DraftRun(num_layers=int(arg))


def target_logits(pipeline: Pipeline, samples: Samples, batch: int = 16) -> np.ndarray:
  """Guided logits ``[M, N, V]`` float16 of the target over its own samples, minus their log-normaliser."""
  fns, params = guided_target(pipeline)
  make, text = conditions_of(pipeline)
  prefix, temperature = pipeline.target.config.prefix_len, pipeline.sampling().temperature

  @jax.jit
  def score(params, text, rows):
    inputs = Prefixed(make(text, rows), rows["tokens"][:, :-1])
    positions = jnp.arange(prefix + rows["tokens"].shape[1] - 1)[None]
    logits = fns.apply(params, inputs, None, positions=positions)[0].logits[:, prefix - 1 :]
    return jax.nn.log_softmax(logits / temperature).astype(jnp.float16)

  parts = []
  for start in range(0, len(samples["tokens"]), batch):
    rows = pick(samples, np.arange(start, min(start + batch, len(samples["tokens"]))))
    parts.append(np.asarray(score(params, text, rows)))
  return np.concatenate(parts)


def draft_from_target(target: LlamaGenConfig, params, num_layers: int) -> tuple[LlamaGenConfig, dict]:
  """Config and starting weights of a draft: everything of the target but its later layers."""
  config = dataclasses.replace(target, num_layers=num_layers)
  dropped = {f"layers_{i}" for i in range(num_layers, target.num_layers)}
  return config, {name: jax.tree.map(jnp.copy, leaf) for name, leaf in params.items() if name not in dropped}


def make_loss_fn(run: DraftRun, config: LlamaGenConfig, pipeline: Pipeline):
  """Total variation plus ``kl_weight`` times KL(target || draft); the metric ``acceptance`` is 1 - TV."""
  fns, (make, _), temperature = llamagen_fns(config), conditions_of(pipeline), pipeline.sampling().temperature

  def loss_fn(params, extra, batch, key):
    del key
    output, _ = fns.apply(params, Prefixed(make(extra, batch), batch["tokens"][:, :-1]))
    logits = output.logits[:, config.prefix_len - 1 :] / temperature
    distribution = batch["distribution"].astype(jnp.float32)
    p, q = jax.nn.softmax(distribution), jax.nn.softmax(logits)
    acceptance = jnp.mean(jnp.sum(jnp.minimum(p, q), axis=-1))
    kl = distillation_kl(distribution, logits)
    return 1 - acceptance + run.kl_weight * kl, ({"acceptance": acceptance, "kl": kl}, extra)

  return loss_fn


def name_of(run: DraftRun) -> str:
  """Name of the draft in its bundle."""
  return f"draft-{run.num_layers}"


def train(run: DraftRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Distils a draft (see `train_student`)."""
  check_export(export_to)
  pipeline = load_pipeline(run.bundle)
  if not isinstance(pipeline.target.config, LlamaGenConfig):
    family = pipeline.family.target.family_name
    raise ValueError(f"Must have a LlamaGen target to cut a draft out of it, {pipeline.name} has a {family}")
  samples = samples_of(run)
  with jax.default_matmul_precision(run.matmul_precision):
    samples["distribution"] = target_logits(pipeline, samples)
  config, params = draft_from_target(pipeline.target.config, pipeline.target.params, run.num_layers)
  loss_fn, script = make_loss_fn(run, config, pipeline), f"draft --config {run.num_layers}"
  text = conditions_of(pipeline)[1]
  student = Student(name_of(run), config, params, text, loss_fn, script, get_config(str(run.num_layers)))
  return train_student(run, pipeline, samples, student, run_dir, resume, export_to)


if __name__ == "__main__":
  main(__doc__, get_config, train, config="1", name_of=name_of)
