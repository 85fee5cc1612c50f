"""What ``jaxspec generate --text`` prints and writes as JSON: the texts, and the figures of their decoding."""

from __future__ import annotations

import dataclasses
import unicodedata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.text import Text

from jaxspec.cli import report
from jaxspec.cli.decoding import Batches, MethodRun, per_row
from jaxspec.cli.text_source import TextSource
from jaxspec.data import language_tokenizer


def written(source: TextSource, batches: Batches, run: MethodRun, row: int) -> tuple[list[int], str]:
  """Tokens and whole text of one row, its beginning included."""
  prompt = source.condition.tokens[batches.prompt[row]][source.condition.mask[batches.prompt[row]]]
  tokens = run.result.tokens[row, : run.result.lengths[row]].tolist()
  return tokens, language_tokenizer.decode(source.tokenizer, [*prompt.tolist(), *tokens])


def document(source: TextSource, batches: Batches, runs: list[MethodRun]) -> dict[str, Any]:
  """Settings, versions, figures, texts and their counters; JSON."""
  texts = []
  for row, (prompt, sample) in enumerate(zip(batches.prompt, batches.sample)):
    entry = {"prompt": source.captions[prompt], "prompt_index": int(prompt), "sample": int(sample)}
    entry["prompt_tokens"] = int(np.sum(source.condition.mask[prompt]))
    for run in runs:
      tokens, text = written(source, batches, run, row)
      counts = {name: int(values[row]) for name, values in per_row(run.result.counters).items()}
      ended = tokens[-1] in (source.end_token or ())
      entry[run.method] = counts | {"text": text, "tokens": tokens, "ended": ended}
    texts.append(entry)
  return {
    "settings": dataclasses.asdict(source.settings),
    "networks": {
      "target": str(source.target.path),
      "draft": None if source.draft is None else str(source.draft.path),
    },
    "max_tokens": source.num_tokens,
    "batch": {"rows": batches.rows, "batches": len(batches.key_data), "texts": len(batches.prompt)},
    "methods": {run.method: report.decoding_figures(run) for run in runs},
    "speedup": report.speedup(runs),
    "texts": texts,
    "warnings": source.warnings,
    **report.environment(),
  }


def print_summary(console: Console, source: TextSource, batches: Batches, runs: list[MethodRun], file: Path | None) -> None:
  """The texts, a heading, one column of figures per method, the comparison in words."""
  settings, device, num = source.settings, jax.devices()[0], len(batches.prompt)
  for row in range(num):
    prompt, (_, text) = source.captions[batches.prompt[row]], written(source, batches, runs[0], row)
    # A model may write anything, also what a terminal would obey.
    shown = Text("".join(char for char in text if char in "\n\t" or unicodedata.category(char) != "Cc"))
    if shown.plain.startswith(prompt):
      shown.stylize("bold", 0, len(prompt))
    console.print(shown, soft_wrap=True)
    console.print()
  products = "" if settings.matmul_precision == settings.dtype else f", {settings.matmul_precision} products,"
  head = Text.assemble((source.name, "bold"), f"  {num} text{'s' * (num != 1)} of up to {source.num_tokens} tokens")
  head.append(f"  {settings.dtype}{products} on {device.platform}", style="dim")
  console.print(head, soft_wrap=True)
  line = ", ".join(report.method_parts(settings) + report.sampling_parts(settings))
  console.print(Text(line, style="dim"), soft_wrap=True)
  console.print()
  console.print(report.figure_table(num, source.noun, runs))
  if (ratio := report.speedup(runs)) is not None:
    console.print()
    console.print(report.verdict(ratio, len(runs[0].run_s)), soft_wrap=True)
  if file is not None:
    console.print()
    console.print(Text.assemble(("wrote ", "dim"), str(file)), soft_wrap=True)
