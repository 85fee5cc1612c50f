"""The report of ``jaxspec bench-model``."""

from __future__ import annotations

from typing import Any


def render(report: dict[str, Any]) -> str:
  """The report as Markdown."""
  span = lambda t: f"{t['median']:.2f} ({t['low']:.2f}–{t['high']:.2f})"
  draft = "" if report["draft"] is None else f", draft {report['draft']}"
  imposed = "Acceptance is" if report["cells"][0]["calls"] is None else "Acceptance and calls are"
  gains = f"{imposed} imposed: these are gains at that acceptance, not that it is reached."
  if report["cells"][0]["acceptance"] is None:
    gains = "The method drafts nothing, so no acceptance is imposed: its schedule decides the passes."
  lines = [
    f"{report['model']}, {report['parameters'] / 1e6:,.0f} M parameters, random weights, {report['dtype']}; "
    f"{report['num_tokens']:,} tokens, {report['method']['name']}{draft}.",
    f"{report['device']}, {report['cpus']} cores, jax {report['jax']}: reads {report['bytes_per_s'] / 1e9:.1f} GB/s, "
    f"computes {report['operations_per_s'] / 1e9:,.0f} GFLOP/s.",
    gains,
    "",
    "| batch | plain tokens/s | step ms | reads MB | of the memory floor | of the arithmetic floor | first call s |",
    "|---|---|---|---|---|---|---|",
  ]
  for rows, cell in report["plain"].items():
    lines.append(
      f"| {rows} | {cell['tokens_per_s']:.1f} | {cell['step_ms']:.1f} | {_floors(cell, cell['step_ms'])} "
      f"| {cell['first_call_s']:.1f} |"
    )
  lines += [
    "",
    "| batch | acceptance | calls | over plain | over lock-step | tokens per call | accepted | round ms | reads MB "
    "| of the memory floor | of the arithmetic floor | break-even | loop efficiency | first call s |",
    "|" + 14 * "---|",
  ]
  for cell in report["cells"]:
    accepted = "" if cell["accepted_of_tested"] is None else f"{cell['accepted_of_tested']:.3f}"
    even = "none" if cell["break_even"] is None else f"{cell['break_even']:.2f}"
    even = even if None not in (cell["acceptance"], cell["round_ms"]) and cell["calls"] is None else ""
    round_ms = "" if cell["round_ms"] is None else f"{cell['round_ms']:.1f}"
    efficiency = "" if cell["loop_efficiency"] is None else span(cell["loop_efficiency"])
    waiting = "" if cell["over_lock_step"] is None else span(cell["over_lock_step"])
    lines.append(
      f"| {cell['batch']} | {_given(cell['acceptance'])} | {_given(cell['calls'])} | {span(cell['over_plain'])} | {waiting} "
      f"| {cell['tokens_per_call']:.2f} | {accepted} | {round_ms} | {_floors(cell, cell['round_ms'])} | {even} "
      f"| {efficiency} | {cell['first_call_s']:.1f} |"
    )
  note = (
    f"Medians (lowest–highest) of {report['repeats']} pairwise turns. Reads: weights and caches of a step or of a round,",
    "read once. Of a floor: time at the measured limit over measured time. Over lock-step: rows that advance by themselves",
    "over rows that wait for the one that accepts fewest. Break-even: the acceptance at which a bare round is worth its",
    "plain steps.",
  )  # fmt: skip
  return "\n".join([*lines, "", " ".join(note)])


def _given(given: float | dict[str, Any] | None) -> str:
  """A number, or the file and its mean; empty for None."""
  if isinstance(given, dict):
    return f"{given['file']} ({given['mean']:.3f})"
  return "" if given is None else f"{given:g}"


def _floors(cell: dict[str, Any], measured_ms: float | None) -> str:
  """Three columns; empty without a time."""
  if measured_ms is None:
    return " |  | "
  shares = (f"{cell[f'{name}_floor_ms'] / measured_ms:.0%}" for name in ("memory", "arithmetic"))
  return " | ".join([f"{cell['read_bytes'] / 1e6:,.1f}", *shares])
