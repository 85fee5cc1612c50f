"""Speed of continuous speculative decoding over gamma and batch (arXiv 2411.11925, Table 1), against every fair rival.

Commands (a quiet machine; minutes for the causal pair, some hours for all of MAR's rows)::

    python -m experiments.cspd_speed --family causal --gamma 3 --gamma 7 --gamma 15 --gamma 31
    python -m experiments.cspd_speed --family mar --gamma 4 --gamma 32 --batch 1 --repeats 3

The table of a family gathers the batch sizes that were measured for its weights; a size that is measured anew replaces the
old rows.

Every speculative row takes turns, in one process, with the target alone token by token; MAR also with its own parallel
decoding (a quarter as many iterations as tokens) and with the target alone at as many iterations as the row made target
calls in the first turn. Ratios are of the two runs of one turn. "Formula" is ``(1 - a^(g+1)) / ((1 - a)(g c + 1))`` with the
measured acceptance a and the cost c of a draft over that of a target token, both alone; it takes a wide pass for free, which
a CPU does not, and which for MAR is gamma + 1 passes.

Published, for MAR-H with a MAR-B draft on an A100: 1.11 to 1.44 at batch 1, 1.56 to 2.17 at batch 128.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments import cspd_bench
from experiments.cspd_bench import RULES, Bench, Row
from experiments.tables import interval_cell, table, timing_cell, write
from jaxspec.decode import measure

GAMMAS = (4, 8, 16, 32)
RACED = {"mar": ("released", "exact"), "causal": ("published", "exact")}


class Race:
  """Contenders of one family at one batch size."""

  def __init__(self, bench: Bench, family: str, rows: int, repeats: int, seed: int):
    self.bench, self.family, self.rows = bench, family, rows
    self.length = bench.bundle(family).target.config.num_tokens
    labels = cspd_bench.every_class(bench.bundle(family), rows * repeats, seed)
    self.batches = bench.batches(labels, rows, seed)
    self.programs: dict[str, tuple[Any, Any]] = {}
    self.methods: dict[str, Row] = {}
    self.calls: dict[str, float] = {}

  def add(self, name: str, method: str, **options: Any) -> None:
    """Compiles a contender and runs it once, which is not counted."""
    row = Row(self.family, name, self.bench.method(self.family, method, **options))
    logging.info("%s, batch %d: compiling %s", self.family, self.rows, name)
    self.programs[name], self.methods[name] = self.bench.program(row, self.rows), row
    out = jax.block_until_ready(self.run(name, 0))
    self.calls[name] = batch_calls(out)

  def run(self, name: str, turn: int):
    params, decode = self.programs[name]
    return decode(params, self.batches.key_data[turn], self.batches.condition[turn])

  def seconds(self) -> tuple[dict[str, list[float]], dict[str, list]]:
    """Wall times and what was drawn, turn by turn."""
    times, drawn = {name: [] for name in self.programs}, {name: [] for name in self.programs}
    for turn in range(len(self.batches.key_data)):
      logging.info("%s, batch %d: turn %d", self.family, self.rows, turn + 1)
      for name in self.programs:
        out, taken = measure.timed(functools.partial(self.run, name, turn))
        times[name].append(taken)
        drawn[name].append(jax.device_get(out))
    return times, drawn


def batch_calls(out) -> float:
  """Rows of a batch wait for the slowest: its calls are what the batch costs."""
  return float(np.max(out.counters.target_calls))


def race(
  bench: Bench, family: str, rows: int, gammas: list[int], rules: Sequence[str], *, repeats: int, seed: int
) -> list[dict[str, Any]]:
  """The rows of one family at one batch size; JSON."""
  contest = Race(bench, family, rows, repeats, seed)
  contest.add("target", "ar")
  contest.add("draft", "ar", alone=True)
  quarter = contest.length // 4
  masked = bench.bundle(family).is_masked
  if masked:
    contest.add(f"parallel {quarter}", "parallel", num_iter=quarter)
  pairs: dict[str, tuple[str, int, str | None]] = {}
  for gamma in gammas:
    for rule in rules:
      name = f"{rule} {gamma}"
      contest.add(name, "cspd", gamma=gamma, rule=rule)
      rival = None
      if masked:
        num_iter = min(round(contest.calls[name]), contest.length)
        rival = f"parallel {num_iter}"
        if rival not in contest.programs:
          contest.add(rival, "parallel", num_iter=num_iter)
      pairs[name] = rule, gamma, rival
  times, drawn = contest.seconds()
  cost = measure.pairwise_ratio(times["draft"], times["target"]).median
  found = []
  for name in contest.programs:
    row = {
      "batch": rows, "name": name, "seconds": times[name],
      "method": cspd_bench.describe(contest.methods[name].method),
      "ms_per_picture": 1000 * measure.Timing.of(times[name]).median / rows,
      "over_target": measure.pairwise_ratio(times["target"], times[name])._asdict(),
      "calls": float(np.mean([batch_calls(out) for out in drawn[name]])),
    }  # fmt: skip
    if masked:
      row["over_parallel"] = measure.pairwise_ratio(times[f"parallel {quarter}"], times[name])._asdict()
    if name in pairs:
      rule, gamma, rival = pairs[name]  # the rival's iterations are the calls of the first turn
      out = jax.tree.map(lambda *leaves: np.concatenate(leaves), *drawn[name])
      counted = cspd_bench.figures(cspd_bench.Drawn(out, out.origin))
      predicted = measure.expected_tokens(counted["alpha"]["value"], gamma) / (gamma * cost + 1)
      row |= {"rule": rule, "gamma": gamma, "figures": counted, "draft_cost": cost, "predicted": predicted}
      if rival is not None:
        row |= {"rival": rival, "over_rival": measure.pairwise_ratio(times[rival], times[name])._asdict()}
    found.append(row)
  return found


def gather(file: Path, about: dict[str, Any], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
  """``rows`` and those of other batch sizes that the table has of the same weights and machine, by batch size."""
  known = json.loads(file.read_text()) if file.is_file() else {}
  kept = known["rows"] if all(known.get(name) == value for name, value in about.items()) else []
  measured = {row["batch"] for row in rows}
  return sorted([row for row in kept if row["batch"] not in measured] + rows, key=lambda row: row["batch"])


def render(document: dict[str, Any]) -> str:
  """The table in Markdown."""
  rows, masked = document["rows"], "over_parallel" in document["rows"][0]
  costs = {row["batch"]: row["draft_cost"] for row in rows if "draft_cost" in row}
  commands = ", ".join(f"`{command}`" for command in dict.fromkeys(row["command"] for row in rows))
  repeats = {row["batch"]: len(row["seconds"]) for row in rows}
  turns = ", ".join(f"{turns} turns at batch {batch}" for batch, turns in repeats.items())
  intro = (
    f"{commands}: jax {document['versions']['jax']}, {document['machine']['kind']}, "
    f"{document['machine']['cpus']} cores; median [lowest, highest] of "
    f"{turns}, all rows of a batch size in one process. A ratio above 1 says that the row is faster. Alpha: tested drafts "
    "that were kept. A draft token costs "
    + ", ".join(f"{cost:.2f} of a target token at batch {batch}" for batch, cost in costs.items())
    + "."
  )
  head = ["batch", "decode", "alpha", "target calls", "ms per picture", "over the target", "formula"]
  head += ["over its parallel decoding", "over the target at equal calls", "its iterations"] if masked else []
  lines = []
  for row in rows:
    alpha = interval_cell(row["figures"]["alpha"]) if "figures" in row else ""
    calls = "" if row["name"] == "draft" else f"{row['calls']:.1f}"
    cells = [str(row["batch"]), row["name"], alpha, calls, f"{row['ms_per_picture']:.0f}", timing_cell(row["over_target"])]
    cells.append(f"{row['predicted']:.2f}" if "predicted" in row else "")
    if masked:
      has_rival = "over_rival" in row
      cells += [timing_cell(row["over_parallel"]), timing_cell(row["over_rival"]) if has_rival else ""]
      cells.append(row["rival"].split()[-1] if has_rival else "")
    lines.append(cells)
  title = f"# Speed of continuous speculative decoding, {cspd_bench.TITLES[document['family']]}"
  return "\n".join([title, "", intro, "", table(head, lines)])


def main() -> None:
  parser = cspd_bench.parser(__doc__)
  parser.add_argument("--gamma", action="append", type=int, help="repeat for several; 4, 8, 16 and 32 by default")
  parser.add_argument("--batch", action="append", type=int, help="repeat for several; 1 and 8 by default")
  parser.add_argument("--rule", action="append", choices=list(RULES), help="repeat for several; two by default")
  parser.add_argument("--repeats", type=int, default=5)
  parser.add_argument("--seed", type=int, default=0)
  args = parser.parse_args()
  bench, families, command = cspd_bench.start(args)
  gammas = args.gamma or list(GAMMAS)
  for family in families:
    name, about = f"cspd_speed_{family}", cspd_bench.origin_of(bench, family)
    for batch in args.batch or [1, 8]:
      rows = race(bench, family, batch, gammas, args.rule or RACED[family], repeats=args.repeats, seed=args.seed)
      rows = [{"command": command, "seed": args.seed, **row} for row in rows]
      document = about | {"rows": gather(args.results / f"{name}.json", about, rows)}
      write(name, document, render(document), args.results)


if __name__ == "__main__":
  main()
