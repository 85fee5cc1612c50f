"""What the trainings of class-conditional networks share: encoded images, the run itself, and the entry into a bundle.

A script says what is special about its networks: the loss and the batches (`Recipe`). The autoencoder or tokenizer of a
network is a folder of another bundle; a network's own bundle gets a copy.
"""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.class_images import ImageSet, Split
from experiments.train.command import Progress, meta_of, predicted_hours
from jaxspec.core.network import Network
from jaxspec.core.types import Params, PyTree
from jaxspec.io import checkpoints
from jaxspec.io.bundle import read_bundle, write_bundle
from jaxspec.training import train_state
from jaxspec.training.epochs import epochs_of
from jaxspec.training.optimizer import make_optimizer
from jaxspec.training.train_loop import fit
from jaxspec.training.train_state import TrainState
from jaxspec.training.train_step import LossFn, TrainStep, make_train_step

BatchFn = Callable[[int], dict[str, np.ndarray]]
HELD_OUT_BATCHES = 8


class Recipe(NamedTuple):
  """What is special about the training of one network.

  Attributes:
    params: starting weights.
    loss_fn: of the updates.
    held_out_loss_fn: of evaluations.
    frozen: weights that both losses read as their extra state and no update moves.
  """

  params: Params
  loss_fn: LossFn
  held_out_loss_fn: LossFn
  frozen: PyTree = ()


ROLES = ("target", "draft", "edge")


def parse_config(arg: str) -> tuple[str, bool]:
  """The role of a config, and whether it is for a run of seconds.

  Raises:
    ValueError: for anything but ``target``, ``draft``, ``edge``, and ``smoke-`` before one of them.
  """
  role = arg.removeprefix("smoke-") or "target"
  if role not in ROLES:
    raise ValueError(f"Must have config {', '.join(ROLES)}, or smoke- before one, we instead got {arg!r}")
  return role, arg.startswith("smoke-")


def folder_of(run: Any) -> str:
  """Folder of a network in its bundle, its role. The edge has its own: the draft that it started from is not replaced."""
  if (role := next((role for role in ROLES if run.name.endswith(role)), None)) is None:
    raise ValueError(f"Must have a name that ends in {', '.join(ROLES)}, we instead got {run.name!r}")
  return role


def make_recipe(
  run: Any, fns: Any, family: str, *, is_edge: bool, loss_fn: Callable[..., LossFn], edge_loss_fn: Callable[..., LossFn]
) -> Recipe:
  """Starting weights and losses of a network or, with a teacher, of an edge.

  Args:
    run: a config with ``seed``, ``start``, ``teacher`` and ``label_drop``.
    fns: the network, with ``init``.
    is_edge: whether the network has radii.
    loss_fn: ``(*, label_drop_prob)`` to the loss of a network.
    edge_loss_fn: ``(teacher's functions, *, label_drop_prob)`` to that of an edge.
  Raises:
    ValueError: for radii without a teacher, a teacher without radii, or weights that do not fit.
  """
  if is_edge != bool(run.teacher):
    raise ValueError(f"Must have a teacher for a network with radii and for no other, we instead got {run.teacher!r}")
  params, frozen = jax.jit(fns.init)(jax.random.key(run.seed)), ()
  if run.start:
    params = started(params, load_part(run.start, family, "start"), run.start)
  if run.teacher:
    teacher = load_part(run.teacher, family, "teacher")
    frozen, loss_fn = teacher.params, functools.partial(edge_loss_fn, teacher.fns)
  return Recipe(params, loss_fn(label_drop_prob=run.label_drop), loss_fn(label_drop_prob=0.0), frozen)


def check_classes(run: Any, images: ImageSet) -> None:
  """Raises a ValueError for images of other classes than the network's."""
  if len(images.classes) != run.model.num_classes:
    raise ValueError(f"Must have {len(images.classes)} classes, we instead got {run.model.num_classes}")


