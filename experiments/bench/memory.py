"""Memory of converting and decoding a published size, extrapolated to larger sizes.

The weights are random, in a file of the official format. Conversion, and loading with a decode, run in separate processes;
their anonymous memory is measured.

1. Conversion reads, converts and writes one tensor after the other. Its peak over the memory at its start is compared with
   the largest tensor.
2. The memory of a decode is that of a process with the compiled program and without weights, plus the compiler's figures for
   its arguments (weights) and temporary arrays (caches; on a CPU without bfloat16 also the weights in float32). All of these
   are known without weights, so that the same sum extrapolates to larger sizes.
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
  """Peaks of the measured sizes, and the formula for all.

  Attributes:
    sizes: measured.
    extrapolated: by the formula alone.
    dtype: dtype of loaded weights and of the arithmetic.
    tokens: number of drawn tokens.
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
    """``label`` and the compiler's figures."""
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
  """A file of random weights in the format of ``torch.save``.

  Args:
    config: of a network of the family.
    distinct: whether tensors of one shape differ, which needs the memory of all of them.
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
  """The output of `experiments.bench.memory_child`.

  Raises:
    ValueError: in one line, if it fails.
  """
  command = [sys.executable, "-m", "experiments.bench.memory_child", *map(str, arguments)]
  done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
  if done.returncode:
    last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    raise ValueError(f"Must have memory for {arguments[0]}, the process ended with: {last}")
  return json.loads(done.stdout.splitlines()[-1])
