"""What the trainings of drafters share: the target's samples, held-out figures, and the entry into the bundle."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.data.samples import Samples, load_samples, make_batch_fn, pick, split_rows
from experiments.train.command import Progress, meta_of
from jaxspec.core.types import Params, PyTree
from jaxspec.io import checkpoints
from jaxspec.io.bundle import read_bundle, write_bundle
from jaxspec.run.pipeline import Pipeline
from jaxspec.training import train_state
from jaxspec.training.optimizer import make_optimizer
from jaxspec.training.train_loop import fit
from jaxspec.training.train_step import make_train_step

HELD_OUT = 128  # sampled images that no update sees
_EVAL_ROWS = 16


class Student(NamedTuple):
  """A drafter to be trained.

  Attributes:
    name: in the bundle.
    frozen: arrays that the loss reads as ``extra`` and no update moves; they are copied.
    loss_fn: ``(params, extra, batch, key) -> (loss, (metrics, extra))``; key is None in evaluations.
    script: the module that trains it, and ``default`` the config that the script has without ``--set``.
    meta: metadata of the checkpoint besides the run.
    finish_fn: from trained parameters to those of the checkpoint, where more than them belongs to the drafter.
  """

  name: str
  config: Any
  params: Params
  frozen: PyTree
  loss_fn: Callable
  script: str
  default: Any
  meta: dict[str, Any] = {}
  finish_fn: Callable[[Params], Params] = lambda params: params


def samples_of(run) -> Samples:
  """The first ``run.num_samples`` of the file ``run.samples``."""
  if run.num_samples <= HELD_OUT:
    raise ValueError(f"Must have more than {HELD_OUT} samples, we instead got {run.num_samples}")
  samples = load_samples(run.samples, at_least=run.num_samples, model=run.bundle)
  return {name: leaf[: run.num_samples] for name, leaf in samples.items()}


def check_export(path: str | Path | None) -> None:
  """Refuses a folder that is no bundle before the training, not after it."""
  if path is not None:
    read_bundle(path)


def train_student(run, pipeline: Pipeline, samples: Samples, student: Student, run_dir, resume: bool, export_to):
  """Trains, evaluates on held-out samples and (with ``export_to``) adds the drafter to a bundle.

  Args:
    run: a config with ``seed``, ``batch_size``, ``num_samples``, ``optimizer``, ``loop``, ``ema_decay`` and
      ``matmul_precision``.
    pipeline: the target, whose samples they are.
    samples: arrays ``[M, ...]`` that batches are picked from.
  """
  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  step = make_train_step(
    student.loss_fn, optimizer, ema_decay=run.ema_decay, seed=run.seed, matmul_precision=run.matmul_precision
  )
  train_rows, held_out = split_rows(run.num_samples, HELD_OUT)
  batches = make_batch_fn(samples, train_rows, run.batch_size, run.seed)

  @jax.jit
  def compute(params, extra, batch):
    loss, (metrics, _) = student.loss_fn(params, extra, batch, None)
    return metrics | {"loss": loss}

  def eval_fn(state):
    groups = [held_out[i : i + _EVAL_ROWS] for i in range(0, HELD_OUT, _EVAL_ROWS)]
    parts = [jax.device_get(compute(state.ema, state.extra, pick(samples, rows))) for rows in groups]
    return {name: float(sum(part[name] for part in parts)) / len(parts) for name in parts[0]}

  started = time.perf_counter()
  # The state is donated, and the bundle goes on using its own arrays.
  state = train_state.create(student.params, optimizer, extra=jax.tree.map(jnp.copy, student.frozen))
  progress = Progress(student.name, run.batch_size)
  state = fit(run.loop, state, step, batches, run_dir=run_dir, eval_fn=eval_fn, report_fn=progress, resume=resume)
  if export_to is not None:
    _export(run, pipeline, student, state, eval_fn(state), Path(export_to), started)
  return state


def _export(run, pipeline: Pipeline, student: Student, state, figures, path: Path, started: float) -> None:
  sampling = pipeline.sampling()
  meta = {
    "guided": False,
    "distilled_at_cfg": sampling.cfg_scale,
    "distilled_at_temperature": sampling.temperature,
    "held_out": figures,
  }
  licence = pipeline.target.meta.get("licence", "unknown")
  meta = meta_of(student.script, run, student.default, state, licence=licence, started=started, **(meta | student.meta))
  checkpoints.save(path / student.name, student.config, student.finish_fn(state.ema), meta=meta, dtype=jnp.bfloat16)
  bundle = read_bundle(path)
  draft = bundle.defaults.draft or student.name
  whole = {}
  if bundle.version is None:  # a converted folder, whose published settings would not be read once it is a bundle
    whole = dict(target=bundle.target, parts=bundle.parts, sampling=pipeline.family.published_sampling())
  write_bundle(path, **whole, drafts={**bundle.drafts, student.name: student.name}, draft=draft)
