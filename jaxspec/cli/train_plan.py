"""The report of ``jaxspec train --plan``: memory and time of a training on one device."""

from __future__ import annotations

import datetime
from typing import Any

from jaxspec.core.command_line import UserError

WIDTH = 100


def print_plan(kind: str, settings: Any, options: dict[str, Any]) -> None:
  """Prints the plan of a training of a published model, or of the target of a folder.

  Raises:
    ValueError: for an unknown model or device, several devices, or a target that has no such student.
  """
  import jax
  from rich.console import Console
  from rich.table import Table

  jax.config.update("jax_platforms", "cpu")  # no computation, so an accelerator of this machine is not used

  from jaxspec.planning import find_model, parse_device
  from jaxspec.planning.training_plan import training_plan

  if options["model"] is None:
    raise UserError("Must have --model with --plan; jaxspec plan --list shows the models")
  device = parse_device(options["device"])
  if device.count > 1:
    raise UserError(f"Must have one device for the plan of a training, we instead got {device.name}")
  model = find_model(str(options["model"]))
  plan = training_plan(model, settings, device.device, dtype=options["dtype"], batch=options["batch"])
  console = Console(highlight=False, width=WIDTH)
  parameters = plan.student.num_parameters
  console.print(
    f"{kind} of {model.name} on one {device.kind}: {parameters / 1e6:,.1f} M parameters, {settings.num_samples:,} rows of "
    f"{model.num_tokens:,} tokens, {settings.loop.num_steps:,} updates of {settings.batch_size} rows"
  )
  table = Table("part", "GB", box=None, pad_edge=False)
  table.columns[1].justify = "right"
  for name, size in plan.memory.items():
    table.add_row(name, _gb(size))
  table.add_row(f"peak of {_gb(plan.usable)} usable: {'fits' if plan.fits else 'does not fit'}", _gb(plan.total))
  host = plan.row_bytes * settings.num_samples
  words = "once, on the host" if plan.is_kept else f"in every step (kept_gib={settings.kept_gib:g})"
  table.add_row(f"outputs of the target, computed {words}", _gb(host))
  console.print(table)
  table = Table("part", "at least", box=None, pad_edge=False)
  table.columns[1].justify = "right"
  for name, seconds in plan.seconds.items():
    table.add_row(name, _time(seconds))
  table.add_row("all", _time(sum(plan.seconds.values())))
  console.print(table)
  console.print("Limits, at the peaks of the data sheet: good programs reach half to three quarters of them.", style="dim")


def _gb(size: float) -> str:
  return f"{size / 1e9:,.2f}"


def _time(seconds: float) -> str:
  return f"{seconds:.1f} s" if seconds < 100 else str(datetime.timedelta(seconds=round(seconds)))
