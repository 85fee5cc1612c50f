"""Trains the interval features of an edge network (CIAR, arXiv 2603.25463, section 3.3); cloud and edge are frozen.

Commands (from the repository root; an interrupted run resumes)::

    python -m experiments.data.captions --num 4608 --split train --seed 0 --out runs/scenes-captions.txt
    python -m experiments.train.interval_features --config inter-2 --export checkpoints/scenes

Config: the edge network of the bundle, with ``-all`` after it for features that read all bounds in place of those of the
  token.
The exported network is ``NAME-features``: the same trunk and heads, and phi. Its thresholds are those of the edge network at
``inject=none``; others need ``jaxspec calibrate`` or a table that searches for them.

The objective is in `jaxspec.training.interval_features_loss`. Evaluations also have ``gain``: the reduction of the cloud's
cross-entropy by injection after the same prefix, in nats per token; negative for a loss.

Time: every step runs the guided cloud three times over 8 images, twice with gradients to its inputs: two to three
processor seconds, so the default 300 steps take a quarter of an hour with their evaluations, and minutes on an accelerator.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp

from experiments.train.command import command_of, main
from jaxspec.core.network import Network
from jaxspec.core.types import Array
from jaxspec.io import checkpoints
from jaxspec.io.bundle import read_bundle
from jaxspec.models.conditions import Prefixed
from jaxspec.models.heads.interval_features import IntervalFeaturesConfig, interval_features_fns
from jaxspec.render.working import Working
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline
from jaxspec.sampling.logit_processing import sample
from jaxspec.training.distillation.drawn_samples import Drawing, draw_samples
from jaxspec.training.distillation.student import DistillationSettings, Student, StudentLossFn, master, teacher
from jaxspec.training.distillation.training import Training, export, join
from jaxspec.training.interval_features_loss import edge_positions, injection_loss
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig

SUFFIX = "-features"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeaturesRun(DistillationSettings):
  """Everything a run depends on, besides the bundle.

  Attributes:
    edge: network of the bundle; runs without guidance.
    source: inputs of the features, see `IntervalFeaturesConfig`; ``hidden`` the width of their layer.
    kl_weight: of the term that keeps the cloud undisturbed after its own prefix.
    least_share: of the tokens of an image that the edge makes.
  """

  edge: str = "inter-2"
  source: str = "token"
  hidden: int = 256
  kl_weight: float = 1.0
  least_share: float = 0.3
  num_samples: int = 512
  batch_size: int = 8
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3, warmup_steps=20, weight_decay=0.01)
  loop: LoopConfig = LoopConfig(num_steps=300, log_every=10, eval_every=100, checkpoint_every=50)
  bundle: str = "checkpoints/scenes"
  captions: str = "runs/scenes-captions.txt"
  samples: str = "runs/scenes-samples.npz"


def get_config(arg: str = "inter-2") -> FeaturesRun:
  """``EDGE`` or ``EDGE-all``."""
  edge = arg.removesuffix("-all")
  return FeaturesRun(edge=edge, source="all" if edge != arg else "token")


def name_of(run: FeaturesRun) -> str:
  """Name of the trained edge network in its bundle."""
  return run.edge + ("-all" if run.source == "all" else "") + SUFFIX


def make_loss_fn(run: FeaturesRun, config: IntervalFeaturesConfig, edge: Network, pipeline: Pipeline) -> StudentLossFn:
  """The loss of a step; ``frozen`` holds the guided cloud and the edge network."""
  (cloud, _, sampling), phi = teacher(pipeline), interval_features_fns(config)
  temperature = sampling.temperature

  def distributions(frozen, condition, tokens: Array, features: Array | None) -> Array:
    """The guided cloud's logits ``[B, N, V]`` of every position, features ``[B, N, D]`` of the tokens injected."""
    prefix = cloud.prefix_len(condition)
    positions = jnp.arange(prefix + tokens.shape[1] - 1)[None]
    inject = None if features is None else jnp.pad(features[:, :-1], ((0, 0), (prefix, 0), (0, 0)))
    inputs = Prefixed(condition, tokens[:, :-1])
    output, _ = cloud.apply(frozen["cloud"], inputs, positions=positions, inject=inject)
    return output.logits[:, prefix - 1 :]

  def edge_says(frozen, condition, tokens: Array):
    """Intervals ``[B, N, H, V]`` and features ``[B, N, D]`` at the positions that draw the tokens."""
    prefix = edge.fns.prefix_len(condition)
    output, _ = edge.fns.apply(frozen["edge"], Prefixed(condition, tokens[:, :-1]))
    return jax.tree.map(lambda leaf: leaf[:, prefix - 1 :], (output.intervals, output.features))

  def loss_fn(params, frozen, batch, key):
    evaluates = key is None
    key = jax.random.key(run.seed) if evaluates else key  # the same draws in every evaluation
    mask_key, draw_key = jax.random.split(key)
    condition, own = batch["condition"], batch["tokens"]
    masked = edge_positions(mask_key, own.shape, run.least_share)
    of_own = edge_says(frozen, condition, own)
    drawn = sample(of_own[0].centre[..., 0, :] / temperature, jax.random.uniform(draw_key, own.shape))
    mixed = jnp.where(masked, drawn, own)
    of_mixed = edge_says(frozen, condition, mixed)
    injected = lambda said, tokens: phi.apply(params, *jax.lax.stop_gradient(said), tokens) * masked[..., None]
    undisturbed = jax.lax.stop_gradient(distributions(frozen, condition, own, None))
    loss, terms = injection_loss(
      distributions(frozen, condition, mixed, injected(of_mixed, mixed)),
      distributions(frozen, condition, own, injected(of_own, own)), undisturbed, own, kl_weight=run.kl_weight,
    )  # fmt: skip
    if evaluates:  # one more pass of the cloud, which no update needs
      silent = jax.nn.log_softmax(distributions(frozen, condition, mixed, None))
      without = -jnp.mean(jnp.take_along_axis(silent, own[..., None], axis=-1))
      terms |= {"gain": without - terms["cross_entropy"]}
    return loss, terms

  return loss_fn


