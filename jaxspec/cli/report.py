"""What ``jaxspec generate`` prints and writes as JSON: the same figures twice."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import platform
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxspec.cli import link_report
from jaxspec.cli.decoding import Batches, MethodRun, median_s, per_row, tokens_of
from jaxspec.cli.settings import Settings
from jaxspec.cli.sources import Source
from jaxspec.decode.methods import METHODS

TITLES = {name: {"ar": "plain"}.get(name, name) for name in METHODS}


def figures(run: MethodRun) -> dict[str, Any]:
  """Every figure of a method that drew pictures, as plain numbers."""
  seconds = {"pixels_s": run.pixels_s, "pictures_per_s": len(run.result.lengths) / median_s(run)}
  return decoding_figures(run) | seconds


def decoding_figures(run: MethodRun) -> dict[str, Any]:
  """The figures of one method's decoding as plain numbers."""
  counters = per_row(run.result.counters)
  total = {name: int(values.sum()) for name, values in counters.items()}
  tokens, seconds = tokens_of(run), median_s(run)
  compressed = METHODS[run.method].drafter == "compressed"
  return {
    "tokens": tokens,
    "run_s": seconds,
    "run_s_each": run.run_s,
    "compile_s": run.compile_s,
    "tokens_per_s": tokens / seconds,
    "acceptance": total["accepted"] / total["drafted"] if total["drafted"] else None,
    "tokens_per_target_call": tokens / total["target_calls"] if total["target_calls"] else float("inf"),
    **total,
    **({"compression": link_report.figures(run)} if compressed else {}),
  }


def document(source: Source, batches: Batches, runs: list[MethodRun], files: dict[str, str]) -> dict[str, Any]:
  """Settings, versions, figures and per-picture counters; JSON."""
  by_method = {run.method: figures(run) for run in runs}
  pictures = []
  for index, (prompt, sample) in enumerate(zip(batches.prompt, batches.sample)):
    entry = {"prompt": source.captions[prompt], "prompt_index": int(prompt), "sample": int(sample)}
    for run in runs:
      row = {name: int(values[index]) for name, values in per_row(run.result.counters).items()}
      entry[run.method] = row | {"tokens": run.result.tokens[index].tolist()}
    pictures.append(entry)
  return {
    "settings": dataclasses.asdict(source.settings),
    "networks": {
      "source": source.name,
      "target": str(source.target.path),
      "draft": None if source.draft is None else str(source.draft.path),
      "tokenizer": str(source.tokenizer.path),
      "draft_guidance": source.draft_guidance,
    },
    "batch": {"rows": batches.rows, "batches": len(batches.key_data), "pictures": len(batches.prompt)},
    "methods": by_method,
    "speedup": speedup(runs),
    "pictures": pictures,
    "warnings": source.warnings,
    "files": files,
    **environment(),
  }


def environment() -> dict[str, Any]:
  """Device and versions."""
  device = jax.devices()[0]
  return {
    "device": {"platform": device.platform, "kind": device.device_kind, "machine": platform.machine()},
    "versions": {
      "python": platform.python_version(),
      "jaxspec": importlib.metadata.version("jaxspec-decoding"),
      "jax": jax.__version__,
    },
  }


def speedup(runs: list[MethodRun]) -> float | None:
  """Wall time of plain decoding over that of speculation; None if only one method ran."""
  seconds = {run.method: median_s(run) for run in runs}
  drafted = [run.method for run in runs if run.method != "ar"]
  return seconds["ar"] / seconds[drafted[0]] if len(seconds) == 2 else None


def print_summary(console: Console, source: Source, batches: Batches, runs: list[MethodRun], files: dict) -> None:
  """A heading, one column of figures per method, the comparison in words, and what was written."""
  settings, device = source.settings, jax.devices()[0]
  num = len(batches.prompt)
  console.print()
  head = Text.assemble((source.name, "bold"), f"  {num} picture{'s' * (num != 1)} of {source.num_tokens} tokens")
  products = "" if settings.matmul_precision == settings.dtype else f", {settings.matmul_precision} products,"
  head.append(f"  {settings.dtype}{products} on {device.platform}", style="dim")
  console.print(head, soft_wrap=True)
  console.print(Text(_settings_line(source), style="dim"), soft_wrap=True)
  console.print()
  console.print(figure_table(len(batches.prompt), source.noun, runs))
  if (ratio := speedup(runs)) is not None:
    console.print()
    console.print(verdict(ratio, len(runs[0].run_s)), soft_wrap=True)
  console.print()
  for path in files.values():
    console.print(Text.assemble(("wrote ", "dim"), str(path)), soft_wrap=True)


def _settings_line(source: Source) -> str:
  settings = source.settings
  parts = method_parts(settings)
  parts += [f"guidance {settings.cfg_scale:g}" if settings.cfg_scale > 1 else "no guidance"]
  if source.draft is not None and settings.cfg_scale > 1 and not source.draft_guidance:
    parts[-1] += " (target only)"
  if settings.cfg_scale > 1 and settings.cfg_interval >= 0:
    parts[-1] += f" up to token {settings.cfg_interval + 1}"
  return ", ".join(parts + sampling_parts(settings))


