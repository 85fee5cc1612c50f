"""Common parts of trainings: command line, progress, the time of a run, and the metadata of exported checkpoints."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import logging
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import jax

from jaxspec.core.command_line import PATH, script, set_option
from jaxspec.core.overrides import differences, override
from jaxspec.training import run_record
from jaxspec.training.train_state import TrainState
from jaxspec.training.train_step import TrainStep

LINE_EVERY_S = 10.0


def training_options(config: str = "") -> Callable[[Callable], Callable]:
  """Gives a command the options of every training; ``config`` is the default of ``--config``."""
  options = (
    click.option("--config", default=config, show_default=bool(config), metavar="NAME", help="Network or run, see above."),
    set_option,
    click.option("--run-dir", type=PATH, metavar="DIR", help="Folder of the run.  [default: runs/NAME]"),
    click.option("--resume/--no-resume", default=True, help="Continue the run in its folder, or refuse the folder."),
    click.option("--export", type=PATH, metavar="DIR", help="Folder to write the averaged weights to."),
  )
  return lambda function: functools.reduce(lambda decorated, option: option(decorated), reversed(options), function)


def main(
  doc: str | None,
  get_config: Callable[[str], Any],
  train: Callable,
  *,
  config: str = "",
  name_of: Callable[[Any], str] = lambda run: run.name,
  estimate: Callable[[Any], float] | None = None,
) -> None:
  """The command line of a training.

  Args:
    get_config: from the argument of ``--config`` to a frozen dataclass; ``config`` is the default argument.
    train: ``(run, run_dir, resume, export_to)``.
    name_of: the folder of a run under ``runs``.
    estimate: hours of a run.
  """

  @training_options(config)
  def command(config, assignments, run_dir, resume, export, estimates=False):
    logging.basicConfig(level=logging.WARNING)
    run = override(get_config(config), assignments)
    if estimate is not None and estimates:
      print(f"{run.loop.num_steps} updates will take about {estimate(run):.1f} hours on this machine")
      return
    folder = run_dir or Path("runs") / name_of(run)
    run_record.begin(folder, type(run).__name__, run, {}, resume=resume)
    train(run, folder, resume, export)

  if estimate is not None:
    help = "Time a few updates and print the hours of the whole run."
    command = click.option("--estimate", "estimates", is_flag=True, help=help)(command)
  script(doc)(command)()


class Progress:
  """Prints loss, throughput and remaining time every few seconds; a `jaxspec.training.train_loop.ReportFn`."""

  def __init__(self, title: str, items_per_step: int = 1):
    self._title, self._items, self._last = title, items_per_step, -LINE_EVERY_S

  def __call__(self, step: int, num_steps: int, metrics: dict[str, float], rate: float) -> None:
    now = time.monotonic()
    if now - self._last < LINE_EVERY_S and step < num_steps:
      return
    self._last = now
    left = datetime.timedelta(seconds=round((num_steps - step) / max(rate, 1e-9)))
    figures = f"loss {metrics['loss']:.4f}  {rate * self._items:.1f} items/s  {left} left"
    print(f"{self._title}  step {step}/{num_steps}  {figures}", flush=True)


def predicted_hours(
  step: TrainStep, state: TrainState, batch_fn: Callable[[int], dict], num_steps: int, timed: int = 3
) -> float:
  """Hours that ``num_steps`` updates will take, from ``timed`` of them after the one that compiles; no evaluations.

  The state is donated.
  """
  state = step.place_state(state)
  state, _ = step.update(state, step.place_batch(batch_fn(0)))
  jax.block_until_ready(state)
  started = time.perf_counter()
  for number in range(1, timed + 1):
    state, _ = step.update(state, step.place_batch(batch_fn(number)))
  jax.block_until_ready(state)
  return (time.perf_counter() - started) / timed * num_steps / 3600


def command_of(script: str, run: Any, default: Any) -> str:
  """The command that trains ``run``; ``script`` is the one that trains ``default``."""
  settings = [f"--set {shlex.quote(assignment)}" for assignment in differences(default, run)]
  return " ".join([f"python -m experiments.train.{script}", *settings])


def meta_of(
  script: str, run: Any, default: Any, state: TrainState, *, licence: str, started: float, **more: Any
) -> dict[str, Any]:
  """Metadata of an exported checkpoint about its training; arguments as of `command_of`, ``started`` by
  `time.perf_counter`."""
  return {
    "licence": licence,
    "command": command_of(script, run, default),
    "run": dataclasses.asdict(run),
    "steps": int(state.step),
    "hours_of_last_start": round((time.perf_counter() - started) / 3600, 2),
    "jax": jax.__version__,
    **more,
  }


def spent(run_dir: Path, wall_s: float, cpu_s: float) -> dict[str, int]:
  """Adds this process's time to the total of the run folder and returns the total."""
  file = run_dir / "time.json"
  total = json.loads(file.read_text()) if file.exists() else {"wall_s": 0, "cpu_s": 0}
  total = {"wall_s": round(total["wall_s"] + wall_s), "cpu_s": round(total["cpu_s"] + cpu_s)}
  file.write_text(json.dumps(total) + "\n")
  return total
