"""The command line of the ``ciar_*`` tables: finds thresholds, decodes, times and measures every row of a `GatedRun`.

Every table is a module with ``get_config`` that ends in ``main(get_config)``; options are those of
`experiments.quality_table`, and ``--device`` names the device of rows that leave it open. Decodes and trials are kept under
``runs/method_quality``, tables in ``experiments/results``.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.ciar_rows import GatedBench, GatedRun, Row, outcome_of, placed
from experiments.method_quality import PLAIN, PLAIN_AGAIN
from experiments.quality_figures import ENCODER, Judge, wall_cell
from experiments.tables import interval_cell, typed_command, write
from jaxspec.cli import compilation_cache
from jaxspec.metrics.cloud_calls import cloud_calls
from jaxspec.training.overrides import override

BASE, BASE_AGAIN = "Base", "Base, another seed"


def make_document(run: GatedRun, bench: GatedBench, *, timed: bool, retime: bool) -> dict[str, Any]:
  """The document of a table: figures of every row that the bundle allows, and lines about the others."""
  judge, rows, left_out = Judge(run, bench), [], []
  for row in (Row(BASE, PLAIN), Row(BASE_AGAIN, PLAIN_AGAIN), *run.entries):
    setting, line = placed(run, row)
    if setting is None:
      logging.warning(line)
      left_out.append(line)
      continue
    if row.rate is not None:
      try:
        setting = bench.matched(setting, row.rate)
      except ValueError as error:
        left_out.append(f"left out {row.name}: {error}")
        logging.warning(left_out[-1])
        continue
    decoded = bench.decode(setting)
    wall = bench.time(setting, again=retime) if timed and setting.method != "ar" else None
    figures = judge.row(setting, decoded, wall)
    calls = cloud_calls(outcome_of(decoded))._asdict()
    if row.rate is not None and abs(calls["call_rate"] - row.rate) > 0.005:
      left_out.append(f"not matched {row.name}: {calls['call_rate']:.4f} is the nearest rate that a threshold was found for")
    calls["steps_cloud"] = calls["steps_cloud"] if np.isfinite(calls["steps_cloud"]) else None  # JSON has no infinity
    rows.append(figures | {"name": row.name, "wanted_rate": row.rate, "cloud": calls, "options": dict(setting.options)})
  return judge.about() | {"rows": rows, "left_out": left_out, "notes": list(run.notes)}


def render(document: dict[str, Any]) -> str:
  """The table in Markdown."""
  rows, prompts = document["rows"], document["prompts"]
  lines = [
    f"# {document['title']}",
    "",
    f"`{document['command']}`: {rows[0]['pictures']} pictures of {document['group']}, one seed ({prompts['train']} prompts "
    f"of training pictures, {sum(prompts.values()) - prompts['train']} held out), {document['reference_pictures']} other "
    "real pictures to compare with. Brackets: 95 % bootstrap intervals over pictures; of the wall clock (one picture at a "
    f"time, {document['device']['platform']}) the lowest and highest of the pairs. Distances times 100, shares in percent.",
    "",
    "| method | tau | cloud calls, % | by the device, % | verified, % | speed | KID to real | KID to Base | Frechet | F1 "
    "| prompt retrieval | its change | attributes |",
    "|" + "---|" * 13,
  ]
  for row in rows:
    m, cloud, tau = row["metrics"], row["cloud"], row["options"].get("tau")
    low, high = cloud["interval"]
    cells = [
      row["name"],
      "" if tau is None or not 0 < tau < 1e29 else f"{tau:.4g}",
      f"{100 * cloud['call_rate']:.1f} [{100 * low:.1f}, {100 * high:.1f}]",
      f"{100 * cloud['settled']:.0f}",
      f"{100 * cloud['accepted']:.0f}",
      wall_cell(row),
      interval_cell(m[f"kid_{ENCODER}"], 100, 2),
      interval_cell(m["kid_plain"], 100, 2),
      interval_cell(m[f"frechet_{ENCODER}"], 100, 1),
      interval_cell(m[f"f1_{ENCODER}"], 100, 0),
      interval_cell(m["prompt_retrieval"], 100, 1),
      interval_cell(m["prompt_retrieval_change"], 100, 1, sign="+"),
      interval_cell(m["attribute_accuracy"], 100, 1),
    ]
    lines.append("| " + " | ".join(cells) + " |")
  lines += [f"\n{line}" for line in (*document["notes"], *document["findings"], *document["left_out"])]
  return "\n".join(lines)


def main(
  get_config: Callable[[str], GatedRun], *, findings: Callable[[list[dict[str, Any]]], list[str]] = lambda rows: []
) -> None:
  """Makes a table; see the module docstring.

  Args:
    findings: sentences about the rows, for below the table.
  """
  doc = sys.modules["__main__"].__doc__
  parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--config", default="", help="argument of get_config")
  parser.add_argument("--device", default="", help="device of the bundle; its first by default")
  parser.add_argument("--runs", type=Path, default=Path("runs/method_quality"))
  parser.add_argument("--results", type=Path, default=Path("experiments/results"))
  parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="NAME=VALUE")
  clock = parser.add_mutually_exclusive_group()
  clock.add_argument("--retime", action="store_true", help="take the wall clock again")
  clock.add_argument("--untimed", action="store_true", help="leave the wall clock out")
  args = parser.parse_args()
  logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
  compilation_cache.enable()
  run = override(get_config(args.config), args.overrides)
  run = dataclasses.replace(run, device=args.device or run.device)
  bench = GatedBench(run, args.runs)
  document = make_document(run, bench, timed=not args.untimed, retime=args.retime)
  document |= {"command": typed_command(), "findings": findings(document["rows"])}
  write(run.name, document, render(document), args.results)
