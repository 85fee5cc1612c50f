"""What converting and decoding a published size takes in memory, and what larger sizes would take.

The weights are random, in a file as the official code writes it. Conversion, and loading with a decode, run in a process of
their own each, whose anonymous memory is watched.

1. Conversion reads, turns and writes one tensor after the other. Its peak over what the process had before is compared with
   the largest tensor.
2. A decode takes what the process had before, and what a plan says (`jaxspec.planning`): weights, caches, activations. The
   difference between plan and measurement is printed for every size. Other sizes are extrapolated by that sum.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from conversion import engine, torch_files
from conversion.llamagen import FAMILY
from experiments.engine.experiment import Experiment, Lab
from jaxspec.models.llamagen import LlamaGenConfig
from jaxspec.planning import make_plan, sampling_of
from jaxspec.planning.devices import Device, Slice
from jaxspec.planning.models import Model

_ENDLESS = Slice("endless", "cpu", Device(1e15, 1e11, 1e12, 1e12, math.inf, "cpu", 0, "none"), 1, (1,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory(Experiment):
  """Peaks of sizes that are measured, and the formula of all.

  Attributes:
    sizes: measured.
    extrapolated: by the formula alone.
    dtype: of loaded weights and of the arithmetic.
    tokens: that are drawn.
  """

  sizes: tuple[str, ...] = ("GPT-B", "GPT-L", "GPT-XL")
  extrapolated: tuple[str, ...] = ("GPT-XXL", "GPT-3B")
  dtype: str = "bfloat16"
  tokens: int = 16
  kind: ClassVar[str] = "memory"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    rows = []
    for size in self.sizes:
      logging.info("%s", size)
      config = LlamaGenConfig.named(size)
      with Folder(lab.runs / "memory" / size) as folder:
        converted = conversion_of(config, folder)
        drawn = in_a_process("decode", folder / "checkpoint", self.dtype, self.tokens)
      rows.append(
        {"label": size, **sizes_of(config), "conversion": converted, "decode": drawn, "plan": self.planned(config, size)}
      )
    return {
      "dtype": self.dtype,
      "tokens": self.tokens,
      "rows": rows,
      "extrapolated": [
        {"label": size, "plan": self.planned(LlamaGenConfig.named(size), size)} for size in self.extrapolated
      ],
    }

  def planned(self, config: LlamaGenConfig, name: str) -> float:
    """Bytes of weights, caches and activations of one row."""
    model = Model(name, "llamagen", config, config.num_tokens, config.prefix_len, 4.0).with_tokens(self.tokens)
    return make_plan(model, _ENDLESS, sampling=sampling_of(model), dtype=self.dtype).batches[0].bytes


class Folder:
  """A folder that is gone in the end."""

  def __init__(self, path: Path):
    self._path = path

  def __enter__(self) -> Path:
    shutil.rmtree(self._path, ignore_errors=True)
    self._path.mkdir(parents=True)
    return self._path

  def __exit__(self, *error: Any) -> None:
    shutil.rmtree(self._path, ignore_errors=True)


def sizes_of(config: LlamaGenConfig) -> dict[str, int]:
  """``parameters``, and bytes in float32 of the ``largest`` tensor and of the whole ``output`` of a conversion."""
  numbers = [math.prod(shape) for shape in engine.template_of(config).values()]
  return {"parameters": sum(numbers), "largest": 4 * max(numbers), "output": 4 * sum(numbers)}


def write_source(config: LlamaGenConfig, path: Path) -> None:
  """A file as ``torch.save`` writes it, of random weights; tensors of one shape are the same."""
  generator, made = np.random.default_rng(0), {}
  shapes = engine.source_shapes(FAMILY, engine.template_of(config))
  for shape in shapes.values():
    if shape not in made:
      made[shape] = (0.02 * generator.standard_normal(shape, np.float32)).astype(np.float32, copy=False)
  torch_files.write(path, {"model": {name: made[shape] for name, shape in shapes.items()}})


def conversion_of(config: LlamaGenConfig, folder: Path) -> dict[str, int]:
  """``before`` and ``peak`` bytes of a process that converts a network of random weights to ``folder / "checkpoint"``."""
  write_source(config, folder / "source.pt")
  found = in_a_process("convert", folder / "source.pt", folder / "checkpoint")
  (folder / "source.pt").unlink()
  return found


def in_a_process(*arguments: Any) -> dict[str, int]:
  """What `experiments.bench.memory_child` prints.

  Raises:
    ValueError: in one line, if it fails.
  """
  command = [sys.executable, "-m", "experiments.bench.memory_child", *map(str, arguments)]
  done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
  if done.returncode:
    last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    raise ValueError(f"Must have memory for {arguments[0]}, the process ended with: {last}")
  return json.loads(done.stdout.splitlines()[-1])
