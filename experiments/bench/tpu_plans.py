"""Plans of published sizes against the TPU compiler's figures; needs libtpu, but no TPU.

Every decode is compiled in its own process, as in ``jaxspec plan ... --compile``, and cached. The compiled program is the
decode alone: the image tokenizer and the text encoder of a plan stay on the device beside it, and are left out of the
comparison.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from experiments.bench.tpu_child import planned
from experiments.engine.cache import Cache, key_of
from experiments.engine.experiment import Experiment, Lab

GB = 1e9
# Failures of the TPU compiler: memory in GiB, or an internal error.
_TOO_LARGE = re.compile(r"temporaries \(([\d.]+)G\) exceeds available HBM \(([\d.]+)G\)")
_OWN_ERROR = re.compile(r"JaxRuntimeError, (\w+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuPlans(Experiment):
  """Memory by the plan's formula and by the compiler, and exchanges of a round.

  Attributes:
    models: names of ``jaxspec plan --list``.
    devices: topologies of TPUs.
    batches: rows that are decoded together.
    methods: names of methods.
  """

  models: tuple[str, ...] = ("llamagen-xl-t2i", "anole-7b", "lumina-7b-768", "janus-pro-7b")
  devices: tuple[str, ...] = ("v5e:2x2", "v5p:2x2x1")
  batches: tuple[int, ...] = (1, 16)
  methods: tuple[str, ...] = ("ar", "speculative")
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    kept, rows = Cache(lab.runs / "plans"), []
    for model, device, batch, method in itertools.product(self.models, self.devices, self.batches, self.methods):
      arguments = [model, device, str(batch), method]
      name = f"plan-{key_of([], {'plan': arguments})}"
      rows.append({"cells": _cells(method, kept.get(name, lambda arguments=arguments: report(*arguments)))})
    return {
      "head": [
        "model", "device", "data x model", "batch", "method", "arguments, GB", "temporary, GB", "of it caches, GB",
        "code, GB", "together, GB", "planned, GB", "of it caches, GB", "of the plan", "fits", "copies of caches in a round",
        "moved onto the chip or back", "exchanges in loops", "lowered and compiled, s",
      ],
      "intro": "bytes on each device; the plan without tokenizer and text encoder, which the compiled program has not.",
      "below": "Caches are compared as they are laid out: a TPU fills up tiles of 8 times 128 numbers. Of the plan: what "
      "the compiler says over what is planned. Copies, moves and exchanges: as many as stand in the loops; every layer has "
      "a cache of keys and one of values.",
      "rows": rows,
    }  # fmt: skip


def report(*arguments: str) -> dict[str, Any]:
  """The plan of a model, device, batch and method, and its compiled program, or the ``refusal`` of the compiler.

  Raises:
    ValueError: in one line, for any other failure, such as a missing libtpu.
  """
  logging.info("compiling %s", " ".join(arguments))
  model, device, batch, method = arguments
  plan = planned(model, device, int(batch), method).as_json()
  command = [sys.executable, "-m", "experiments.bench.tpu_child", *arguments]
  done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
  if done.returncode:
    last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return plan | {"refusal": refusal(last)}
  return json.loads(done.stdout.splitlines()[-1])


def _cells(method: str, found: dict[str, Any]) -> list[str]:
  (batch,) = found["batches"]
  head = [
    found["model"]["name"],
    found["device"]["name"],
    "{data} x {model}".format(**found["mesh"]),
    str(batch["batch"]),
    method,
  ]
  if "refusal" in found:
    return [*head, *[""] * 8, found["refusal"], "", "", "", ""]
  compiled = found["compiled"]
  counted = lambda counts: ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
  return [
    *head,
    *(f"{compiled[name] / GB:.2f}" for name in ("arguments", "temporary", "caches", "code", "bytes")),
    f"{compiled['planned'] / GB:.2f}",
    f"{sum(batch['parts'].get(name, 0.0) for name in ('caches', 'draft caches')) / GB:.2f}",
    f"{compiled['bytes'] / compiled['planned']:.2f}",
    "yes" if compiled["fits"] else f"no, {(compiled['bytes'] - found['device']['usable']) / GB:.1f} GB over",
    *(f"{sum(compiled[name].values()):,}" for name in ("copies", "moves")),
    counted(compiled["exchanges"]),
    f"{compiled['lower_s'] + compiled['compile_s']:.0f}",
  ]


def refusal(error: str) -> str:
  """The meaning of a compiler error.

  Raises:
    ValueError: with the error, if it is not the compiler's.
  """
  if sizes := _TOO_LARGE.search(error):
    needed, there = (float(size) * 2**30 / GB for size in sizes.groups())
    return f"no, {needed:.1f} GB of temporary buffers alone, {there:.1f} GB are there"
  if own := _OWN_ERROR.search(error):
    return f"the compiler fails: {own[1]}"
  raise ValueError(f"Must have a decode that can be compiled, we instead got: {error}")
