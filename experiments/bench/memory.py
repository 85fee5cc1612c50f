"""What converting and decoding a published size takes in memory, and what larger sizes would take.

The weights are random, in a file as the official code writes it. Conversion, and loading with a decode, run in a process of
their own each, whose anonymous memory is watched.

1. Conversion reads, turns and writes one tensor after the other. Its peak over what the process had before is compared with
   the largest tensor.
2. A decode takes what a process with the compiled program takes without weights, and what the compiler says that the program
   takes: its arguments (weights) and temporary arrays (caches; on a CPU without bfloat16 also the weights once more in
   float32). All of it is known without weights, so that larger sizes are extrapolated by the same sum.
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
      rows.append({**self.compiled(size), **sizes_of(config), "conversion": converted, "decode": drawn})
    others = [self.compiled(size) for size in self.extrapolated]
    return {"dtype": self.dtype, "tokens": self.tokens, "rows": rows, "extrapolated": others}

  def compiled(self, size: str) -> dict[str, Any]:
    """``label`` and what the compiler says."""
    return {"label": size, "compiled": in_a_process("compile", size, self.dtype, self.tokens)}


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


def write_source(config: Any, path: Path, family: engine.Family = FAMILY, *, distinct: bool = False) -> None:
  """A file as ``torch.save`` writes it, of random weights.

  Args:
    config: of a network of the family.
    distinct: whether tensors of one shape differ, which takes the memory of all of them.
  """
  generator, made = np.random.default_rng(0), {}

  def weights(name: str, shape: engine.Shape) -> np.ndarray:
    key = name if distinct else shape
    if key not in made:
      made[key] = np.float32(len(shape) < 2) + np.float32(0.02) * generator.standard_normal(shape, np.float32)
    return made[key]

  shapes = engine.source_shapes(family, engine.template_of(config))
  torch_files.write(path, {"model": {name: weights(name, shape) for name, shape in shapes.items()}})


def conversion_of(config: LlamaGenConfig, folder: Path) -> dict[str, float]:
  """``before`` and ``peak`` bytes and ``seconds`` of a process that converts random weights to ``folder / "checkpoint"``."""
  write_source(config, folder / "source.pt")
  fields = {"num_heads": config.num_heads, "num_tokens": config.num_tokens}
  found = in_a_process("convert", folder / "source.pt", folder / "checkpoint", json.dumps(fields))
  (folder / "source.pt").unlink()
  return found


def in_a_process(*arguments: Any) -> dict[str, float]:
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
