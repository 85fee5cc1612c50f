"""Comparison with official code in one process, in alternating runs: the common part.

1. Random weights are written in the official format. The official network loads the file; ours loads its conversion.
2. All programs draw one image whose tokens must agree, and the tokens are compared.
3. All draw other images in turns. The load of the machine by other processes is measured before and during the runs.

Needs ``pip install 'jaxspec-decoding[bench]'`` and a checkout of the official code, named by ``--official``.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from experiments.bench.memory import Folder
from experiments.engine import quiet
from experiments.engine.experiment import Experiment, Lab, provenance
from jaxspec.run import measure

OURS = "ours"


class Program(NamedTuple):
  """One program that draws images, one at a time."""

  compared: Callable[[], np.ndarray]  # tokens [N, ...] of the common image
  timed: Callable[[], np.ndarray]  # tokens of another image at every call


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beside(Experiment):
  """Tokens per second of all programs, and differences of compared tokens.

  Attributes:
    repeats: turns.
    busy: largest share of the machine for other processes.
  """

  repeats: int = 5
  busy: float = 0.1
  repository: ClassVar[str]
  modules: ClassVar[tuple[str, ...]]  # called modules of the checkout
  packages: ClassVar[tuple[str, ...]] = ("torch",)  # packages that the official code imports
  tolerance: ClassVar[float] = 0.0  # tolerance of equal tokens, in standard deviations of ours

  @abc.abstractmethod
  def programs(self, folder: Path) -> dict[str, Program]:
    """The programs by name, the first `OURS`; ``folder`` takes the files of their weights."""

  @abc.abstractmethod
  def facts(self) -> dict[str, Any]:
    """Facts of the run for the document; JSON."""

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`.

    Raises:
      ValueError: without a checkout or a package, or if other processes use the machine.
    """
    checkout = check_checkout(lab.official, self.repository, self.modules)
    for package in self.packages:
      if importlib.util.find_spec(package) is None:
        raise ValueError(
          f"Must have {package} to run the official code (pip install 'jaxspec-decoding[bench]'), it is not installed"
        )
    quiet.check(self.busy)
    with Folder(lab.runs / "official") as folder, on_path(checkout):
      found = compare(self.programs(folder), self.repeats, self.tolerance)
    return self.facts() | {"repeats": self.repeats} | found


def compare(programs: dict[str, Program], repeats: int, tolerance: float) -> dict[str, Any]:
  """``rows``, the load by other processes, threads of PyTorch and versions."""
  tokens, first_s = {}, {}
  for name, program in programs.items():
    logging.info("tokens that must agree, and first call: %s", name)
    tokens[name] = program.compared()
    first_s[name] = measure.seconds_of(program.timed)
  watch = quiet.Watch()
  seconds = measure.alternate({name: program.timed for name, program in programs.items()}, repeats)
  rows = []
  for name in programs:
    difference = differences(tokens[OURS], tokens[name])
    equal = difference <= tolerance
    rows.append(
      {
        "label": name,
        "tokens_per_s": len(tokens[OURS]) / measure.Timing.of(seconds[name]).median,
        "ours_faster": measure.pairwise_ratio(seconds[name], seconds[OURS])._asdict(),
        "first_call_s": first_s[name],
        "equal": int(equal.sum()),
        "difference": float(difference.max()),
        "first_difference": None if equal.all() else int(np.argmin(equal)),
      }
    )
  import torch

  return {
    "others": watch.others(), "rows": rows, "threads": torch.get_num_threads(),
    "versions": provenance()["versions"] | {"torch": torch.__version__},
  }  # fmt: skip


def differences(ours: np.ndarray, others: np.ndarray) -> np.ndarray:
  """The largest difference of every token ``[N, ...]``, over the standard deviation of all components of ours."""
  scale = float(np.std(ours)) or 1.0
  return np.abs(ours.astype(np.float64) - others).reshape(len(ours), -1).max(axis=1) / scale


def check_checkout(path: Path | None, repository: str, modules: tuple[str, ...]) -> Path:
  """The folder, if it has the called modules.

  Raises:
    ValueError: in one line, if it does not.
  """
  if path is None:
    raise ValueError(f"Must have a checkout of github.com/{repository} (--official PATH), we instead got none")
  for module in modules:
    if not (path / f"{module.replace('.', '/')}.py").is_file():
      raise ValueError(f"Must have a checkout of github.com/{repository}, {path} has no {module}")
  return path


def official_part(module: str, name: str) -> Any:
  """The object ``name`` of a module of the checkout.

  Raises:
    ValueError: in one line, if it is missing, or a package that it imports.
  """
  try:
    return getattr(importlib.import_module(module), name)
  except (ImportError, AttributeError) as error:
    raise ValueError(f"Must have a checkout that has {name} in {module}, we instead got: {error}") from error


def with_weights(model: Any, source: Path) -> Any:
  """An official network with the weights of a file, ready for sampling.

  Raises:
    ValueError: if its tensors are not those of the file.
  """
  import torch

  missing, unexpected = model.load_state_dict(torch.load(source, weights_only=True)["model"], strict=False)
  if missing or unexpected:
    raise ValueError(f"Must have all tensors of the official model, we instead got {missing} missing, {unexpected} unknown")
  return model.eval()


@contextlib.contextmanager
def on_path(folder: Path) -> Iterator[None]:
  """A context in which modules are found in a folder first."""
  sys.path.insert(0, str(folder.resolve()))
  try:
    yield
  finally:
    sys.path.remove(str(folder.resolve()))
