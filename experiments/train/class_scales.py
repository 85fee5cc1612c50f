"""Trains networks of scales (VAR), class-conditional, on a tokenizer's scales of images.

Commands (from the repository root; an interrupted run resumes). The tokenizer comes first
(``experiments.train.scale_tokenizer``). The edge of CIAR starts from the draft and gets radii. It is then the draft of
the bundle, and the folder ``draft`` need not be shipped::

    python -m experiments.train.class_scales --config target --export checkpoints/digits32-var
    python -m experiments.train.class_scales --config draft --export checkpoints/digits32-var
    python -m experiments.train.class_scales --config edge --export checkpoints/digits32-var

- ``target`` and ``draft``: cross-entropy of the images' scales; a class is dropped at times.
- ``edge``: the draft with an Inter-Head (`jaxspec.models.heads.inter_head`), trained against the frozen target by the
  Inter-DRO loss (`jaxspec.training.inter_dro`). Both read the images' scales.

``--estimate`` prints how long a run takes.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import jax
import numpy as np

from experiments.data.batches import in_batches
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
  train_network,
)
from experiments.train.command import main
from jaxspec.core.network import Network
from jaxspec.core.types import Params
from jaxspec.models.tokenizers.tokenizer_fns import from_uint8
from jaxspec.models.tokenizers.var_vae import VARVAEConfig
from jaxspec.models.var.var import VARConfig, var_fns
from jaxspec.training.inter_dro import InterDro
from jaxspec.training.optimizer import OptimizerConfig
from jaxspec.training.train_loop import LoopConfig
from jaxspec.training.var_loss import scale_loss_fn, scale_radii_loss_fn

BUNDLE = "checkpoints/digits32-var"
TARGET = VARConfig(
  depth=5, dim=128, num_heads=4, vocab_size=256, code_dim=8, num_classes=10, sides=(1, 2, 3, 4, 6, 8), shared_adaln=True
)
DRAFT = dataclasses.replace(TARGET, depth=2, dim=64, num_heads=2)
# What the bundle draws with where nothing is said. Nothing is truncated: one place that the target rules out rejects a map.
DEFAULTS = dict(method="scale-speculative", sampling={"cfg_scale": 1.5, "top_k": 0, "top_p": 1.0, "temperature": 1.0})


@dataclasses.dataclass(frozen=True)
class ClassScalesRun:
  """Everything a run depends on.

  Attributes:
    start: a checkpoint with initial weights, for the leaves that it has; "" for random ones.
    teacher: the target of an edge, which learns from it with ``radii``; "" learns from the images.
  """

  name: str
  model: VARConfig
  seed: int = 0
  batch_size: int = 64
  optimizer: OptimizerConfig = OptimizerConfig(learning_rate=2e-3, warmup_steps=100, weight_decay=0.02, clip_norm=2.0)
  loop: LoopConfig = LoopConfig(num_steps=4000, log_every=20, eval_every=500, checkpoint_every=250)
  ema_decay: float = 0.99
  label_drop: float = 0.1
  num_variants: int = 4  # paintings of each training image that are encoded; the first is plain
  num_images: int | None = None  # the first training images only, for a smoke run
  matmul_precision: str | None = "bfloat16"
  images: str = "digits"
  tokenizer: str = f"{BUNDLE}/tokenizer"
  start: str = ""
  teacher: str = ""
  radii: InterDro = InterDro()


def get_config(arg: str = "target") -> ClassScalesRun:
  """Config of a run: ``target``, ``draft`` or ``edge``; ``smoke-target`` and so on for runs of seconds."""
  role, is_small = parse_config(arg)
  model = TARGET if role == "target" else dataclasses.replace(DRAFT, inter_head=role == "edge")
  lengths = {"target": 1000, "draft": 1000, "edge": 600}
  run = ClassScalesRun(arg or "target", model, loop=dataclasses.replace(ClassScalesRun.loop, num_steps=lengths[role]))
  if role == "edge":
    optimizer = dataclasses.replace(run.optimizer, learning_rate=1e-3)
    run = dataclasses.replace(run, start=f"{BUNDLE}/draft", teacher=f"{BUNDLE}/target", optimizer=optimizer)
  if not is_small:
    return run
  model = dataclasses.replace(model, depth=1, dim=8, num_heads=2, vocab_size=16, code_dim=2, sides=(1, 4, 8))
  loop = LoopConfig(num_steps=2, log_every=1, eval_every=0, checkpoint_every=1)
  return dataclasses.replace(run, model=model, loop=loop, batch_size=2, num_variants=1, num_images=4)


def load_tokenizer(run: ClassScalesRun) -> Network:
  """The tokenizer; its scales must be those of the network."""
  tokenizer = load_part(run.tokenizer, "var_vae", "tokenizer")
  config: VARVAEConfig = tokenizer.config
  ours, theirs = (run.model.sides, run.model.vocab_size, run.model.code_dim), (
    config.sides, config.codebook_size, config.codebook_dim,
  )  # fmt: skip
  if ours != theirs:
    raise ValueError(f"Must have sides, codes and their width {ours}, {run.tokenizer} gives {theirs}")
  return tokenizer


def make_batches(run: ClassScalesRun, images: ImageSet, tokenizer: Network) -> Batches:
  """Scales of images, the network's inputs from them, and labels."""
  check_classes(run, images)

  @jax.jit
  def tokens_of(params: Params, pixels):
    indices, _ = tokenizer.fns.encode(params, from_uint8(pixels))
    return indices, tokenizer.fns.inputs(params, indices)

  encode = functools.partial(in_batches, functools.partial(tokens_of, tokenizer.params))

  def batch_of(rows: tuple[np.ndarray, np.ndarray], labels: np.ndarray, generator) -> dict[str, np.ndarray]:
    return {"tokens": rows[0], "inputs": rows[1], "labels": labels}

  sizes = dict(batch_size=run.batch_size, num_images=run.num_images)
  train = encoded_batches(images.train, encode, batch_of, seed=run.seed, num_variants=run.num_variants, **sizes)
  return Batches(train, encoded_batches(images.held_out, encode, batch_of, seed=run.seed + 1, **sizes))


def recipe_of(run: ClassScalesRun) -> Recipe:
  """Starting weights and losses; see the module docstring."""
  fns, classes = var_fns(run.model), run.model.num_classes
  edge_loss_fn = lambda target, **given: scale_radii_loss_fn(fns, target, classes, run.radii, **given)
  loss_fn = functools.partial(scale_loss_fn, fns, classes)
  return make_recipe(run, fns, "var", is_edge=run.model.inter_head, loss_fn=loss_fn, edge_loss_fn=edge_loss_fn)


def estimate(run: ClassScalesRun) -> float:
  """Hours of a whole run without evaluations."""
  small = dataclasses.replace(run, num_images=4 * run.batch_size, num_variants=1)
  return hours_of(run, recipe_of(run), make_batches(small, load_images(run.images), load_tokenizer(run)).train)


def train(run: ClassScalesRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains, evaluates and (with ``export_to``) adds the network to a bundle; returns the final state."""
  images, tokenizer, recipe = load_images(run.images), load_tokenizer(run), recipe_of(run)
  entry = Entry(folder_of(run), "tokenizer", run.tokenizer, DEFAULTS)
  script, default = f"class_scales --config {run.name}", get_config(run.name)
  export = exporter(export_to, entry, run.model, run, script, default, images.licence)
  return train_network(run, recipe, make_batches(run, images, tokenizer), run_dir, resume=resume, export=export)


if __name__ == "__main__":
  main(__doc__, get_config, train, config="target", estimate=estimate)
