"""Trains everything that drafts for a target, one after the other: heads on its features, drafts, edge networks of CIAR.

Commands (from the repository root; the same command resumes a killed run)::

    python -m experiments.data.captions --num 4608 --split train --seed 0 --out runs/scenes-captions.txt
    python -m experiments.train.devices --list
    python -m experiments.train.devices --out checkpoints/scenes eagle draft-1 inter-1 inter-2
    python -m experiments.train.devices --out runs/devices

The first writes the captions for which the target draws its samples; all networks share them. ``NAME`` is a name or a
pattern, such as ``'inter-1*'``; the default is all networks. ``--out`` is a bundle, to which every network is added after
its training; a new one begins as a copy of ``--bundle``. Networks that it has are skipped, unless trained with another
``--set``. Every training is a process: `jaxspec train`, or `experiments.train.interval_features`.

One factor of an edge network is varied at a time from one base (two layers, one head, the whole loss, no guidance): depth,
heads, the terms and weights of its loss, guidance, interval features. Each has three seeds and the same number of updates;
``--set`` changes a field of all trainings (``--set loop.num_steps=400``).

Before it begins, and after every network, it says how long the rest will take: as long as finished trainings of the same
kind took.
"""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from experiments.train import edge_networks, interval_features
from jaxspec.core.command_line import PATH, script, set_option
from jaxspec.core.overrides import differences, override
from jaxspec.io import checkpoints
from jaxspec.io.bundle import BUNDLE_FILE, Bundle, read_bundle
from jaxspec.training.distillation.block_head_student import BlockHeadSettings
from jaxspec.training.distillation.draft_student import DraftSettings
from jaxspec.training.distillation.eagle_student import EagleSettings
from jaxspec.training.distillation.spatial_student import SpatialSettings
from jaxspec.training.distillation.students import STUDENTS
from jaxspec.training.inter_dro import ABLATIONS

SEEDS = (0, 1, 2)
BASE = "2"
DEPTHS = ("1", BASE, "3")
HEADS = (BASE, f"{BASE}x2", f"{BASE}x3")
ABLATED = (BASE, *(f"{BASE}-{name}" for name in ABLATIONS if name != "full"))
WEIGHTED = (BASE, *(f"{BASE}-{name}" for name in edge_networks.SWEEP))

FEATURES = "interval_features"


def draft_name(run: DraftSettings) -> str:
  """Name of a draft network in its bundle."""
  return f"draft-{run.num_layers}"


# Kinds whose settings make the name.
NAMES = {"inter-head": edge_networks.name_of, FEATURES: interval_features.name_of, "draft": draft_name}


class Training(NamedTuple):
  """One network.

  Attributes:
    name: in the bundle.
    kind: of `jaxspec train`, or `FEATURES`.
    run: everything that it depends on.
    config: argument ``--config`` of `FEATURES`.
  """

  name: str
  kind: str
  run: Any
  config: str = ""

  def changed(self, assignments: Sequence[str]) -> Training:
    """The training with other settings.

    Raises:
      ValueError: for an unknown setting, or one that makes the name.
    """
    run = override(self.run, assignments)
    if self.kind in NAMES and (name := NAMES[self.kind](run)) != self.name:
      raise ValueError(f"Must have settings of {self.name}, we instead got those of {name}: choose that NAME")
    return self._replace(run=run)

  def command(self, run_dir: Path, out: Path, bundle: Path, captions: Path, samples: Path) -> list[str]:
    """The command that trains and exports it."""
    if self.kind == FEATURES:
      words = ["-m", f"experiments.train.{FEATURES}", "--config", self.config]
      default = interval_features.get_config(self.config)
      data = [f"{name}={path}" for name, path in (("bundle", bundle), ("captions", captions), ("samples", samples))]
    else:
      words = ["-m", "jaxspec", "train", self.kind, "--name", self.name, "--model", str(bundle)]
      words += ["--prompt-file", str(captions), "--samples", str(samples)]
      default, data = STUDENTS[self.kind].settings(), []
    settings = [word for assignment in (*differences(default, self.run), *data) for word in ("--set", assignment)]
    return [sys.executable, *words, *settings, "--run-dir", str(run_dir / self.name), "--export", str(out)]


def edge_name(config: str = BASE, seed: int = 0, *, guided: bool = False) -> str:
  """Name of an edge network in its bundle."""
  return edge_networks.name_of(dataclasses.replace(edge_networks.get_config(config), seed=seed, guided=guided))


def features_name(seed: int = 0) -> str:
  """Name of the base edge network with interval features."""
  return interval_features.name_of(interval_features.get_config(edge_name(seed=seed)))


