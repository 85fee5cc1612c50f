"""Wall clock of CIAR over plain decoding, by device and window, at one rate of cloud calls (arXiv 2603.25463, Table 2).

Command (a quiet machine; minutes)::

    python -m experiments.ciar_speed

Every decode draws the same pictures, one at a time, in turns with plain decoding and with the device alone; a controller
holds the rate of cloud calls in every picture (`jaxspec.conformal_gate`): one threshold would give each its own.
"Floor" is the ratio that the same calls would give if a call cost one plain step, however many tokens it reads, and a device
pass what it costs alone. Ratios are of the two runs of one turn.

Published: 2.2 to 2.6 times plain decoding at 25 to 32 % cloud calls, on a GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.ciar_rows import OPEN
from experiments.method_speeds import find_contenders, race, race_parser
from experiments.tables import provenance, table, timing_cell, typed_command, write
from jaxspec.cli import compilation_cache

DEVICES, WINDOWS = ("inter-1", "inter-2"), (1, 3)


def rows_of(rate: float) -> dict[str, dict[str, Any]]:
  """Settings by name; "DEVICE alone" never asks."""
  found = {f"{device} alone": {"method": "ciar", "draft": device, "tau": OPEN} for device in DEVICES}
  for device in DEVICES:
    for window in WINDOWS:
      chosen = {"method": "ciar", "draft": device, "gamma": window, "cloud_rate": rate}
      found[f"{device}, window {window}"] = chosen
  return found


def with_floors(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
  """The rows with their ``floor``, by medians; the first row is plain decoding."""
  named = {row["method"]: row for row in rows}
  seconds = lambda name: float(np.median(named[name]["seconds"]))
  count = lambda row, what: float(np.mean(row[what]))
  found = [rows[0]]
  for row in rows[1:]:
    alone = f"{row['method'].split(',')[0].removesuffix(' alone')} alone"
    device = count(row, "draft_calls") * seconds(alone) / count(named[alone], "draft_calls")
    cloud = count(row, "target_calls") * seconds("ar") / count(rows[0], "target_calls")
    found.append(row | {"floor": seconds("ar") / (device + cloud)})
  return found


def render(document: dict[str, Any]) -> str:
  """The table in Markdown."""
  machine, num_tokens = document["machine"], document["rows"][0]["target_calls"][0]
  lines = []
  for row in document["rows"]:
    calls = 100 * np.asarray(row["target_calls"]) / num_tokens
    lines.append([
      "plain decoding" if row["method"] == "ar" else row["method"],
      f"{calls.mean():.0f} ({calls.min():.0f} to {calls.max():.0f})",
      "" if row["method"] == "ar" else f"{np.mean(row['draft_calls']):.0f}",
      f"{1000 * np.median(row['seconds']):.0f}",
      timing_cell(row["wall_ratio"]),
      f"{row['floor']:.2f}" if "alone" not in row["method"] and "floor" in row else "",
    ])  # fmt: skip
  head = ["decode", "cloud calls, %", "device passes", "ms per picture", "over plain decoding", "floor"]
  intro = (
    f"`{document['command']}`: jax {document['versions']['jax']}, {machine['kind']}, {machine['cpus']} cores; "
    f"{document['source']}, one picture at a time, median [lowest, highest] of {document['repeats']} turns, each another "
    "picture. Cloud calls: mean (lowest to highest of the pictures)."
  )
  skipped = [f"\n{line}" for line in document["skipped"]]
  return "\n".join(["# Speed of CIAR over plain decoding", "", intro, "", table(head, lines), *skipped])


def main() -> None:
  parser = race_parser(__doc__, repeats=16)
  parser.add_argument("--rate", type=float, default=0.3, help="cloud calls per token that the controller holds")
  args = parser.parse_args()
  compilation_cache.enable()
  skipped: list[str] = []
  say = lambda line: print(line, flush=True)
  contenders = find_contenders(rows_of(args.rate), args.checkpoint, skipped.append)
  rows = with_floors(race(contenders, 1, repeats=args.repeats, seed=args.seed, say=say))
  about = {"command": typed_command(), "source": args.checkpoint.name, "rate": args.rate, "repeats": args.repeats}
  document = about | provenance() | {"skipped": skipped, "rows": rows}
  write("ciar_speed", document, render(document), args.out)


if __name__ == "__main__":
  main()
