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

import argparse
import sys
from pathlib import Path

from experiments.accelerator import parity, pytorch, speed, training
from experiments.accelerator.ledger import Clock, Ledger, TimeIsUp
from experiments.accelerator.report import render
from experiments.engine.experiment import keep_compiled, provenance
from experiments.train.command import one_line_errors

STEPS = {"parity": parity.run, "speed": speed.run, "pytorch": pytorch.run, "training": training.run}


def main(arguments: list[str] | None = None) -> int:
  """Runs the steps; returns 0 if all are done, 1 if a cell failed, 3 at the time limit or on Ctrl-C."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--out", type=Path, default=Path("runs/accelerator"), help="folder of the figures [%(default)s]")
  parser.add_argument("--step", action="append", choices=STEPS, help="run only this step; may be repeated")
  parser.add_argument("--minutes", type=float, default=9.5, help="start no new cell after this time [%(default)s]")
  parser.add_argument("--again", action="store_true", help="repeat failed cells")
  parser.add_argument("--rehearse", action="store_true", help="tiny networks, every step")
  args = parser.parse_args(arguments)
  with one_line_errors():
    return run(args)


def run(args: argparse.Namespace) -> int:
  """The exit status of `main`."""
  if args.out.exists() and not args.out.is_dir():
    raise ValueError(f"Must have a folder for --out, {args.out} is a file")
  args.out.mkdir(parents=True, exist_ok=True)
  keep_compiled()
  clock, is_done, failed = Clock(args.minutes * 60), True, []
  for name in args.step or STEPS:
    about = {"step": name, "rehearsal": args.rehearse, **provenance()}
    with Ledger(args.out / f"{name}.json", about, again=args.again) as ledger:
      try:
        STEPS[name](ledger, clock, args.rehearse)
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
  (args.out / "README.md").write_text(render(args.out), encoding="utf-8")
  for line in failed:
    print(f"Failed, --again measures it again: {line}", file=sys.stderr)
  if not is_done:
    return 3
  return 1 if failed else 0


if __name__ == "__main__":
  sys.exit(main())
