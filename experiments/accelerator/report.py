"""The figures of all steps as one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.accelerator.ledger import is_failed


def render(folder: Path) -> str:
  """Markdown of the files ``parity.json``, ``speed.json``, ``pytorch.json`` and ``training.json`` that are there."""
  steps = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
  lines = ["# On an accelerator", ""]
  for name, make in (("parity", _parity), ("speed", _speed), ("pytorch", _plain_cells), ("training", _plain_cells)):
    if name not in steps:
      continue
    step = steps[name]
    versions = ", ".join(f"{key} {value}" for key, value in step["versions"].items())
    where = f"{step['machine']['kind']}; {versions}" + ("; a rehearsal with tiny networks" if step["rehearsal"] else "")
    lines += [f"## {name.capitalize()}", "", where, "", *make(step["cells"]), ""]
  return "\n".join(lines)


def _parity(cells: dict[str, Any]) -> list[str]:
  rows = [
    [name, cell["arrays"], ", ".join(cell["differ"]) or "none", f"{cell['worst_share_of_tolerance']:.2f} ({cell['worst']})"]
    for name, cell in cells.items()
    if not is_failed(cell)
  ]
  return _table(["golden file", "arrays", "beyond tolerance", "nearest to it"], rows) + _errors(cells)


def _speed(cells: dict[str, Any]) -> list[str]:
  good = {name: cell for name, cell in cells.items() if not is_failed(cell)}
  read, computed = (good.get("limits", {}).get(name, 0.0) for name in ("bytes_per_s", "operations_per_s"))
  lines = [f"Memory is read at {read / 1e9:.0f} GB/s, {computed / 1e12:.3g} x 10^12 operations a second are computed.", ""]
  plain = [
    [
      name.removesuffix(" plain"), f"{cell['tokens_per_s']:.0f}", f"{cell['step_ms']:.2f}",
      f"{100 * cell['share_of_floor']:.0f} %", f"{cell['first_call_s']:.0f}",
    ]
    for name, cell in good.items()
    if name.endswith(" plain")
  ]  # fmt: skip
  lines += _table(["plain decoding", "tokens/s", "ms a token", "share of the floor", "first call, s"], plain)
  methods = [
    [
      name, _range(cell["over_plain"]), f"{cell['tokens_per_call']:.2f}", f"{cell['round_ms']:.2f}",
      f"{100 * cell['floor_ms'] / cell['round_ms']:.0f} %",
      "none" if cell["break_even"] is None else f"{cell['break_even']:.2f}",
      f"{cell['loop_efficiency']['median']:.2f}", f"{cell['first_call_s']:.0f}",
    ]
    for name, cell in good.items()
    if "over_plain" in cell
  ]  # fmt: skip
  head = [
    "method",
    "over plain decoding",
    "tokens per call",
    "ms a round",
    "share of the floor",
    "break-even",
    "loop efficiency",
    "first call, s",
  ]
  return [*lines, "", *_table(head, methods), *_errors(cells)]


def _plain_cells(cells: dict[str, Any]) -> list[str]:
  return [f"- {name}: {json.dumps(cell)}" for name, cell in cells.items()]


def _errors(cells: dict[str, Any]) -> list[str]:
  failed = [f"- {name}: {cell['error']}" for name, cell in cells.items() if is_failed(cell)]
  return ["", "Failed:", "", *failed] if failed else []


def _range(timing: dict[str, float]) -> str:
  return f"{timing['median']:.2f}x ({timing['low']:.2f} to {timing['high']:.2f})"


def _table(head: list[str], rows: list[list[Any]]) -> list[str]:
  lines = [head, ["---"] * len(head), *rows]
  return ["| " + " | ".join(str(entry) for entry in line) + " |" for line in lines]
