"""Trains an EAGLE drafter: of the shipped target, or of another that heads can be put on (`jaxspec.models.trunk`) and whose
prompts are classes, are ids, or have a small text encoder.

Commands (from the repository root; an interrupted run resumes)::

    python -m experiments.data.own_samples --num-samples 4608
    python -m experiments.train.eagle --run-dir runs/eagle --export checkpoints/scenes
    python -m experiments.train.eagle --set bundle=weights/anole --set samples=runs/anole.npz --export weights/anole

1. The target, guided at the bundle's scale, reads its own samples once. What it drafts for later is the guided distribution,
   and that has features too: the output matrix is linear, so the features of both halves are guided as their logits are.
2. The drafter reads (feature at j, token at j + 1) and predicts the feature at j + 1: total variation between the two
   distributions after the target's output matrix (1 - TV is the expected acceptance), a little of their cross entropy, and
   smooth L1 on the feature.
3. A second pass reads the drafter's own predictions at random positions, as it does from its second draft on (the idea of
   arXiv 2408.15766); uniform noise on the features makes both robust.

The drafter so needs the condition no more and guidance neither: it runs at half the cost. Architecture: EAGLE
(arXiv 2401.15077).
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
from jaxspec.models.conditions import Pairs, Prefixed
from jaxspec.models.heads.eagle_head import EagleConfig, attach, borrowed, eagle_fns
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline
from jaxspec.training.common_losses import feature_losses
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig

NAME = "eagle"


@dataclasses.dataclass(frozen=True)
class EagleRun:
  """Everything a run depends on, besides the bundle.

  Attributes:
    noise: half-width of the uniform noise on the features, as a share of their root mean square.
    own_fraction: of the positions of the second pass, those that read the drafter's own prediction.
  """

  seed: int = 0
  batch_size: int = 16
  num_samples: int = 4608
  feature_weight: float = 0.5
  token_weight: float = 0.1
  noise: float = 0.1
  own_fraction: float = 0.5
  optimizer: OptimizerConfig = OptimizerConfig(
    name="muon", learning_rate=2e-3, warmup_steps=30, weight_decay=0.01, muon_learning_rate=0.02
  )
  loop: LoopConfig = LoopConfig(num_steps=2000, log_every=10, eval_every=100, checkpoint_every=100)
  ema_decay: float = 0.99
  matmul_precision: str | None = "bfloat16"
  samples: str = "runs/scenes-samples.npz"
  bundle: str = "checkpoints/scenes"


def get_config(arg: str = "") -> EagleRun:
  """Config of a run; there is one."""
  if arg:
    raise ValueError(f"Must have config '', we instead got {arg!r}")
  return EagleRun()


def host_features(pipeline: Pipeline, samples: Samples, prefix_len: int, batch: int = 16) -> np.ndarray:
  """Guided features ``[M, P + N - 1, D]`` float16 of the target over its own samples; P is ``prefix_len``, the drafter's."""
  make, text = conditions_of(pipeline)
  fns, params = guided_target(pipeline, features="combined")

  @jax.jit
  def read(params, text, rows):
    condition, tokens = make(text, rows), rows["tokens"]
    length = fns.prefix_len(condition)
    positions = jnp.arange(length + tokens.shape[1] - 1)[None]
    output, _ = fns.apply(params, Prefixed(condition, tokens[:, :-1]), None, positions=positions)
    return output.features[:, length - prefix_len :].astype(jnp.float16)

  parts = []
  for start in range(0, len(samples["tokens"]), batch):
    rows = pick(samples, np.arange(start, min(start + batch, len(samples["tokens"]))))
    parts.append(np.asarray(read(params, text, rows)))
  return np.concatenate(parts)


def make_loss_fn(run: EagleRun, config: EagleConfig, temperature: float):
  """The loss of both passes; metrics ``acceptance`` and ``acceptance_own`` are their 1 - TV at the bundle's temperature."""
  fns, first = eagle_fns(config), config.prefix_len - 1

  def loss_fn(params, extra, batch, key):
    features = batch["features"].astype(jnp.float32)
    # Position j pairs the feature at j with the token at j + 1; the ids at positions of the condition are 0.
    tokens = jnp.pad(batch["tokens"][:, :-1], ((0, 0), (first, 0)))  # [B, P + N - 2]
    given, wanted = features[:, :-1], features[:, 1:]
    distribution = jnp.einsum("btd,vd->btv", wanted, extra["output"]["weight"]) / temperature
    image = jnp.arange(tokens.shape[1])[None] >= first
    weights = attach(params, extra)

    def compare(read):
      output, _ = fns.apply(weights, Pairs(tokens, read))
      logits = output.logits / temperature
      losses = feature_losses(output.features, wanted, logits, distribution, image)
      p, q = jax.nn.softmax(distribution[:, first:]), jax.nn.softmax(logits[:, first:])
      acceptance = jnp.mean(jnp.sum(jnp.minimum(p, q), axis=-1))
      loss = 1 - acceptance + run.token_weight * losses.token + run.feature_weight * losses.feature
      return loss, acceptance, losses, output.features

    if key is None:
      read, pick_key = given, jax.random.key(0)
    else:
      noise_key, pick_key = jax.random.split(key)
      size = run.noise * jnp.sqrt(jnp.mean(jnp.square(given)))
      read = given + size * jax.random.uniform(noise_key, given.shape, minval=-1.0)
    loss, acceptance, losses, predicted = compare(read)

    # The drafter's output one position before is its input here.
    own = jnp.concatenate([given[:, :1], jax.lax.stop_gradient(predicted[:, :-1])], axis=1)
    chosen = jax.random.bernoulli(pick_key, run.own_fraction, tokens.shape)
    own_loss, own_acceptance, _, _ = compare(jnp.where(chosen[..., None], own, read))
    metrics = {
      "acceptance": acceptance, "acceptance_own": own_acceptance, "feature": losses.feature, "token": losses.token
    }  # fmt: skip
    return 0.5 * (loss + own_loss), (metrics, extra)

  return loss_fn


def train(run: EagleRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains the head (see `train_student`); its two tables stay the target's."""
  check_export(export_to)
  pipeline, samples = load_pipeline(run.bundle), samples_of(run)
  target = pipeline.target
  config = EagleConfig.of(target.config)
  with jax.default_matmul_precision(run.matmul_precision):
    samples["features"] = host_features(pipeline, samples, config.prefix_len)
  student = Student(
    NAME, config, eagle_fns(config).init(jax.random.key(run.seed)),
    borrowed(target.config, target.params),
    make_loss_fn(run, config, pipeline.sampling().temperature), NAME, EagleRun(),
  )  # fmt: skip
  return train_student(run, pipeline, samples, student, run_dir, resume, export_to)


if __name__ == "__main__":
  main(__doc__, get_config, train, name_of=lambda run: NAME)