def features_student(run: FeaturesRun, pipeline: Pipeline) -> Student:
  """Phi of an edge network of the bundle; its checkpoint holds the edge network, too."""
  edge = pipeline.drafts[run.edge]
  if (family := pipeline.drafts.family_name(run.edge)) != "inter_head" or edge.is_guided:
    raise ValueError(f"Must have an edge network without guidance, we instead got {run.edge}, a {family}")
  config = IntervalFeaturesConfig(
    width=pipeline.target.config.dim, input_width=edge.config.trunk.dim, vocab=edge.config.drawn, hidden=run.hidden,
    source=run.source, combination=edge.config.combination,
  )  # fmt: skip
  meta = {"edge": edge.meta} | {name: edge.meta[name] for name in ("calibration",) if name in edge.meta}
  return Student(
    name_of(run), dataclasses.replace(edge.config, features=config),
    master(interval_features_fns(config).init(jax.random.key(run.seed))), (), lambda target, batch: {},
    {"cloud": teacher(pipeline).params, "edge": edge.params}, make_loss_fn(run, config, edge, pipeline), meta,
    lambda params: edge.params | {"features": params},
  )  # fmt: skip


def train(run: FeaturesRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains phi and adds the edge network with it to a bundle; returns the final state."""
  if export_to is not None:
    read_bundle(export_to)  # an error before the training
  pipeline = load_pipeline(run.bundle)
  captions = Path(run.captions).read_text(encoding="utf-8").splitlines()
  drawing = Drawing(captions, run.num_samples, seed=run.sample_seed)
  origin = drawing.origin(checkpoints.digest(pipeline.target.folder).hex()[:16], pipeline.sampling())
  with Working("Loading") as working:
    samples = draw_samples(pipeline, drawing, Path(run.samples), origin, progress=working)
    training = Training(pipeline, samples, features_student(run, pipeline), run)
    trained = training.run(Path(run_dir), resume=resume, progress=working)
  if export_to is not None:
    name, default = name_of(run), get_config(name_of(run).removesuffix(SUFFIX))
    command = command_of(f"interval_features --config {name.removesuffix(SUFFIX)}", run, default)
    export(training, trained, Path(export_to) / name, command=command)
    join(pipeline, Path(export_to), name)
  return trained.state


if __name__ == "__main__":
  main(__doc__, get_config, train, config="inter-2", name_of=name_of)