def trainings() -> list[Training]:
  """All networks in the order of their training; an edge network comes before its interval features."""
  found = [Training("eagle", "eagle", EagleSettings()), Training("block-2", "block-head", BlockHeadSettings())]
  found += [Training("spatial", "spatial", SpatialSettings())]
  found += [Training(draft_name(run), "draft", run) for run in (DraftSettings(num_layers=layers) for layers in (1, 2))]
  for seed in SEEDS:
    for config in dict.fromkeys((*DEPTHS, *HEADS, *ABLATED, *WEIGHTED)):
      run = dataclasses.replace(edge_networks.get_config(config), seed=seed)
      found.append(Training(edge_networks.name_of(run), "inter-head", run))
    run = dataclasses.replace(edge_networks.get_config(BASE), seed=seed, guided=True)
    found.append(Training(edge_networks.name_of(run), "inter-head", run))
    run = dataclasses.replace(interval_features.get_config(edge_name(seed=seed)), seed=seed)
    found.append(Training(interval_features.name_of(run), FEATURES, run, edge_name(seed=seed)))
  return found


def chosen(names: Sequence[str]) -> list[Training]:
  """The trainings whose names match a pattern, all for none.

  Raises:
    ValueError: for a pattern that matches none.
  """
  known = trainings()
  for name in names:
    if not fnmatch.filter([training.name for training in known], name):
      raise ValueError(f"Must have a network in {', '.join(t.name for t in known)}, we instead got {name!r}")
  return [one for one in known if not names or any(fnmatch.fnmatch(one.name, name) for name in names)]


def is_trained(training: Training, bundle: Bundle) -> bool:
  """Whether a bundle has the network, trained with the requested settings; the target and its samples may be elsewhere."""
  if training.name not in bundle.drafts:
    return False
  found = checkpoints.read_config(bundle.path / bundle.drafts[training.name])["meta"].get("run")
  # Settings of a later version of the trainings have their defaults.
  return found is not None and _settings(_as_json(type(training.run)()) | found) == _settings(_as_json(training.run))


def _settings(run: dict[str, Any]) -> dict[str, Any]:
  return {name: value for name, value in run.items() if name not in ("bundle", "captions", "samples")}


def _as_json(run: Any) -> dict[str, Any]:
  """A run as a checkpoint holds it."""
  listed = lambda value: [listed(one) for one in value] if isinstance(value, (list, tuple)) else value
  nested = lambda value: {k: nested(v) for k, v in value.items()} if isinstance(value, dict) else listed(value)
  return nested(dataclasses.asdict(run))


def hours_of(kind: str, bundle: Bundle) -> float | None:
  """What a finished training of a kind took, the median of those of a bundle; None where there is none."""
  found, marks = [], (f" train {kind} ", f"experiments.train.{kind} ")
  for folder in bundle.drafts.values():
    meta = checkpoints.read_config(bundle.path / folder)["meta"]
    if any(mark in f"{meta.get('command', '')} " for mark in marks) and meta.get("hours_of_last_start"):
      found.append(meta["hours_of_last_start"])
  return statistics.median(found) if found else None


def left(missing: Sequence[Training], bundle: Bundle) -> str:
  """The remaining time, if known."""
  hours = {kind: hours_of(kind, bundle) for kind in {one.kind for one in missing}}
  known = [hours[one.kind] for one in missing if hours[one.kind] is not None]
  words = f"{len(missing)} to train"
  if known:
    words += f", about {datetime.timedelta(seconds=round(3600 * sum(known)))} for {len(known)} of them"
  unknown = sorted(kind for kind, found in hours.items() if found is None)
  return words + (f"; no timings of {', '.join(unknown)} yet" if unknown else "")


@script(__doc__)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--bundle", type=PATH, default="checkpoints/scenes", help="Bundle of the target.")
@click.option("--captions", type=PATH, default="runs/scenes-captions.txt", help="Prompts of the samples, one a line.")
@click.option("--samples", type=PATH, default="runs/scenes-samples.npz", help="Samples of the target; drawn if missing.")
@click.option("--out", type=PATH, default="runs/devices", help="Bundle that the networks are added to.")
@click.option("--runs", type=PATH, default="runs/trainings", help="Folder of the trainings.")
@set_option
@click.option("--list", "lists", is_flag=True, help="Show what would be trained.")
def main(
  names: tuple[str, ...], bundle: Path, captions: Path, samples: Path, out: Path, runs: Path,
  assignments: tuple[str, ...], lists: bool,
) -> None:  # fmt: skip
  wanted = [one.changed(assignments) for one in chosen(names)]
  if not (bundle / BUNDLE_FILE).is_file() and not out.exists():
    raise ValueError(f"Must have a bundle with {BUNDLE_FILE} in --bundle, we instead got {bundle}")
  if not out.exists() and not lists:
    copied = out.with_name(f".{out.name}.part")
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(bundle, copied)
    copied.rename(out)
  found = read_bundle(out if out.exists() else bundle)
  missing = [one for one in wanted if not is_trained(one, found)]
  print(left(missing, found), flush=True)
  if lists:
    print("\n".join(one.name for one in missing))
    return
  for number, one in enumerate(missing):
    print(f"{one.name}: {number + 1} of {len(missing)}", flush=True)
    command = one.command(runs, out, out, captions, samples)
    if subprocess.run(command, check=False).returncode:
      raise ValueError(f"Must have trainings that end, we instead got an error from {' '.join(command)}")
    print(left(missing[number + 1 :], read_bundle(out)), flush=True)


if __name__ == "__main__":
  main()
