"""Trains networks of denoising steps (DiT), class-conditional, on the latents of an autoencoder.

Commands (from the repository root; an interrupted run resumes). The autoencoder is that of another bundle of
digits (``experiments.train.kl_vae --config digits``). The edge of CIAR starts from the draft and gets radii. It is then the
draft of the bundle, and the folder ``draft`` need not be shipped::

    python -m experiments.train.class_denoising --config target --export checkpoints/digits32-dit
    python -m experiments.train.class_denoising --config draft --export checkpoints/digits32-dit
    python -m experiments.train.class_denoising --config edge --export checkpoints/digits32-dit

- ``target`` and ``draft``: the diffusion loss with learned variances; a class is dropped at times.
- ``edge``: the draft with radii, trained against the frozen target (`jaxspec.training.dit_loss`).

Latents are sampled from the autoencoder's posterior anew in every step. ``--estimate`` prints how long a run takes.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np

from experiments.data.class_images import ImageSet, load_images
from experiments.train.class_network import (
  Batches,
  Entry,
  Recipe,
  check_classes,
  encoded_batches,
  exporter,
  folder_of,
  hours_of,
  load_part,
  make_recipe,
  parse_config,
  parts_of,
  sampled_latents,
  train_network,
)
from experiments.train.command import main
from experiments.train.kl_vae import latent_moments
from jaxspec.core.network import Network
from jaxspec.models.dit.dit import DiTConfig, dit_fns
from jaxspec.training.dit_loss import RadiusObjective, denoising_loss_fn, denoising_radii_loss_fn
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig

BUNDLE = "checkpoints/digits32-dit"
TARGET = DiTConfig(latent_size=8, latent_channels=4, patch_size=2, num_classes=10, dim=128, num_layers=4, num_heads=4)
DRAFT = dataclasses.replace(TARGET, dim=64, num_layers=2, num_heads=2)
# What the bundle draws with where nothing is said.
DEFAULTS = dict(method="step-speculative", sampling={"steps": 100, "cfg_scale": 1.5})


@dataclasses.dataclass(frozen=True)
class ClassDenoisingRun:
  """Everything a run depends on.

  Attributes:
    copies: random diffusion steps of every image in an update.
    start: a checkpoint with initial weights, for the leaves that it has; "" for random ones.
    teacher: the target of an edge, which learns from it with ``radii``; "" learns from the images.
  """

  name: str
  model: DiTConfig
  seed: int = 0
  batch_size: int = 64
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=1e-3, warmup_steps=200, weight_decay=0.0, clip_norm=2.0)
  loop: LoopConfig = LoopConfig(num_steps=10_000, log_every=20, eval_every=1000, checkpoint_every=500)
  ema_decay: float = 0.999
  copies: int = 2
  label_drop: float = 0.1
  num_variants: int = 4  # paintings of each training image that are encoded; the first is plain
  num_images: int | None = None  # the first training images only, for a smoke run
  matmul_precision: str | None = "bfloat16"
  images: str = "digits"
  vae: str = "checkpoints/digits32-causal/vae"
  start: str = ""
  teacher: str = ""
  radii: RadiusObjective = RadiusObjective()


def get_config(arg: str = "target") -> ClassDenoisingRun:
  """Config of a run: ``target``, ``draft`` or ``edge``; ``smoke-target`` and so on for runs of seconds."""
  role, is_small = parse_config(arg)
  model = TARGET if role == "target" else dataclasses.replace(DRAFT, radius=role == "edge")
  lengths = {"target": 4000, "draft": 3000, "edge": 3000}
  run = ClassDenoisingRun(arg or "target", model, loop=dataclasses.replace(ClassDenoisingRun.loop, num_steps=lengths[role]))
  if role == "edge":
    run = dataclasses.replace(run, start=f"{BUNDLE}/draft", teacher=f"{BUNDLE}/target")
  if not is_small:
    return run
  model = dataclasses.replace(model, dim=8, num_layers=1, num_heads=2)
  loop = LoopConfig(num_steps=2, log_every=1, eval_every=0, checkpoint_every=1)
  return dataclasses.replace(run, model=model, loop=loop, batch_size=2, num_variants=1, num_images=4)


def load_vae(run: ClassDenoisingRun, images: ImageSet) -> Network:
  """The autoencoder; its latents must be the network's states."""
  vae = load_part(run.vae, "kl_vae", "autoencoder")
  wanted, found = (run.model.latent_size, run.model.latent_channels), (
    images.side // vae.config.factor, vae.config.latent_channels,
  )  # fmt: skip
  if wanted != found:
    raise ValueError(f"Must have latents of side and channels {wanted}, {run.vae} gives {found}")
  return vae


def make_batches(run: ClassDenoisingRun, images: ImageSet, vae: Network) -> Batches:
  """States drawn from the posteriors of images, and labels."""
  check_classes(run, images)
  scale = float(parts_of(run.vae)["latent_scale"])

  def batch_of(rows: tuple[np.ndarray, np.ndarray], labels: np.ndarray, generator) -> dict[str, np.ndarray]:
    return {"states": sampled_latents(rows, scale, generator).reshape(len(labels), -1), "labels": labels}

  encode = functools.partial(latent_moments, vae.fns, vae.params)
  sizes = dict(batch_size=run.batch_size, num_images=run.num_images)
  train = encoded_batches(images.train, encode, batch_of, seed=run.seed, num_variants=run.num_variants, **sizes)
  return Batches(train, encoded_batches(images.held_out, encode, batch_of, seed=run.seed + 1, **sizes))


def recipe_of(run: ClassDenoisingRun) -> Recipe:
  """Starting weights and losses; see the module docstring."""
  fns, classes, copies = dit_fns(run.model), run.model.num_classes, dict(copies=run.copies)
  edge_loss_fn = lambda target, **given: denoising_radii_loss_fn(fns, target, classes, run.radii, **copies, **given)
  loss_fn = functools.partial(denoising_loss_fn, fns, classes, **copies)
  return make_recipe(run, fns, "dit", is_edge=run.model.radius, loss_fn=loss_fn, edge_loss_fn=edge_loss_fn)


def estimate(run: ClassDenoisingRun) -> float:
  """Hours of a whole run without evaluations."""
  images = load_images(run.images)
  small = dataclasses.replace(run, num_images=4 * run.batch_size, num_variants=1)
  return hours_of(run, recipe_of(run), make_batches(small, images, load_vae(run, images)).train)


def train(run: ClassDenoisingRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains, evaluates and (with ``export_to``) adds the network to a bundle; returns the final state."""
  images, recipe = load_images(run.images), recipe_of(run)
  batches = make_batches(run, images, load_vae(run, images))
  script, default = f"class_denoising --config {run.name}", get_config(run.name)
  entry = Entry(folder_of(run), "tokenizer", run.vae, DEFAULTS)
  export = exporter(export_to, entry, run.model, run, script, default, images.licence)
  return train_network(run, recipe, batches, run_dir, resume=resume, export=export)


if __name__ == "__main__":
  main(__doc__, get_config, train, config="target", estimate=estimate)
