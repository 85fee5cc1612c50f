"""What moves the acceptance of continuous speculative decoding (arXiv 2411.11925, Tables 3 and 4, Figures 8, 11, 13 to 15).

Commands (minutes each; the MAR pair takes most of it)::

    for c in gamma alignment prefill guidance temperature ends; do
      python -m experiments.cspd_acceptance --config $c
    done

One file per pair. ``gamma`` walks the draft length, ``alignment`` switches the shared noise off, ``prefill`` lets the
target draw 0, 5 and 15 % of the tokens, ``guidance`` and ``temperature`` walk the sampler's settings, and ``ends`` the step
at which chains stop: the narrower the last Gaussian, the less any density test can keep. Alpha is the share of tested drafts
that were kept, with a 95 % bootstrap interval over pictures; "kept" also counts drafts behind a refusal, which are
discarded unseen.

Published (MAR-H with MAR-B, gamma 8): alpha 0.13 without and 0.31 with alignment; 0.33, 0.31, 0.34 at 0, 5, 15 % prefill.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from typing import Any

import numpy as np

from experiments import cspd_bench
from experiments.cspd_bench import Bench, Row
from experiments.tables import interval_cell, table, write
from jaxspec.decode.state import Origin

GAMMAS = (4, 8, 16, 32)
TITLES = {
  "gamma": "Acceptance over the draft length",
  "alignment": "Acceptance with and without trajectory alignment",
  "prefill": "Acceptance over the share that the target draws first",
  "guidance": "Acceptance over the guidance scale",
  "temperature": "Acceptance over the temperature",
  "ends": "Acceptance over the step at which chains stop",
}


@dataclasses.dataclass(frozen=True)
class Walk:
  """Rows of one table: names of `experiments.cspd_bench.RULES`, and settings of `experiments.cspd_bench.Bench.method`."""

  rules: tuple[str, ...]
  settings: tuple[dict[str, Any], ...]


def get_config(arg: str, family: str) -> Walk:
  """The table of that name for one family."""
  over = lambda **values: tuple(dict(zip(values, chosen)) for chosen in itertools.product(*values.values()))
  mar = family == "mar"
  # MAR's last Gaussian is so narrow that only the released test keeps drafts; a pass over a wide window is dear.
  both, ends = ("released",) if mar else ("published", "exact"), (None, 5)
  unaligned = ("released, not aligned", "released")
  if not mar:
    unaligned = ("published, not aligned", "published", "without S, not aligned", "without S")
    ends = (2, 3, 4)
  walks = {
    "gamma": Walk(both if mar else ("published", "without S", "exact"), over(gamma=GAMMAS)),
    "alignment": Walk(unaligned, over(gamma=(4, 8))),
    "prefill": Walk(both, over(gamma=(8,), prefill=(0.0, 0.05, 0.15))),
    "guidance": Walk(both, over(gamma=(4,), scale=(1.0, 2.0, 3.0))),
    "temperature": Walk(both, over(gamma=(4,), scale=(1.0, 2.0), temperature=(0.9, 1.0))),
    "ends": Walk(("published", "released", "exact"), over(gamma=(4,), stop=ends)),
  }
  if arg not in walks:
    raise ValueError(f"Must have a config in {', '.join(walks)}, we instead got {arg!r}")
  return walks[arg]


def rows_of(bench: Bench, family: str, walk: Walk) -> list[tuple[str, dict[str, Any], Row]]:
  """(rule, setting, row) of a family."""
  found = []
  for setting in walk.settings:
    for rule in walk.rules:
      if rule == "exact" and setting.get("stop", 0) is None:
        continue  # chains that end in a mean have no exact rule
      found.append((rule, setting, Row(family, rule, bench.method(family, rule=rule, **setting))))
  return found


def along_the_row(in_order: np.ndarray) -> dict[str, list[float]]:
  """Tested and kept drafts at every place of the generation order."""
  kept = (in_order == Origin.DRAFT).sum(axis=0)
  return {"kept": kept.tolist(), "tested": (kept + (in_order == Origin.REPLACED).sum(axis=0)).tolist()}


def render(document: dict[str, Any]) -> str:
  """The table in Markdown."""
  walked = list(document["rows"][0]["setting"])
  lines = []
  for row in document["rows"]:
    counted = row["figures"]
    setting = ["a mean" if row["setting"][name] is None else f"{row['setting'][name]:g}" for name in walked]
    mean = counted["mean_tries"]
    lines.append(
      [*setting, row["rule"], interval_cell(counted["alpha"], digits=3), f"{counted['kept']:.3f}",
       f"{counted['calls_per_picture']:.1f}", f"{mean:.1f}" if mean is not None else "", str(counted["fallbacks"])]
    )  # fmt: skip
  head = [*walked, "rule", "alpha", "kept", "target calls", "proposals per refusal", "none passed"]
  intro = f"`{document['command']}`: {document['rows'][0]['figures']['pictures']} pictures, each of another class."
  title = f"# {document['title']}, {cspd_bench.TITLES[document['family']]}"
  return "\n".join([title, "", intro, "", table(head, lines)])


def main() -> None:
  parser = cspd_bench.parser(__doc__)
  parser.add_argument("--config", required=True, choices=list(TITLES))
  parser.add_argument("--pictures", type=int, default=32)
  parser.add_argument("--batch", type=int, default=16)
  args = parser.parse_args()
  bench, families, command = cspd_bench.start(args)
  for family in families:
    labels, rows = cspd_bench.every_class(bench.bundle(family), args.pictures), []
    for rule, setting, row in rows_of(bench, family, get_config(args.config, family)):
      logging.info("%s, %s, %s", family, rule, setting)
      drawn = bench.draw(row, labels, args.batch)
      counted = cspd_bench.figures(drawn)
      about = {"rule": rule, "setting": setting, "method": cspd_bench.describe(row.method)}
      rows.append(about | {"figures": counted, "along": along_the_row(drawn.in_order)})
    document = {"title": TITLES[args.config], "command": command, **cspd_bench.origin_of(bench, family), "rows": rows}
    write(f"cspd_{args.config}_{family}", document, render(document), args.results)


if __name__ == "__main__":
  main()