class Batches(NamedTuple):
  """Batches as pure functions of the step."""

  train: BatchFn
  held_out: BatchFn


class Entry(NamedTuple):
  """A network's place in a bundle.

  Attributes:
    role: ``target``, or the folder of a draft; the one that was added last is the bundle's.
    first: the part, and folder, of the autoencoder or tokenizer.
    source: the folder that ``first`` is copied from; the parts of its bundle (``classes``, ``latent_scale``) come along.
    defaults: of the bundle, as `jaxspec.io.bundle.write_bundle` takes them.
  """

  role: str
  first: str
  source: str
  defaults: dict[str, Any] = {}


def encoded_batches(
  split: Split,
  encode: Callable[[np.ndarray], Any],
  batch_of: Callable[[Any, np.ndarray, np.random.Generator], dict[str, np.ndarray]],
  *,
  batch_size: int,
  seed: int,
  num_variants: int = 1,
  num_images: int | None = None,
) -> BatchFn:
  """Batches of encoded images; all are encoded once, here.

  Args:
    encode: images ``[M, H, W, 3]`` uint8 to a tree of arrays ``[M, ...]``.
    batch_of: ``(rows, labels, generator)`` to a batch; ``rows`` are the leaves of ``encode`` ``[B, ...]``.
    num_variants: paintings of each image; the first is plain.
    num_images: the first images only; None for all.
  """
  rows = np.arange(len(split.labels))[:num_images]
  generators = [None, *(np.random.default_rng((seed, 2, variant)) for variant in range(1, num_variants))]
  encoded = [encode(split.draw(rows, generator)) for generator in generators]
  variants = jax.tree.map(lambda *leaves: np.stack(leaves), *encoded)  # leaves [variants, images, ...]
  chosen = epochs_of(rows, batch_size, (seed, 0))

  def batch_fn(step: int) -> dict[str, np.ndarray]:
    generator, batch = np.random.default_rng((seed, 1, step)), chosen(step)
    variant = generator.integers(num_variants, size=len(batch))
    return batch_of(jax.tree.map(lambda leaf: leaf[variant, batch], variants), split.labels[batch], generator)

  return batch_fn


def sampled_latents(moments: tuple[np.ndarray, np.ndarray], scale: float, generator: np.random.Generator) -> np.ndarray:
  """Latents ``[B, h, w, c]`` float32 drawn from posteriors of these means and deviations, times a scale."""
  mean, std = moments
  return scale * (mean + std * generator.normal(size=mean.shape).astype(np.float32))


def parts_of(folder: str | Path) -> dict[str, Any]:
  """Parts of the bundle that an autoencoder or a tokenizer lies in."""
  return dict(read_bundle(Path(folder).parent, complete=False).parts)


def start_run(run: Any, recipe: Recipe) -> tuple[TrainState, TrainStep]:
  """The first state and the update.

  Args:
    run: a config with ``seed``, ``optimizer``, ``loop``, ``ema_decay`` and ``matmul_precision``.
  """
  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  # The state is donated; loaded weights stay valid.
  copied = jax.tree.map(jnp.copy, (recipe.params, recipe.frozen))
  state = train_state.create(copied[0], optimizer, extra=copied[1])
  step = make_train_step(
    recipe.loss_fn, optimizer, ema_decay=run.ema_decay, seed=run.seed, matmul_precision=run.matmul_precision
  )
  return state, step


def hours_of(run: Any, recipe: Recipe, batch_fn: BatchFn) -> float:
  """Hours of a whole run without evaluations."""
  state, step = start_run(run, recipe)
  return predicted_hours(step, state, batch_fn, run.loop.num_steps)


