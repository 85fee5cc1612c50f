"""Training of the scenes' target, config ``gpu``, within the time limit; the weights are exported at every stop."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from experiments.accelerator.ledger import Clock, Ledger, TimeIsUp, is_failed
from experiments.train import scene_target
from experiments.train.scene_target import SceneRun

STEPS = 10_000
_EXPORT_S = 45.0  # reserved for evaluating and writing the weights


def run(ledger: Ledger, clock: Clock, rehearse: bool) -> None:
  """A cell for every run; the step ends with the training.

  Raises:
    TimeIsUp: if updates are left.
  """
  folder = ledger.folder
  config = config_of(rehearse)
  done = max((cell.get("steps", 0) for cell in ledger.cells.values()), default=0)
  while done < config.loop.num_steps:
    name = f"from update {done}"
    cell = ledger.cell(name, clock, lambda: trained(config, folder, clock.left - _EXPORT_S))
    if is_failed(cell):
      return
    done = cell["steps"]
    if done < config.loop.num_steps:
      raise TimeIsUp(f"update {done} of {config.loop.num_steps}")


def config_of(rehearse: bool) -> SceneRun:
  """The run."""
  found = scene_target.get_config("" if rehearse else "gpu")
  if not rehearse:
    return dataclasses.replace(found, loop=dataclasses.replace(found.loop, num_steps=STEPS))
  model = dataclasses.replace(found.model, num_layers=1, dim=32, num_heads=2)
  text = dataclasses.replace(found.text, num_layers=1)
  loop = dataclasses.replace(found.loop, num_steps=2, eval_every=0)
  return dataclasses.replace(found, model=model, text=text, loop=loop, batch_size=2, eval_images=1)


def trained(config: SceneRun, folder: Path, seconds: float) -> dict[str, Any]:
  """Number of updates, and scores of images from the exported weights."""
  if seconds <= 0:
    raise TimeIsUp("the training")
  started = time.perf_counter()
  run = dataclasses.replace(config, loop=dataclasses.replace(config.loop, stop_after_s=seconds))
  state = scene_target.train(run, folder / "training", export_to=folder / "scenes")
  return {"steps": int(state.step), "seconds": time.perf_counter() - started}
