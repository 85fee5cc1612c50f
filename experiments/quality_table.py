"""The command line of the tables of methods: decodes, times and measures every row of a `QualityRun`.

Every table is a module with ``get_config`` that ends in ``main(get_config)``. On a busy machine ``--untimed`` leaves the
wall clock out; later, without it or with ``--retime``, it is taken and the pictures are kept. ``--set num_train=96`` and the
like change a field of `QualityRun`; ``--decoded`` makes the table of what is there, without decoding.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from experiments import quality_figures
from experiments.method_quality import QualityRun, Workbench
from jaxspec.cli import compilation_cache
from jaxspec.training.overrides import override


def main(get_config: Callable[[str], QualityRun]) -> None:
  """Decodes, times and measures every row of a table; see the module docstring."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--config", default="", help="argument of get_config")
  parser.add_argument("--runs", type=Path, default=Path("runs/method_quality"))
  parser.add_argument("--results", type=Path, default=Path("experiments/results"))
  parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="NAME=VALUE")
  parser.add_argument("--decoded", action="store_true", help="only rows that are decoded")
  clock = parser.add_mutually_exclusive_group()
  clock.add_argument("--retime", action="store_true", help="take the wall clock again")
  clock.add_argument("--untimed", action="store_true", help="leave the wall clock out")
  args = parser.parse_args()
  logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
  compilation_cache.enable()
  run = override(get_config(args.config), args.overrides)
  bench = Workbench(run, args.runs)
  judge = quality_figures.Judge(run, bench)
  rows = []
  for setting in run.rows:
    if args.decoded and not bench.is_decoded(setting):
      logging.warning("not decoded: %s", setting.label)
      continue
    decoded = bench.decode(setting)
    timed = setting.method != "ar" and not args.untimed
    wall = bench.time(setting, again=args.retime) if timed else None
    rows.append(judge.row(setting, decoded, wall))
  command = f"python -m {sys.modules['__main__'].__spec__.name} {shlex.join(sys.argv[1:])}".strip()
  quality_figures.write(run, rows, judge.about(), command, args.results)
