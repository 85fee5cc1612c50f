"""Cost of a server's table by its size: insertion of a row, and a step of a few rows.

Both should take the same time for any number of slots, because the table is donated and written in place. Rows have 2 MB;
weights are random. The sizes take turns, so that a drift of the machine affects all of them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from experiments.engine.experiment import Experiment, Lab
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.llamagen import LlamaGenConfig, llamagen_fns
from jaxspec.run import measure
from jaxspec.sampling.logit_processing import ModelParams, sampling_params
from jaxspec.serving.server.cache_table import Table
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.server_programs import Programs
from jaxspec.serving.server.step_arrays import Sizes
from jaxspec.serving.wire.sqs_codec import PlainCodec

CONFIG = LlamaGenConfig(num_layers=4, dim=256, num_heads=4, vocab_size=1024, num_tokens=256, num_classes=8)
ROWS, WIDTH = 8, 8


class Cost(NamedTuple):
  """Figures of a table with some number of slots: seconds of each repeat."""

  insert_s: list[float]
  step_s: list[float]
  megabytes: float
  is_in_place: bool  # whether all buffers keep their addresses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Insert(Experiment):
  """Milliseconds of an insertion and of a step, by slots of the table."""

  num_slots: tuple[int, ...] = (8, 32, 128)
  repeats: int = 31
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    found = costs(self.num_slots, self.repeats)
    first = found[self.num_slots[0]]
    rows = []
    for number, cost in found.items():
      ratios = (measure.pairwise_ratio(own, base) for own, base in zip(cost[:2], first[:2]))
      cells = [str(number), f"{cost.megabytes:,.0f}", _spread(cost.insert_s, 1e3), _spread(cost.step_s, 1e3)]
      rows.append({"cells": [*cells, *(_shown(ratio) for ratio in ratios), "yes" if cost.is_in_place else "no"]})
    against = f"against {self.num_slots[0]} slots"
    return {
      "head": ["slots", "MB", "insert, ms", f"step of {ROWS} rows, ms", f"insert {against}", f"step {against}", "in place"],
      "intro": f"Median [lowest, highest] of {self.repeats}; ratios by pairs.",
      "below": "Two cells whose brackets overlap do not differ significantly.",
      "rows": rows,
    }


def costs(num_slots: tuple[int, ...], repeats: int, config: LlamaGenConfig = CONFIG) -> dict[int, Cost]:
  """Measures tables of these sizes in turns."""
  fns = llamagen_fns(config)
  params = ModelParams(fns.init(jax.random.key(0)), sampling_params())
  profiles, example = (ServedProfile(PlainCodec(config.vocab_size)),), ClassLabels(np.zeros(1, np.int32))
  tables: dict[int, Table] = {}
  inserts, steps, before = {}, {}, {}
  for number in num_slots:
    programs = Programs(params, fns, profiles, Sizes(number, ROWS, config.num_tokens - 1, (WIDTH,)), example)
    tables[number] = programs.table()
    row = jax.device_put(programs.row(tables[number], 0))

    def insert(number=number, programs=programs, row=row):
      tables[number] = programs.insert(tables[number], row, 3)
      return tables[number]

    def step(number=number, programs=programs):
      tables[number], _ = programs.step(tables[number], 0, WIDTH, [])
      return tables[number]

    inserts[str(number)], steps[str(number)] = insert, step
    before[number] = pointers(insert())  # the first call may copy a table whose buffers JAX does not own
  insert_s, step_s = measure.alternate(inserts, repeats), measure.alternate(steps, repeats)
  size = lambda table: sum(leaf.nbytes for leaf in jax.tree.leaves(table)) / 1e6
  return {
    number: Cost(insert_s[str(number)], step_s[str(number)], size(table), pointers(table) == before[number])
    for number, table in tables.items()
  }


def pointers(table: Table) -> list[int]:
  """Addresses of a table's buffers."""
  return [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(table)]


def _spread(values: list[float], scale: float) -> str:
  timing = measure.Timing.of(values)
  return f"{timing.median * scale:.2f} [{timing.low * scale:.2f}, {timing.high * scale:.2f}]"


def _shown(ratio: measure.Timing) -> str:
  return f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
