"""The report of ``jaxspec plan``: a plan by batch size, or a row for each of several plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jaxspec.planning.assumed_acceptance import Acceptance
from jaxspec.planning.compiled import Compiled
from jaxspec.planning.devices import DEVICES, USABLE
from jaxspec.planning.memory_plan import PIXELS, ROUNDS
from jaxspec.planning.plan import Batch, Plan
from jaxspec.planning.published_models import MODELS

_GB = 1e9
WIDTH = 100
_NOTE = (
  "Limits, by bytes and operations at the peaks of the data sheet: good programs reach half to three quarters of them, "
  "small networks less."
)


def print_plan(console: Console, plan: Plan) -> None:
  """One plan: a heading, and a column for every batch size."""
  console.width = WIDTH
  for head, text in _headings(plan):
    console.print(Text.assemble((f"{head:<8}", "bold"), text), soft_wrap=False)
  console.print()
  console.print(_table(plan))
  console.print()
  console.print(_largest(plan), style="bold")
  console.print(_NOTE, style="dim")


def _largest(plan: Plan) -> str:
  if not plan.largest:
    return "No batch fits."
  rounds = (plan.memory.most_rows(ROUNDS) or 0) * plan.mesh.data
  pixels = f", limited by the making of pixels; the rounds alone fit {rounds:,}" if rounds > plan.largest else ""
  return f"The largest batch that fits is {plan.largest:,}{pixels}."


def _headings(plan: Plan) -> list[tuple[str, str]]:
  model, device, mesh = plan.model, plan.device, plan.mesh
  guided = ", guided" if plan.halves > 1 else ""
  size = _count(plan.parameters)
  memory = f"{device.device.memory / _GB:.0f} GB, {plan.memory.usable / _GB:.1f} GB ({USABLE:.0%}) usable"
  row = f"{model.num_tokens:,} tokens, prompt of {model.prefix}{guided}"
  found = [
    ("model", f"{model.name}, {size} parameters in {plan.dtype}; {row}"),
    ("device", f"{device.count} x {device.kind} with {memory}; mesh {mesh}"),
    ("method", f"{plan.method.name}, {_window(plan)}{_accepted(plan.acceptance)}{_called(plan.calls)}"),
  ]
  if plan.draft is not None:
    found.append(("draft", f"{plan.draft[0]}, {_count(plan.draft[1])} parameters"))
  return found


def _window(plan: Plan) -> str:
  if plan.window != plan.method.drafts_per_round():  # of several rows of an image
    return f"{plan.window + 1} tokens read in a pass"
  return f"{plan.window} drafts a round" if plan.window else plan.method.title


def _accepted(acceptance: Acceptance | None) -> str:
  return "" if acceptance is None else f"; acceptance {acceptance.value:.2f} ({acceptance.source})"


def _called(calls: float | None) -> str:
  return "" if calls is None else f"; calls {calls:.3g} (given)"


def _table(plan: Plan) -> Table:
  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
  table.add_column("GB on each device, batch of", no_wrap=True)
  for batch in plan.batches:
    table.add_column(f"{batch.batch:,}", justify="right", no_wrap=True)
  row = lambda name, cell, style="": table.add_row(Text(name, style=style), *(cell(batch) for batch in plan.batches))
  for need in plan.memory.needs:
    sizes = [_gb(need.bytes(batch.rows)) for batch in plan.batches]
    table.add_row(Text(need.name, style="dim" if need.phase == PIXELS else ""), *sizes)
  row("peak", lambda batch: Text(_gb(batch.bytes), style="bold"), "bold")
  row("fits", _verdict, "bold")
  table.add_row()
  row("target pass, tokens per row", lambda batch: str(batch.speed.target.inputs))
  row("  GB read on each device", lambda batch: _gb(batch.speed.target.read))
  row("  10^12 operations on each device", lambda batch: _three(batch.speed.target.operations / 1e12))
  if plan.mesh.model > 1:
    row("  MB sent by each device", lambda batch: _three(batch.speed.target.exchanged / 1e6))
  row("  ms", lambda batch: _three(1e3 * batch.speed.target.seconds))
  row("  bound by", lambda batch: batch.speed.target.bound)
  if plan.draft is not None:
    row("draft passes per round", lambda batch: _three(batch.speed.draft_calls))
    row("  ms per pass", lambda batch: _three(1e3 * batch.speed.draft.seconds))
  row("tokens per round and row", lambda batch: f"{batch.speed.tokens:.2f}")
  row("ms per round", lambda batch: _three(1e3 * batch.speed.round_s))
  row("tokens per second, at most", lambda batch: Text(f"{batch.speed.tokens_per_s:,.0f}", style="bold"), "bold")
  row("seconds per batch", lambda batch: _three(batch.speed.row_s))
  row("speed-up over plain decoding", lambda batch: f"{batch.speed.over_plain:.2f}")
  return table


def _verdict(batch: Batch) -> Text:
  return Text("yes", style="green") if batch.fits else Text(f"no, {_gb(batch.missing)} over", style="bold red")


def print_compiled(console: Console, compiled: Compiled) -> None:
  """The compiler's figures, one per line."""
  counted = lambda counts: ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"
  fits = Text("fits", style="green") if compiled.fits else Text("does not fit", style="bold red")
  sizes = ", ".join(f"{_gb(getattr(compiled, name))} {name}" for name in ("arguments", "temporary", "results", "code"))
  console.print()
  seconds, planned = compiled.lower_s + compiled.compile_s, _gb(compiled.planned)
  head = f" in {_three(seconds)} s: {_gb(compiled.bytes)} GB on each device, where {planned} GB are planned, "
  console.print(Text.assemble(("compiled", "bold"), head, fits), soft_wrap=True)
  for name, text in (
    ("GB", sizes),
    ("GB of it caches, tiles filled up", _gb(compiled.caches)),
    ("copies of caches in loops", counted(compiled.copies)),
    ("caches moved onto the chip or back in loops", counted(compiled.moves)),
    ("exchanges in loops", counted(compiled.exchanges)),
    ("exchanges outside", counted(compiled.exchanges_outside)),
  ):
    console.print(f"  {name}: {text}", soft_wrap=True)


