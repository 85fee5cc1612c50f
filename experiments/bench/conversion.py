"""Memory and time of converting a published size: memory is that of one tensor, time is proportional to the bytes.

Weights are random, in files as they are released: GPT-XL in one file of float32, Chameleon 7B with fewer blocks in a folder
of the hub in bfloat16, a file for each block. Each conversion has its own process. The figures of all 32 blocks are
extrapolated linearly from the measured depths.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from conversion import chameleon, engine
from experiments.bench.memory import Folder, conversion_of, in_a_process, sizes_of
from experiments.engine.experiment import Experiment, Lab
from jaxspec.models.chameleon.chameleon import ChameleonConfig
from jaxspec.models.llamagen import LlamaGenConfig

ALL_LAYERS = ChameleonConfig().num_layers


class Cost(NamedTuple):
  """Of one conversion: bytes of its largest tensor (float32), of its output and of additional memory, and seconds."""

  largest: float
  output: float
  memory: float
  seconds: float

  def cells(self, label: str, how: str) -> dict[str, list[str]]:
    sizes = [f"{value / 1e6:,.0f}" for value in (self.largest, self.output, self.memory)]
    return {"cells": [label, how, *sizes, f"{self.memory / self.largest:.2f}", f"{self.seconds:.0f}"]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conversion(Experiment):
  """Peak memory and time of conversions.

  Attributes:
    size: of LlamaGen.
    depths: measured numbers of blocks of Chameleon 7B, at least two.
  """

  size: str = "GPT-XL"
  depths: tuple[int, ...] = (2, 4, 8)
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    with Folder(lab.runs / "conversion") as folder:
      logging.info("%s", self.size)
      rows = [of_llamagen(LlamaGenConfig.named(self.size), folder).cells(self.size, "measured")]
      found = {}
      for depth in self.depths:
        logging.info("Chameleon 7B, %d blocks", depth)
        found[depth] = of_chameleon(ChameleonConfig(num_layers=depth), folder / str(depth))
        rows.append(found[depth].cells(f"Chameleon 7B, {depth} blocks", "measured"))
    rows.append(extended(found, ALL_LAYERS).cells(f"Chameleon 7B, {ALL_LAYERS} blocks", "extended"))
    return {
      "head": ["network", "", "largest tensor, MB", "output, MB", "memory, MB", "of the largest tensor", "seconds"],
      "intro": "anonymous memory of a process beyond what it had before; the largest tensor in float32, the outputs in "
      "float32 (LlamaGen) and bfloat16 (Chameleon).",
      "below": "Extended: memory as at the largest depth, output and seconds on the least-squares line over the depths.",
      "rows": rows,
    }  # fmt: skip


def of_llamagen(config: LlamaGenConfig, folder: Path) -> Cost:
  """A conversion of LlamaGen's one file."""
  sizes, found = sizes_of(config), conversion_of(config, folder)
  return Cost(sizes["largest"], sizes["output"], found["peak"] - found["before"], found["seconds"])


def of_chameleon(config: ChameleonConfig, folder: Path) -> Cost:
  """A conversion of a hub's folder of Chameleon."""
  write_hub(config, folder / "source")
  found = in_a_process("convert_chameleon", folder / "source", folder / "checkpoint")
  numbers = [math.prod(shape) for shape in engine.template_of(config).values()]
  return Cost(4 * max(numbers), 2 * sum(numbers), found["peak"] - found["before"], found["seconds"])


def write_hub(config: ChameleonConfig, folder: Path) -> None:
  """A folder in the format of the hub: a file for the embeddings and one for each block, and the index of their tensors."""
  folder.mkdir(parents=True)
  generator, index, shards = np.random.default_rng(0), {}, {}
  for name, shape in engine.source_shapes(chameleon.HUB, engine.template_of(config)).items():
    block = name.split(".")[2] if name.startswith("model.layers.") else "ends"
    shards.setdefault(f"model-{block}.safetensors", {})[name] = shape
  for file, shapes in shards.items():
    tensors = {name: _random(generator, shape) for name, shape in shapes.items()}
    save_file(tensors, folder / file, metadata={"format": "pt"})
    index |= dict.fromkeys(tensors, file)
  (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
  document = dict(
    model_type="chameleon", vocab_size=config.vocab_size, hidden_size=config.dim, num_hidden_layers=config.num_layers,
    num_attention_heads=config.num_heads, intermediate_size=config.ffn_hidden,
  )  # fmt: skip
  (folder / "config.json").write_text(json.dumps(document))


def _random(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
  """Random bits, so that no file system compresses them."""
  return (np.float32(0.02) * generator.standard_normal(shape, np.float32)).astype(jnp.bfloat16)


def extended(found: dict[int, Cost], depth: int) -> Cost:
  """Extrapolated figures of an unmeasured depth.

  Raises:
    ValueError: with fewer than two depths.
  """
  if len(found) < 2:
    raise ValueError(f"Must have two depths to extend from, we instead got {len(found)}")
  last = found[max(found)]
  line = lambda values: float(np.polyval(np.polyfit(list(found), values, 1), depth))
  output, seconds = (line([getattr(cost, field) for cost in found.values()]) for field in ("output", "seconds"))
  return Cost(last.largest, output, last.memory, seconds)
