"""The training loop: resume, update, log, evaluate, save.

1. Restore the newest checkpoint of the run folder, if there is one.
2. For every step from there on: the batch of that step (a pure function of the step), one update.
3. Every ``log_every`` steps one record goes to ``metrics.jsonl``; losses that are not finite stop the run.
4. Every ``eval_every`` steps and at the end: evaluation to ``eval.jsonl``, and the sample callback.
5. Every ``checkpoint_every`` steps and at the end: a checkpoint.

A run may be killed at any moment. Started again on the same machine, it produces the same losses, bit for bit.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import jax

from jaxspec.core.types import PyTree
from jaxspec.training.run_log import MetricsWriter
from jaxspec.training.train_checkpoint import TrainCheckpoints
from jaxspec.training.train_state import TrainState
from jaxspec.training.train_step import TrainStep


@dataclasses.dataclass(frozen=True)
class LoopConfig:
  """Lengths and periods of a run, in steps; a period of 0 switches its action off.

  Attributes:
    stop_after: number of updates after which this process ends, as if killed; for tests.
    stop_after_s: seconds after which the process saves and ends, for machines with limited time.
  """

  num_steps: int
  log_every: int = 10
  eval_every: int = 500
  checkpoint_every: int = 500
  keep_checkpoints: int = 2
  stop_after: int | None = None
  stop_after_s: float | None = None

  def __post_init__(self):
    if self.num_steps < 1:
      raise ValueError(f"Must have at least one step, we instead got {self.num_steps}")


class ReportFn(Protocol):
  """Receives progress: step (updates done), number of steps, newest metrics, steps per second."""

  def __call__(self, step: int, num_steps: int, metrics: dict[str, float], rate: float) -> None: ...


class TrainingDiverged(RuntimeError):
  """The loss is not finite any more."""


def fit(
  config: LoopConfig,
  state: TrainState,
  train_step: TrainStep,
  batch_fn: Callable[[int], PyTree],
  *,
  run_dir: str | os.PathLike,
  eval_fn: Callable[[TrainState], dict[str, float]] | None = None,
  sample_fn: Callable[[TrainState, Path], None] | None = None,
  report_fn: ReportFn | None = None,
  resume: bool = True,
  tensorboard: bool = False,
) -> TrainState:
  """Runs ``config.num_steps`` updates, or those that are still missing.

  Args:
    state: the state before the first update; donated.
    train_step: from `jaxspec.training.train_step.make_train_step`.
    batch_fn: batch of NumPy arrays of a step, counted from 0; must be a pure function of the step.
    run_dir: gets ``metrics.jsonl``, ``eval.jsonl``, ``samples/`` and ``checkpoints/``.
    eval_fn: figures of a state.
    sample_fn: called after each evaluation with the path of a PNG to write.
    report_fn: called with every log record.
    resume: go on from the newest checkpoint of `run_dir`; if False, a folder that has one is an error.
    tensorboard: also write TensorBoard events.
  Returns:
    The final state.
  Raises:
    TrainingDiverged: if a logged loss is not finite.
    ValueError: if a checkpoint is there and `resume` is off, or one of more updates.
  """
  run_dir = Path(run_dir)
  with TrainCheckpoints(run_dir / "checkpoints", keep=config.keep_checkpoints) as checkpoints:
    state = train_step.place_state(state)
    if checkpoints.latest_step() is not None:
      if not resume:
        raise ValueError(f"Must have a new run folder or resume a run, we instead got checkpoints in {run_dir}")
      state = checkpoints.restore(state)
    first = step = int(state.step)
    if step > config.num_steps:
      raise ValueError(f"Must have a run of at most {config.num_steps} updates in {run_dir}, we instead got one of {step}")
    last = config.num_steps if config.stop_after is None else min(config.num_steps, first + config.stop_after)
    board = run_dir / "tensorboard" if tensorboard else None
    with (
      MetricsWriter(run_dir / "metrics.jsonl", first_step=first, tensorboard_dir=board) as train_log,
      MetricsWriter(run_dir / "eval.jsonl", first_step=first + 1) as eval_log,
    ):
      started, since = time.perf_counter(), step
      deadline = math.inf if config.stop_after_s is None else started + config.stop_after_s
      batch = train_step.place_batch(batch_fn(step)) if step < last else None
      while step < last:
        state, metrics = train_step.update(state, batch)
        # The update runs in the background while the next batch is made.
        batch = train_step.place_batch(batch_fn(step + 1)) if step + 1 < last else None
        logged = _due(step, config.log_every) or step + 1 == config.num_steps
        values = {name: float(value) for name, value in jax.device_get(metrics).items()} if logged else {}
        step += 1
        if logged:
          train_log.write(step - 1, values)
          rate = (step - since) / (time.perf_counter() - started)
          started, since = time.perf_counter(), step
          if report_fn is not None:
            report_fn(step, config.num_steps, values, rate)
          if not math.isfinite(values["loss"]):
            raise TrainingDiverged(f"Must have a finite loss, we instead got {values['loss']} at step {step - 1}")
        end = step == config.num_steps
        if eval_fn is not None and (_due(step, config.eval_every) or end):
          eval_log.write(step, eval_fn(state))
          if sample_fn is not None:
            (run_dir / "samples").mkdir(exist_ok=True)
            sample_fn(state, run_dir / "samples" / f"{step:07d}.png")
          started, since = time.perf_counter(), step
        late = time.perf_counter() >= deadline
        if _due(step, config.checkpoint_every) or end or late:
          checkpoints.save(state)
          started, since = time.perf_counter(), step
        if late:
          break
  return state


def _due(step: int, period: int) -> bool:
  return period > 0 and step % period == 0
