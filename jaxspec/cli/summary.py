"""The report of ``jaxspec generate``: texts, the settings in one line, and one column of figures per method."""

from __future__ import annotations

import dataclasses
import unicodedata
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxspec.cli.outputs import print_written
from jaxspec.cli.summary_sections import lines_of
from jaxspec.core.options import options_of
from jaxspec.methods import Method
from jaxspec.run.decode_options import flag
from jaxspec.run.figures import figures, speedup
from jaxspec.run.generation import Generation
from jaxspec.run.job import Job, draft_name


def print_summary(console: Console, runs: list[Generation], files: dict[str, Path]) -> None:
  """Texts, a heading, one column of figures per method, the comparison in words, and the written files."""
  job = runs[0].job
  if job.noun == "text":
    _print_texts(console, runs[0])
  else:
    console.print()
  say(console, _heading(job, runs[0].num))
  say(console, Text(settings_line(job), style="dim"))
  console.print()
  console.print(figure_table(job.noun, runs))
  if (ratio := speedup(runs)) is not None:
    console.print()
    what = "Speculation" if job.method.drafts_per_round() else f"Method {job.method.name}"
    say(console, verdict(ratio, len(runs[0].run_s), what))
  if files:
    console.print()
  print_written(console, *files.values())


def say(console: Console, text: Text | str) -> None:
  """Prints a line, wrapped at words in a terminal, and unwrapped in a file."""
  console.print(text, soft_wrap=not console.is_terminal)


def _print_texts(console: Console, run: Generation) -> None:
  """Every text, with its prompt in bold."""
  for prompt, text in zip(run.captions, run.texts or ()):
    shown = Text(printable(text))
    if shown.plain.startswith(prompt):
      shown.stylize("bold", 0, len(prompt))
    say(console, shown)
    console.print()


def printable(text: str) -> str:
  """The text without control characters, since models and users may write any."""
  return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) != "Cc")


def _heading(job: Job, num: int) -> Text:
  pipeline = job.pipeline
  head = Text.assemble((pipeline.name, "bold"), f"  {rows_in_words(job, num)}")
  rounded = pipeline.matmul_precision not in (None, "float32", pipeline.dtype)
  products = f", {pipeline.matmul_precision} products," if rounded else ""
  return head.append(f"  {pipeline.dtype}{products} on {jax.devices()[0].platform}", style="dim")


def rows_in_words(job: Job, num: int) -> str:
  """Number of rows and tokens, with the noun of the result."""
  most = "" if job.pipeline.family.row_tokens(job.sampling) else "up to "
  return f"{num} {job.noun}{'s' * (num != 1)} of {most}{job.max_len} tokens"


def settings_line(job: Job) -> str:
  """The method, its settings and those of the sampling in words."""
  decoder = job.decoder
  method, main = decoder.method, _main_option(type(decoder.method))
  if main is not None:
    method = dataclasses.replace(method, **{main: getattr(method.resolved(decoder.context), main)})
  parts = [*method_parts(method), *sampling_parts(job.sampling)]
  if decoder.draft is not None and job.sampling.is_guided and not decoder.draft.is_guided:
    parts.append("draft without guidance")
  return ", ".join([*parts, f"seed {job.seed}"])


def method_parts(method: Method) -> list[str]:
  """The method in words: its draft, its main option, and others that differ from their defaults."""
  draft = [] if method.draft_family is None else [f"draft {draft_name(method)}"]
  exact = [] if method.is_exact else ["not exact"]
  return [method.title, *draft, *_changed(method, always=_main_option(type(method))), *exact]


def _main_option(cls: type[Method]) -> str | None:
  """The first option that is not a flag and that the method itself declares."""
  own = {name for base in cls.__mro__ if issubclass(base, Method) for name in vars(base).get("__annotations__", {})}
  return next((name for name, option in options_of(cls).items() if name in own and option.kind is not bool), None)


def sampling_parts(sampling: Any) -> list[str]:
  """The sampling settings in words: the temperature, and others that differ from their defaults."""
  return _changed(sampling, always="temperature")


def _changed(value: Any, *, always: str | None) -> list[str]:
  found = []
  for name, option in options_of(type(value)).items():
    setting = getattr(value, name)
    if setting != option.default or (name == always and setting is not None):
      found.append(words_of(name, setting))
  return found


def words_of(name: str, value: Any) -> str:
  """A setting as ``name value``; a boolean one as its flag without dashes."""
  name = flag(name).removeprefix("--")
  if isinstance(value, bool):
    return name if value else f"no {name}"
  return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"


def figure_table(noun: str, runs: list[Generation]) -> Table:
  """One column of figures per method."""
  table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
  table.add_column("")
  for run in runs:
    table.add_column(run.heading, justify="right")
  columns = [figures(run) for run in runs]
  num = runs[0].num
  each = lambda name: [f"{c[name] / num:,.1f}" for c in columns]
  table.add_row("tokens per second", *(Text(f"{c['tokens_per_s']:,.0f}", style="bold green") for c in columns))
  table.add_row("decoding", *(_seconds(c["run_s"]) for c in columns))
  table.add_row("compiling", *(_seconds(c["compile_s"]) for c in columns))
  table.add_row(f"rounds per {noun}", *each("rounds"))
  table.add_row(f"target calls per {noun}", *each("target_calls"))
  table.add_row("tokens per target call", *(f"{c['tokens_per_target_call']:.2f}" for c in columns))
  if any(c["drafted"] for c in columns):
    table.add_row("drafts accepted", *(f"{c['accepted']:,} of {c['drafted']:,}" if c["drafted"] else "-" for c in columns))
    table.add_row("acceptance rate", *(f"{c['acceptance']:.1%}" if c["drafted"] else "-" for c in columns))
  for label, *cells in _section_rows(columns, runs):
    table.add_row(label.format(noun=noun), *cells)
  return table


def _section_rows(columns: list[dict[str, Any]], runs: list[Generation]) -> list[tuple[str, ...]]:
  """Lines of `jaxspec.cli.summary_sections`: a label and one cell for each method, "-" for methods without the figure."""
  cells = [dict(lines_of(column, run)) for column, run in zip(columns, runs)]
  labels = dict.fromkeys(label for column in cells for label in column)
  return [(label, *(column.get(label, "-") for column in cells)) for label in labels]


def verdict(ratio: float, repeats: int, what: str = "Speculation") -> Text:
  """The comparison of ``what`` with plain decoding in words."""
  how = f" (wall time per token, median of {repeats} run{'s' * (repeats != 1)} in turns)"
  if ratio >= 1.02:
    words = [(f"{ratio:.2f}x as fast", "bold green"), " as plain decoding"]
  elif ratio > 0.98:
    words = [("no faster", "bold yellow"), f" than plain decoding: {ratio:.2f}x its speed"]
  else:
    words = [("slower", "bold yellow"), f" than plain decoding here: {ratio:.2f}x its speed"]
  return Text.assemble(f"{what} was ", *words, (how, "dim"))


def _seconds(seconds: float) -> str:
  return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
