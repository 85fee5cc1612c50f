"""Speed at published sizes: plain decoding against the memory floor, and every method against plain decoding."""

from __future__ import annotations

import functools

from experiments.accelerator.ledger import Clock, Ledger
from experiments.accelerator.networks import SIZES, method_names, method_of, model_of
from jaxspec.planning.imposed_bench import ImposedBench
from jaxspec.planning.random_weights import RandomModel
from jaxspec.planning.this_machine import this_machine
from jaxspec.sampling import SamplingConfig

BATCHES, ACCEPTANCES, REPEATS = (1, 8, 32), (0.7, 0.9, 0.5), 5
REHEARSED = ("speculative", "sjd", "eagle", "ciar")  # one of each kind of draft
SAMPLING = SamplingConfig(cfg_scale=4.0, top_k=2000)  # as released


def run(ledger: Ledger, clock: Clock, rehearse: bool) -> None:
  """The limits of the machine, plain decoding of all sizes, then methods: small batches and the middle acceptance first."""
  sizes, batches, acceptances = (("tiny",), (2,), (0.7,)) if rehearse else (SIZES, BATCHES, ACCEPTANCES)
  dtype, sampling = ("float32", SamplingConfig(cfg_scale=4.0, top_k=8)) if rehearse else ("bfloat16", SAMPLING)

  def limits():
    device = this_machine(dtype).device
    return {"bytes_per_s": device.bandwidth, "operations_per_s": device.peak(dtype)}

  @functools.lru_cache(maxsize=1)  # networks of one size at a time
  def random(size: str) -> RandomModel:
    return RandomModel(model_of(size, rehearse), dtype)

  def bench(size: str, batch: int) -> ImposedBench:
    return ImposedBench(random(size), batch, sampling, 2 if rehearse else REPEATS, this_machine(dtype))

  ledger.cell("limits", clock, limits)
  for batch in batches:
    for size in sizes:
      ledger.cell(f"{size} batch {batch} plain", clock, lambda: bench(size, batch).plain())  # noqa: B023, called at once
  for acceptance in acceptances:
    for batch in batches:
      for size in sizes:
        both = bench(size, batch)
        for name in REHEARSED if rehearse else method_names():
          cell = f"{size} batch {batch} {name} acceptance {acceptance:g}"
          ledger.cell(cell, clock, lambda: both.figures(method_of(name), acceptance))  # noqa: B023