def method_parts(settings: Settings) -> list[str]:
  """What drafts and how it is judged, in words."""
  method = settings.parts
  parts = [] if method.draft_family is None else [f"draft {settings.draft}"]
  if method.drafts_chain:
    parts += [f"gamma {settings.gamma}"]
  elif method.drafter == "compressed":
    parts += link_report.settings_parts(settings)
  elif method.drafter == "interval":
    gate = f"tau {settings.tau:g}" if settings.tau is not None else "calibrated tau"
    if settings.cloud_rate is not None:
      gate = f"{settings.cloud_rate:g} cloud calls per token"
    parts += [gate, f"windows of {settings.gamma} ({settings.verify})"]
    parts += [f"rho {settings.rho:g}"] if settings.rho else []
  elif method.drafter == "jacobi":
    parts += [f"window {settings.window}, {settings.recycle} drafts"]
  elif method.drafter == "eagle":
    parts += [f"trees of {settings.tree_size} ({settings.tree_top_k} wide, {settings.tree_depth + 1} deep)"]
  if method.rule == "gsd":
    parts += [f"groups of {settings.group_size} (gap {settings.max_gap:g}, {settings.distance} {settings.max_distance:g})"]
  elif method.rule == "lantern":
    parts += [f"{settings.num_neighbours} neighbours, factor {settings.factor:g}"]
  elif method.rule == "scaled":
    parts += [f"factor {settings.factor:g}"]
  if not method.is_exact:
    parts += ["not exact"]
  return parts


def sampling_parts(settings: Settings) -> list[str]:
  """How tokens are drawn, in words."""
  parts = [f"top-k {settings.top_k}"] if settings.top_k else []
  parts += [f"top-p {settings.top_p:g}"] if settings.top_p < 1 else []
  return [*parts, f"temperature {settings.temperature:g}", f"seed {settings.seed}"]


def figure_table(num: int, noun: str, runs: list[MethodRun]) -> Table:
  """One column of figures per method over ``num`` pictures or texts."""
  table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
  table.add_column("")
  for run in runs:
    table.add_column(TITLES[run.method], justify="right")
  columns = [decoding_figures(run) for run in runs]
  each = lambda name: [f"{c[name] / num:,.1f}" for c in columns]
  drafted = [f"{c['accepted']:,} of {c['drafted']:,}" if c["drafted"] else "-" for c in columns]
  table.add_row("tokens per second", *(Text(f"{c['tokens_per_s']:,.0f}", style="bold green") for c in columns))
  table.add_row("decoding", *(_seconds(c["run_s"]) for c in columns))
  table.add_row("compiling", *(_seconds(c["compile_s"]) for c in columns))
  table.add_row(f"rounds per {noun}", *each("rounds"))
  table.add_row(f"target calls per {noun}", *each("target_calls"))
  table.add_row("tokens per target call", *(f"{c['tokens_per_target_call']:.2f}" for c in columns))
  if any(c["drafted"] for c in columns):
    table.add_row("drafts accepted", *drafted)
    rates = [f"{c['acceptance']:.1%}" if c["drafted"] else "-" for c in columns]
    table.add_row("acceptance rate", *rates)
  for name, *cells in link_report.rows([c.get("compression") for c in columns]):
    table.add_row(name, *cells)
  return table


def verdict(ratio: float, repeats: int) -> Text:
  """The comparison with plain decoding in words."""
  how = f" (wall time, median of {repeats} run{'s' * (repeats != 1)} in turns)"
  if ratio >= 1.02:
    words = [(f"{ratio:.2f}x as fast", "bold green"), " as plain decoding"]
  elif ratio > 0.98:
    words = [("no faster", "bold yellow"), f" than plain decoding: {ratio:.2f}x its speed"]
  else:
    words = [("slower", "bold yellow"), f" than plain decoding here: {ratio:.2f}x its speed"]
  return Text.assemble("Speculation was ", *words, (how, "dim"))


def _seconds(seconds: float) -> str:
  return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def finite(value: Any) -> Any:
  """Plain Python values; numbers that JSON does not know, such as an infinite budget, become None."""
  if isinstance(value, dict):
    return {key: finite(entry) for key, entry in value.items()}
  if isinstance(value, list | tuple):
    return [finite(entry) for entry in value]
  if isinstance(value, np.generic):
    value = value.item()
  return None if isinstance(value, float) and not math.isfinite(value) else value


def as_json(document: dict[str, Any]) -> str:
  """A document of figures as text that every JSON reader takes."""
  text = json.dumps(finite(document), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
  try:
    text.encode()
  except UnicodeEncodeError:  # a file name of other bytes
    text = json.dumps(finite(document), indent=2, allow_nan=False) + "\n"
  return text
