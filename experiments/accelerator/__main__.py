"""Measures and trains on a machine with a GPU or TPU that is available for half an hour.

Commands (from the repository root)::

    python -m experiments.accelerator --out runs/accelerator
    python -m experiments.accelerator --out runs/accelerator --step speed
    python -m experiments.accelerator --out runs/rehearsal --rehearse

The steps run in this order, the most valuable first:

1. ``parity``: agreement with golden outputs of the official code, in float32 with exact products.
2. ``speed``: plain decoding and every method of discrete tokens on random GPT-B, L, XL and 3B in bfloat16 at batch 1, 8, 32,
   with imposed acceptance (`jaxspec.verifiers.imposed`): paired ratios over plain decoding, distance to the memory floor,
   seconds of compilation, and the share of bare rounds in the time of a decode.
3. ``pytorch``: plain decoding of GPT-B in eager PyTorch, if it is installed.
4. ``training``: the target of scenes, config ``gpu``, with its weights exported.

A step consists of cells. Each cell is written as soon as it is measured, so that a killed run loses one cell. A run ends
after ``--minutes``; the same command resumes it. The figures of a step are in ``OUT/STEP.json``, and all together in
``OUT/README.md``. A failed cell is stored and reported with its error, and repeated only with ``--again``. ``--rehearse``
takes tiny networks and a few updates, on any machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from experiments.accelerator import parity, pytorch, speed, training
from experiments.accelerator.ledger import Clock, Ledger, TimeIsUp
from experiments.accelerator.report import render
from experiments.engine.experiment import keep_compiled, provenance
from jaxspec.core.command_line import PATH, script

STEPS = {"parity": parity.run, "speed": speed.run, "pytorch": pytorch.run, "training": training.run}


@script(__doc__)
@click.option("--out", type=PATH, default="runs/accelerator", help="Folder of the figures.")
@click.option("--step", "steps", multiple=True, type=click.Choice(tuple(STEPS)), help="Run only this step; may be repeated.")
@click.option("--minutes", default=9.5, help="Start no new cell after this time.")
@click.option("--again", is_flag=True, help="Repeat failed cells.")
@click.option("--rehearse", is_flag=True, help="Run every step with tiny networks.")
def main(out: Path, steps: tuple[str, ...], minutes: float, again: bool, rehearse: bool) -> int:
  """Runs the steps; returns 0 if all are done, 1 if a cell failed, 3 at the time limit or on Ctrl-C."""
  if out.exists() and not out.is_dir():
    raise ValueError(f"Must have a folder for --out, {out} is a file")
  out.mkdir(parents=True, exist_ok=True)
  keep_compiled()
  clock, is_done, failed = Clock(minutes * 60), True, []
  for name in steps or STEPS:
    about = {"step": name, "rehearsal": rehearse, **provenance()}
    with Ledger(out / f"{name}.json", about, again=again) as ledger:
      try:
        STEPS[name](ledger, clock, rehearse)
      except TimeIsUp as left:
        print(f"{name}: time is up before {left}; the same command goes on there", file=sys.stderr)
        is_done = False
        break
      except KeyboardInterrupt:
        print(f"{name}: interrupted; the same command goes on there", file=sys.stderr)
        is_done = False
        break
      finally:
        failed += [f"{name}: {line}" for line in ledger.failed]
      print(f"{name}: {'done, with failures' if ledger.failed else 'done'}", file=sys.stderr, flush=True)
  (out / "README.md").write_text(render(out), encoding="utf-8")
  for line in failed:
    print(f"Failed, --again measures it again: {line}", file=sys.stderr)
  if not is_done:
    return 3
  return 1 if failed else 0


if __name__ == "__main__":
  main()
