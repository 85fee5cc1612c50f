"""The table of ``jaxspec bench``."""

from __future__ import annotations


def render(report: dict) -> str:
  """The report as Markdown."""
  number = lambda x: "–" if x is None else f"{x:.2f}"
  span = lambda t: "–" if t is None else f"{t['median']:.2f} ({t['low']:.2f}–{t['high']:.2f})"
  settings = ", ".join(f"{k} {v}" for k, v in report["settings"].items())
  lines = [
    f"jax {report['versions']['jax']}, {report['device']}, {report['machine']['cpus']} cores, {report['dtype']} "
    f"with {report['matmul_precision']} products, "
    f"{report['method']} with draft {report['draft']}, {settings}; "
    f"median (lowest–highest) of {report['repeats']} pairwise repeats.",
    "",
    "| batch | gamma | plain tok/s | speculative tok/s | speed-up | predicted | accepted | per tested "
    "| tokens per target call | plain step ms | round ms | loop efficiency |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
  ]
  for d in report["decoding"]:
    lines.append(
      f"| {d['batch']} | {d['gamma']} | {d['plain_tokens_per_s']:.0f} | {d['speculative_tokens_per_s']:.0f} "
      f"| {span(d['speedup'])} | {number(d['predicted_speedup'])} | {d['acceptance']:.2f} "
      f"| {d['acceptance_per_tested_position']:.2f} | {d['tokens_per_target_call']:.2f} | {d['plain_step_ms']:.2f} "
      f"| {number(d['round_ms'])} | {span(d['loop_efficiency'])} |"
    )
  scoring = report["scoring"]
  lines += ["", "Predicted: tokens per round, times the cost of a plain step over that of a bare round (all rows busy)."]
  lines += ["", "| tokens scored in one target pass | ms | ratio to one |", "|---|---|---|"]
  for k, ms in scoring["target_ms"].items():
    lines.append(f"| {k} | {ms:.2f} | {span(scoring['target_ratio'][k])} |")
  if scoring["draft_ratio"]:
    lines += ["", "| draft | cost of one step, as a share of a target step |", "|---|---|"]
    lines += [f"| {name} | {span(ratio)} |" for name, ratio in scoring["draft_ratio"].items()]
  return "\n".join(lines)