def held_out_fn(recipe: Recipe, batch_fn: BatchFn) -> Callable[[TrainState], dict[str, float]]:
  """Loss and metrics of the running mean of the weights on fixed batches with fixed noise, names with ``_held_out``."""
  batches = [batch_fn(step) for step in range(HELD_OUT_BATCHES)]

  @jax.jit
  def compute(params, extra, batch, key):
    loss, (metrics, _) = recipe.held_out_loss_fn(params, extra, batch, key)
    return {"loss": loss} | metrics

  def eval_fn(state: TrainState) -> dict[str, float]:
    found = [
      jax.device_get(compute(state.ema, state.extra, batch, jax.random.key(number))) for number, batch in enumerate(batches)
    ]
    return {f"{name}_held_out": float(np.mean([one[name] for one in found])) for name in found[0]}

  return eval_fn


def train_network(
  run: Any,
  recipe: Recipe,
  batches: Batches,
  run_dir: str | Path,
  *,
  resume: bool,
  export: Callable[[TrainState, dict[str, float], float], None] | None,
) -> TrainState:
  """Trains, evaluates and exports a network; returns the final state.

  Args:
    run: as in `start_run`, with ``name`` and ``batch_size``.
    export: ``(state, figures, started)``; None exports nothing.
  """
  state, step = start_run(run, recipe)
  eval_fn = held_out_fn(recipe, batches.held_out) if run.loop.eval_every else None
  started = time.perf_counter()
  state = fit(
    run.loop, state, step, batches.train, run_dir=run_dir, eval_fn=eval_fn,
    report_fn=Progress(run.name, run.batch_size), resume=resume,
  )  # fmt: skip
  if export is not None:
    export(state, eval_fn(state) if eval_fn is not None else {}, started)
  return state


def add_to_bundle(path: str | Path, entry: Entry, config: Any, params: Params, meta: dict[str, Any]) -> None:
  """Saves a network in bfloat16 in its bundle, which gets a copy of the autoencoder or tokenizer if it has none."""
  path = Path(path)
  if not (path / entry.first).exists():
    shutil.copytree(entry.source, path / entry.first)
    parts = {name: value for name, value in parts_of(entry.source).items() if name not in ("vae", "tokenizer")}
    write_bundle(path, parts=parts | {entry.first: entry.first})
  checkpoints.save(path / entry.role, config, jax.tree.map(jnp.asarray, params), meta=meta, dtype=jnp.bfloat16)
  where = {"target": "target"} if entry.role == "target" else {"drafts": {"small": entry.role}}
  write_bundle(path, **where, **entry.defaults)


def exporter(
  path: str | Path | None, entry: Entry, config: Any, run: Any, script: str, default: Any, licence: str
) -> Callable[[TrainState, dict[str, float], float], None] | None:
  """The ``export`` of `train_network`; None without a path.

  Args:
    script: the module and config that train ``default``, as `experiments.train.command.meta_of` takes them.
  """
  if path is None:
    return None

  def export(state: TrainState, figures: dict[str, float], started: float) -> None:
    meta = meta_of(script, run, default, state, licence=licence, started=started, figures=figures)
    add_to_bundle(path, entry, config, state.ema, meta)

  return export


def load_part(folder: str, family: str, what: str) -> Network:
  """A network that another training left behind, in float32.

  Raises:
    ValueError: for a folder that holds none, or one of another family.
  """
  found = checkpoints.load(folder, dtype=jnp.float32)
  if found.family_name != family:
    raise ValueError(f"Must have a {family} as {what}, {folder} holds a {found.family_name}")
  return found


def started(params: Params, source: Network, where: str) -> Params:
  """Random weights, replaced by those of a checkpoint for the leaves that it has.

  Raises:
    ValueError: for a checkpoint with other shapes, or with weights that the network lacks.
  """
  shapes = lambda tree: jax.tree.map(lambda leaf: leaf.shape, tree, is_leaf=lambda leaf: hasattr(leaf, "shape"))
  unknown = sorted(source.params.keys() - params.keys())
  wrong = [name for name in source.params if name in params and shapes(params[name]) != shapes(source.params[name])]
  if unknown or wrong:
    raise ValueError(f"Must have the network's weights in {where}, {', '.join([*unknown, *wrong])} do not fit")
  return {**params, **source.params}
