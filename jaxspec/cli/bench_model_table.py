"""What ``jaxspec bench-model`` prints."""

from __future__ import annotations

from typing import Any


def render(report: dict[str, Any]) -> str:
  """The report as Markdown."""
  span = lambda t: f"{t['median']:.2f} ({t['low']:.2f}–{t['high']:.2f})"
  draft = "" if report["draft"] is None else f", draft {report['draft']}"
  lines = [
    f"{report['model']}, {report['parameters'] / 1e6:,.0f} M parameters, random weights, {report['dtype']}; "
    f"{report['num_tokens']:,} tokens, {report['method']['name']}{draft}.",
    f"{report['device']}, {report['cpus']} cores, jax {report['jax']}: reads {report['bytes_per_s'] / 1e9:.1f} GB/s, "
    f"computes {report['operations_per_s'] / 1e9:,.0f} GFLOP/s.",
    "Acceptance is imposed: these are gains at that acceptance, not that it is reached.",
    "",
    "| batch | plain tokens/s | step ms | of the floor | first call s |",
    "|---|---|---|---|---|",
  ]
  for rows, cell in report["plain"].items():
    lines.append(
      f"| {rows} | {cell['tokens_per_s']:.1f} | {cell['step_ms']:.1f} | {cell['share_of_floor']:.0%} "
      f"| {cell['first_call_s']:.1f} |"
    )
  lines += [
    "",
    "| batch | acceptance | over plain | tokens per call | accepted | round ms | of the floor | break-even "
    "| loop efficiency | first call s |",
    "|---|---|---|---|---|---|---|---|---|---|",
  ]
  for cell in report["cells"]:
    accepted = "" if cell["accepted_of_tested"] is None else f"{cell['accepted_of_tested']:.3f}"
    even = "none" if cell["break_even"] is None else f"{cell['break_even']:.2f}"
    lines.append(
      f"| {cell['batch']} | {cell['acceptance']:g} | {span(cell['over_plain'])} | {cell['tokens_per_call']:.2f} "
      f"| {accepted} | {cell['round_ms']:.1f} | {cell['floor_ms'] / cell['round_ms']:.0%} | {even} "
      f"| {span(cell['loop_efficiency'])} | {cell['first_call_s']:.1f} |"
    )
  note = (
    "Medians (lowest–highest) of", f"{report['repeats']} pairwise turns. Of the floor: time at the measured limits over",
    "measured time. Break-even: the acceptance at which a bare round is worth its plain steps.",
  )  # fmt: skip
  return "\n".join([*lines, "", " ".join(note)])