# Columns of a table of several plans.
_PAIRS: tuple[tuple[str, Callable[[Plan, Batch], str]], ...] = (
  ("model", lambda plan, batch: plan.model.name),
  ("device", lambda plan, batch: plan.device.name),
  ("data x model", lambda plan, batch: f"{plan.mesh.data} x {plan.mesh.model}"),
  ("batch", lambda plan, batch: f"{batch.batch:,}"),
  ("GB on each", lambda plan, batch: _gb(batch.bytes)),
  ("fits", lambda plan, batch: _verdict(batch).plain),
  ("largest", lambda plan, batch: f"{plan.largest:,}"),
  ("ms a round", lambda plan, batch: _three(1e3 * batch.speed.round_s)),
  ("tokens/s", lambda plan, batch: f"{batch.speed.tokens_per_s:,.0f}"),
)


def _rows(plans: Sequence[Plan]) -> list[list[str]]:
  return [[cell(plan, batch) for _, cell in _PAIRS] for plan in plans for batch in plan.batches]


def print_pairs(console: Console, plans: Sequence[Plan]) -> None:
  """A row for each plan and batch size."""
  console.width = WIDTH
  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
  for index, (title, _) in enumerate(_PAIRS):
    table.add_column(title, justify="left" if index < 3 else "right", no_wrap=True)
  for row in _rows(plans):
    table.add_row(*row)
  console.print(table)
  console.print()
  console.print(_NOTE, style="dim")


def markdown(plans: Sequence[Plan]) -> str:
  """The same rows as a table in Markdown."""
  lines = ["| " + " | ".join(title for title, _ in _PAIRS) + " |", "|" + "---|" * len(_PAIRS)]
  return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in _rows(plans))])


def listed() -> dict[str, Any]:
  """Models and devices by name, as JSON values."""
  fields = ("family", "num_tokens", "prefix", "guidance", "side")
  models = {name: {field: getattr(model, field) for field in fields} for name, model in MODELS.items()}
  return {"models": models, "devices": {name: device._asdict() for name, device in DEVICES.items()}}


def print_list(console: Console) -> None:
  """Models, then devices."""
  console.width = WIDTH
  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
  for index, title in enumerate(("model", "family", "tokens", "prompt", "pixels", "guidance")):
    table.add_column(title, justify="right" if index > 1 else "left", no_wrap=True)
  for name, model in MODELS.items():
    pixels = "" if model.side is None else str(model.side)
    guidance = "" if model.guidance == 1 else f"{model.guidance:g}"
    table.add_row(Text(name, style="bold"), model.family, f"{model.num_tokens:,}", str(model.prefix), pixels, guidance)
  console.print(table)
  console.print()
  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
  for index, title in enumerate(("device", "GB", "TB/s", "bf16 TFLOP/s", "f32 TFLOP/s", "link GB/s", "several")):
    table.add_column(title, justify="right" if 0 < index < 6 else "left", no_wrap=True)
  for name, device in DEVICES.items():
    several = f"{name}:{'x'.join('2' * device.torus)}" if device.torus else f"{name}:8"
    speeds = (device.bandwidth / 1e12, device.bfloat16 / 1e12, device.float32 / 1e12, device.link / _GB)
    table.add_row(Text(name, style="bold"), f"{device.memory / _GB:.0f}", *(f"{value:,.4g}" for value in speeds), several)
  console.print(table)


def _gb(size: float) -> str:
  size /= _GB
  return f"{size:.2f}" if size >= 0.1 or not size else f"{size:.2g}" if size >= 1e-4 else "<0.0001"


def _three(value: float) -> str:
  """Three digits, without an exponent."""
  return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 else "0"


def _count(parameters: int) -> str:
  return f"{parameters / _GB:.2f} G" if parameters >= _GB else f"{parameters / 1e6:.0f} M"
