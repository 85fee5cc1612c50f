"""Speed-ups of methods on a network of a published size, over acceptance and batch: random weights, imposed acceptance."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, ClassVar

from experiments.engine.cache import key_of
from experiments.engine.experiment import Experiment, Lab
from experiments.engine.rows import Row, row
from jaxspec.core.options import values_of
from jaxspec.planning import find_model, sampling_of
from jaxspec.planning.imposed_bench import ImposedBench, saves_without_drafts
from jaxspec.planning.random_weights import RandomModel
from jaxspec.planning.this_machine import this_machine

METHODS = (
  row("speculative", "speculative, 3 drafts", gamma=3),
  row("speculative", "speculative, 7 drafts", gamma=7),
  row("sjd", "sjd, 7 drafts", window=7),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gains(Experiment):
  """Every method at every batch and acceptance, in turns with plain decoding; measured cells are cached.

  Attributes:
    model: a name of `jaxspec.planning.MODELS`.
    tokens: of a row.
    lock_step: also measure batches in which every row waits for the slowest one.
  """

  model: str = "llamagen-b"
  tokens: int = 64
  methods: tuple[Row, ...] = METHODS
  batches: tuple[int, ...] = (1, 8, 32, 64)
  acceptances: tuple[float, ...] = (0.5, 0.7, 0.9, 1.0)
  repeats: int = 3
  dtype: str = "float32"
  lock_step: bool = True
  kind: ClassVar[str] = "gains"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    model = find_model(self.model).with_tokens(self.tokens)
    sampling, device = sampling_of(model), this_machine(self.dtype)
    random = RandomModel(model, self.dtype)

    def cell(make, **settings):
      shared = [model.name, repr(model.config), self.tokens, values_of(sampling), self.dtype, self.repeats]
      name = f"gains-{key_of((), {'shared': shared, **settings})}"
      logging.info("%s", ", ".join(f"{key} {value}" for key, value in settings.items()))
      return lab.clocks.get(name, make, again=lab.retime)

    plain, rows = {}, []
    for batch in self.batches:
      bench = ImposedBench(random, batch, sampling, self.repeats, device)
      plain[str(batch)] = cell(bench.plain, batch=batch)
      for entry in self.methods:
        method = entry.plain_value()
        for acceptance in (None,) if saves_without_drafts(method, self.tokens) else self.acceptances:
          waits = self.lock_step and batch > 1 and acceptance is not None
          make = lambda: bench.figures(method, acceptance, lock_step=waits)  # noqa: B023, called at once
          said = dict(batch=batch, method=method.name, options=method.options(), acceptance=acceptance)
          rows.append({"label": entry.name, **said, **cell(make, **said, lock_step=waits)})
    return {
      "model": model.name, "parameters": random.model.sized(self.dtype).num_parameters, "num_tokens": self.tokens,
      "sampling": values_of(sampling), "dtype": self.dtype, "repeats": self.repeats,
      "bytes_per_s": device.device.bandwidth, "operations_per_s": device.device.peak(self.dtype),
      "plain": plain, "rows": rows,
    }  # fmt: skip
