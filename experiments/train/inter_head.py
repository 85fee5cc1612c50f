"""Trains an edge network with an Inter-Head against its cloud (CIAR, arXiv 2603.25463, sections 3.2 and 3.4).

Commands (from the repository root; an interrupted run resumes)::

    python -m experiments.data.own_samples --num-samples 4608
    python -m experiments.train.inter_head --config 2 --run-dir runs/inter-2 --export checkpoints/scenes
    python -m experiments.train.inter_head --config 1 --set bundle=anole --set samples=runs/anole.npz --export anole

The cloud is the shipped one, or another that heads can be put on (`jaxspec.models.trunk`) and whose prompts are classes, are
ids, or have a small text encoder.

1. Contexts are images that the guided cloud drew for random prompts (an edge network reads such images while decoding).
2. The edge network starts from the cloud's first layers, its norm and its output matrix; its radii are 0.5 everywhere.
3. The frozen, guided cloud's distributions of all samples are computed once where they fit into memory (`KEPT_BYTES`), else
   those of its batch in every step. A step minimises the Inter-DRO loss. The edge network learns them from the condition
   alone and runs without guidance, at half the cost.

Configs: the layers, ``1``, ``2``, ``3`` or ``5`` (Table 5), optionally with heads (``2x3``: two layers, three heads;
Table 6) and another loss: an ablation (``2-without_upper``; Table 7, names in `jaxspec.training.inter_dro.ABLATIONS`) or
other weights (``2-alpha_4``, names in `SWEEP`). A seed other than 0 (``--set seed=1``) is part of the network's name.
`experiments.train.devices` trains all that the tables compare.

Time: a step of 8 images at depth 2 takes one to one and a half processor seconds, so the default 800 steps take a quarter
of an hour, plus the samples. On accelerators the same command runs data-parallel.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from pathlib import Path

import jax
import jax.numpy as jnp

from experiments.data.sampled_target import conditions_of
from experiments.data.samples import with_logits
from experiments.train.command import main
from experiments.train.student import Student, check_export, samples_of, train_student
from jaxspec.intervals.scores import IntervalScore
from jaxspec.models import guidance
from jaxspec.models.conditions import Prefixed
from jaxspec.models.guidance import Guided
from jaxspec.models.heads.inter_head import InterHeadConfig, edge_from_cloud, inter_head_fns
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline
from jaxspec.training.inter_dro import ABLATIONS, InterDro, inter_dro
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig

DEPTHS = (1, 2, 3, 5)
# Weights of the loss, one varied at a time; the paper gives no values.
_WALKED = {"variation": (0, 4), "cross_entropy": (0, 1), "divergence": (0, 4), "alpha": (0, 4)}
SWEEP = {f"{name}_{value}": InterDro(**{name: float(value)}) for name, values in _WALKED.items() for value in values}
LOSSES = ABLATIONS | SWEEP
# Logits of the cloud for all samples are computed once if they need at most this memory, else in every step.
KEPT_BYTES = 2 << 30


@dataclasses.dataclass(frozen=True)
class InterRun:
  """Everything a run depends on, besides the bundle.

  Attributes:
    temperature: of the distributions that the edge network learns; 1 as published. Thresholds are on scores at temperature 1
      either way.
    guided: train an edge network that runs with its own guidance, as in the paper; its two halves then learn the cloud's two
      halves.
  """

  seed: int = 0
  num_layers: int = 2
  num_heads: int = 1
  combination: str = "ensemble"
  loss: InterDro = InterDro()
  num_samples: int = 512
  samples: str = "runs/scenes-samples.npz"
  batch_size: int = 8
  temperature: float = 1.0
  guided: bool = False
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3, warmup_steps=20, weight_decay=0.01)
  loop: LoopConfig = LoopConfig(num_steps=800, log_every=10, eval_every=200, checkpoint_every=200)
  ema_decay: float = 0.99
  matmul_precision: str | None = "bfloat16"
  bundle: str = "checkpoints/scenes"


def get_config(arg: str = "2") -> InterRun:
  """Config of a run: ``layers``, ``layersxheads``, and ``-loss`` after either.

  Raises:
    ValueError: for anything else.
  """
  match = re.fullmatch(r"(\d+)(?:x(\d+))?(?:-(\w+))?", arg)
  if match is None or int(match[1]) not in DEPTHS or (match[3] or "full") not in LOSSES:
    raise ValueError(f"Must have layers in {DEPTHS}, heads, and one of {', '.join(LOSSES)}, we instead got {arg!r}")
  return InterRun(num_layers=int(match[1]), num_heads=int(match[2] or 1), loss=LOSSES[match[3] or "full"])


def name_of(run: InterRun) -> str:
  """Name of the edge network in its bundle."""
  heads = f"x{run.num_heads}" if run.num_heads > 1 else ""
  digest = hashlib.sha256(repr(run.loss).encode()).hexdigest()[:6]
  loss = next((name for name, known in LOSSES.items() if known == run.loss), f"custom_{digest}")
  ends = [loss] * (loss != "full") + ["guided"] * run.guided + [f"seed{run.seed}"] * bool(run.seed)
  return "-".join([f"inter-{run.num_layers}{heads}", *ends])


def make_target_fn(run: InterRun, pipeline: Pipeline):
  """What is learned, ``(frozen, batch) -> logits [B, G, N, V]`` of the frozen cloud: G is 2 (with the condition and
  without) for an edge network with its own guidance, else 1 (guided)."""
  make, _ = conditions_of(pipeline)
  cloud = pipeline.target.fns
  guided_cloud, scale = guidance.guided(cloud), jnp.float32(pipeline.sampling().cfg_scale)

  def target_fn(frozen, batch):
    condition = make(frozen["text"], batch)
    prefix, fed = cloud.prefix_len(condition), batch["tokens"][:, :-1]
    if run.guided:
      inputs = _halves(cloud, frozen["cloud"], condition, fed)
      logits = cloud.apply(frozen["cloud"], inputs)[0].logits
    else:
      positions = jnp.arange(prefix + fed.shape[1])[None]
      params = Guided(frozen["cloud"], scale)
      logits = guided_cloud.apply(params, Prefixed(condition, fed), positions=positions)[0].logits
    logits = logits[:, prefix - 1 :]
    return jnp.moveaxis(logits.reshape(-1, len(fed), *logits.shape[1:]), 0, 1)

  return target_fn


def _halves(cloud, params, condition, fed) -> Prefixed:
  """Rows with their conditions, then the same rows without."""
  double = lambda a, b: jnp.concatenate([a, b])
  return Prefixed(jax.tree.map(double, condition, cloud.null_condition(params, condition)), double(fed, fed))


def make_loss_fn(run: InterRun, config: InterHeadConfig, pipeline: Pipeline):
  """The loss of a step; ``extra`` holds the frozen text encoder and cloud. Metrics are the terms, acceptance and U.

  A batch that has the cloud's ``logits`` (`make_target_fn`) spares their computation.
  """
  make, _ = conditions_of(pipeline)
  edge, cloud, target_fn = inter_head_fns(config), pipeline.target.fns, make_target_fn(run, pipeline)
  score_fn = IntervalScore(combination=run.combination)

  def loss_fn(params, extra, batch, key):
    condition = make(extra["text"], batch)
    prefix, fed = cloud.prefix_len(condition), batch["tokens"][:, :-1]
    inputs = _halves(cloud, extra["cloud"], condition, fed) if run.guided else Prefixed(condition, fed)
    logits = batch["logits"] if "logits" in batch else target_fn(extra, batch)
    distribution = jnp.concatenate(jnp.moveaxis(logits, 1, 0)) / run.temperature
    intervals = jax.tree.map(lambda x: x[:, prefix - 1 :], edge.apply(params, inputs)[0].intervals)
    loss, terms = inter_dro(intervals, distribution, run.loss)
    p, q = jax.nn.softmax(distribution), jnp.mean(jax.nn.softmax(intervals.centre), axis=-2)
    first = jax.tree.map(lambda x: x[:, 0], intervals)  # U of one position per image: a glance, not an evaluation
    uncertainty = score_fn(first, jnp.zeros((p.shape[0], 1)), key)
    figures = {
      "acceptance": jnp.mean(jnp.sum(jnp.minimum(p, q), axis=-1)),
      "radius": jnp.mean(intervals.radius),
      "uncertainty": jnp.mean(uncertainty),
    }
    return loss, (terms | figures, extra)

  return loss_fn


def train(run: InterRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains an edge network (see `train_student`); thresholds come with ``jaxspec calibrate``."""
  check_export(export_to)
  pipeline = load_pipeline(run.bundle)
  config, params = edge_from_cloud(
    pipeline.target.config, pipeline.target.params, run.num_layers, jax.random.key(run.seed),
    num_heads=run.num_heads, combination=run.combination,
  )  # fmt: skip
  meta = {"guided": run.guided, "distilled_at_temperature": run.temperature}
  frozen = {"text": conditions_of(pipeline)[1], "cloud": pipeline.target.params}
  name = f"{run.num_layers}" + (f"x{run.num_heads}" if run.num_heads > 1 else "")
  loss_fn, script = make_loss_fn(run, config, pipeline), f"inter_head --config {name}"
  student = Student(name_of(run), config, params, frozen, loss_fn, script, get_config(name), meta)
  samples = samples_of(run)
  space = pipeline.family.space
  if len(samples["tokens"]) * space.num_tokens * space.vocab_size * 4 * (1 + run.guided) <= KEPT_BYTES:
    with jax.default_matmul_precision(run.matmul_precision):
      samples = with_logits(samples, functools.partial(jax.jit(make_target_fn(run, pipeline)), frozen))
  return train_student(run, pipeline, samples, student, run_dir, resume, export_to)


if __name__ == "__main__":
  main(__doc__, get_config, train, config="2", name_of=name_of)
