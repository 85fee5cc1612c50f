"""What the trainings of vector tokens share: classes of the pictures, the time a run will take, and the command line."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import logging
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

from jaxspec.data.emoji import EmojiSet
from jaxspec.training.overrides import differences, override
from jaxspec.training.step import TrainStep
from jaxspec.training.train_state import TrainState


def class_names(emoji: EmojiSet) -> tuple[str, ...]:
  """The subgroups of the set in the order of the Unicode charts; the label of a class is its place."""
  return tuple(dict.fromkeys(concept.subgroup for concept in emoji.emoji))


def class_labels(emoji: EmojiSet) -> np.ndarray:
  """Label ``[pictures]`` int32 of every picture."""
  number = {name: i for i, name in enumerate(class_names(emoji))}
  return np.asarray([number[emoji.emoji[concept].subgroup] for concept in emoji.concept], np.int32)


def epochs_of(pictures: np.ndarray, batch_size: int, seed: int) -> Callable[[int], np.ndarray]:
  """The pictures of a step: a new permutation every epoch, a pure function of the step."""

  @functools.lru_cache(maxsize=2)
  def order(epoch: int) -> np.ndarray:
    return np.random.default_rng((seed, 0, epoch)).permutation(pictures)

  def chosen(step: int) -> np.ndarray:
    positions = np.arange(step * batch_size, (step + 1) * batch_size)
    return np.array([order(int(i) // len(pictures))[i % len(pictures)] for i in positions])

  return chosen


def predicted_hours(
  step: TrainStep, state: TrainState, batch_fn: Callable[[int], dict], num_steps: int, timed: int = 3
) -> float:
  """Hours that ``num_steps`` updates will take, from ``timed`` of them behind the one that compiles; no evaluations.

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


def run_meta(run, default, script: str, state: TrainState, figures: dict, seconds: float, licence: str) -> dict:
  """What an exported checkpoint says of its training; ``script`` is the command that trains ``default``."""
  settings = [f"--set {shlex.quote(assignment)}" for assignment in differences(default, run)]
  return {
    "licence": licence,
    "command": " ".join([script, *settings]),
    "run": dataclasses.asdict(run),
    "steps": int(state.step),
    "figures": figures,
    "hours_of_last_start": round(seconds / 3600, 2),
    "jax": jax.__version__,
  }


def main(doc: str, get_config: Callable, train: Callable, estimate: Callable, name_of: Callable) -> None:
  """The command line of a training script; runs go to ``runs/NAME`` by default."""
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--config", default="")
  parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="e.g. loop.num_steps=500")
  parser.add_argument("--run-dir", type=Path)
  parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)
  parser.add_argument("--export", type=Path, metavar="BUNDLE")
  parser.add_argument("--estimate", action="store_true", help="time a few updates and print the hours of the whole run")
  args = parser.parse_args()
  logging.basicConfig(level=logging.WARNING)
  run = override(get_config(args.config), args.set)
  if args.estimate:
    print(f"{run.loop.num_steps} updates will take about {estimate(run):.1f} hours on this machine")
    return
  train(run, args.run_dir or Path("runs") / name_of(run), args.resume, args.export)
