"""What the trainings of drafters share: the target's samples, held-out figures, and the entry into the bundle."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.own_samples import Samples, load_samples, make_batch_fn, pick, split_rows
from jaxspec import bundle as bundles
from jaxspec import checkpoints
from jaxspec.bundle import Bundle
from jaxspec.cli.progress import TrainProgress
from jaxspec.training import train_state
from jaxspec.training.loop import fit
from jaxspec.training.optimizer import make_optimizer
from jaxspec.training.overrides import override
from jaxspec.training.step import make_train_step
from jaxspec.types import Params, PyTree

HELD_OUT = 128  # sampled pictures that no update sees
_EVAL_ROWS = 16


class Student(NamedTuple):
  """A drafter to be trained.

  Attributes:
    name: in the bundle.
    frozen: arrays that the loss reads as ``extra`` and no update moves; they are copied.
    loss_fn: ``(params, extra, batch, key) -> (loss, (metrics, extra))``; key is None in evaluations.
    meta: what the checkpoint says besides the run: at least ``command``.
    finish_fn: from trained parameters to those of the checkpoint, where more than them belongs to the drafter.
  """

  name: str
  config: Any
  params: Params
  frozen: PyTree
  loss_fn: Callable
  meta: dict[str, Any]
  finish_fn: Callable[[Params], Params] = lambda params: params


def samples_of(run) -> Samples:
  """The first ``run.num_samples`` of the file ``run.samples``."""
  if run.num_samples <= HELD_OUT:
    raise ValueError(f"Must have more than {HELD_OUT} samples, we instead got {run.num_samples}")
  samples = load_samples(run.samples, at_least=run.num_samples)
  return {name: leaf[: run.num_samples] for name, leaf in samples.items()}


def check_export(path: str | Path | None) -> None:
  """Refuses a folder that is no bundle before the training, not after it."""
  if path is not None:
    bundles.read_bundle(path)


def train_student(run, bundle: Bundle, samples: Samples, student: Student, run_dir, resume: bool, export_to):
  """Trains, evaluates on held-out samples and (with ``export_to``) adds the drafter to a bundle.

  Args:
    run: a config with ``seed``, ``batch_size``, ``num_samples``, ``optimizer``, ``loop``, ``ema_decay`` and
      ``matmul_precision``.
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
  with TrainProgress(student.name, items_per_step=run.batch_size) as progress:
    state = fit(run.loop, state, step, batches, run_dir=run_dir, eval_fn=eval_fn, report_fn=progress, resume=resume)
  if export_to is not None:
    _export(run, bundle, student, state, eval_fn(state), Path(export_to), time.perf_counter() - started)
  return state


def _export(run, bundle: Bundle, student: Student, state, figures, path: Path, seconds: float) -> None:
  meta = {
    "licence": bundle.target.meta.get("licence", "unknown"),
    "guided": False,
    "distilled_at_cfg": bundle.defaults["cfg_scale"],
    "distilled_at_temperature": bundle.defaults["temperature"],
    "run": dataclasses.asdict(run),
    "steps": int(state.step),
    "held_out": figures,
    "hours": round(seconds / 3600, 2),
  }
  params = student.finish_fn(state.ema)
  checkpoints.save(path / student.name, student.config, params, meta=meta | student.meta, dtype=jnp.bfloat16)
  document = bundles.read_bundle(path)
  document["drafts"] = dict(sorted((document["drafts"] | {student.name: student.name}).items()))
  document["defaults"].setdefault("draft", student.name)
  (path / bundles.BUNDLE_FILE).write_text(json.dumps(document, indent=2) + "\n")


def main(doc: str, get_config: Callable, train: Callable, *, config: str, name_of: Callable[[Any], str]) -> None:
  """The command line of a training script; runs go to ``runs/NAME`` by default."""
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--config", default=config)
  parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
  parser.add_argument("--run-dir", type=Path)
  parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)
  parser.add_argument("--export", metavar="BUNDLE")
  args = parser.parse_args()
  logging.basicConfig(level=logging.WARNING)
  run = override(get_config(args.config), args.set)
  train(run, args.run_dir or Path("runs") / name_of(run), args.resume, args.export)
