"""``jaxspec plan``: memory and a bound of the speed of a decode on a device, without the device."""

from __future__ import annotations

import json
from typing import Any

import click

from jaxspec.cli.guards import interruptible
from jaxspec.cli.option_help import Group, Line, MethodCommand
from jaxspec.cli.options import common, unread, warn
from jaxspec.core.command_line import UserError

MOST_BATCHES = 6  # columns of a table of 100 characters
DEFAULT_DTYPE = "bfloat16"

_GROUPS = (
  Group("What to plan", (Line(("model",)), Line(("device",)), Line(("mesh",)), Line(("batches",)), Line(("tokens",)))),
  Group("How to decode", (Line(("method",)), Line(("draft",)), Line(("acceptance",)), Line(("calls",)), Line(("dtype",)))),
  Group("Output", (Line(("markdown",)), Line(("as_json",)), Line(("compiles",)), Line(("show_list",)))),
)


@click.command(cls=MethodCommand, groups=_GROUPS)
@click.option("--model", "model", multiple=True, metavar="NAME", help="Published network, or a checkpoint folder; repeat.")
@click.option("--device", "device", multiple=True, metavar="KIND", help="h100, h100:8, v5e:2x4, ...; repeat to compare.")
@click.option("--mesh", metavar="AXES", help="data=D,model=M.  [default: the largest model that divides the heads]")
@click.option("--batch", "batches", multiple=True, type=int, metavar="N", help="Rows together; repeat.  [default: 1]")
@click.option("--tokens", type=int, metavar="N", help="Tokens of a row.  [default: as published]")
@click.option("--draft", metavar="NAME", help="Draft network.  [default: the bundle's or the published one, else 2 layers]")
@click.option("--acceptance", metavar="A", help="Probability of a draft, or a recorded file.  [default: 0.7, assumed]")
@click.option("--calls", metavar="C", help="Calls of the cloud per token, or a recorded file, with --method ciar.")
@click.option("--dtype", type=click.Choice(("bfloat16", "float32")), default=DEFAULT_DTYPE, show_default=True,
              metavar="NAME", help="Weights and arithmetic of the transformers.")  # fmt: skip
@click.option("--compile", "compiles", is_flag=True, help="Compile for the TPU, which takes minutes; needs libtpu.")
@click.option("--markdown", is_flag=True, help="A row for each model and device, as Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--list", "show_list", is_flag=True, help="List models and devices.")
@common("method")
def plan(**options: Any) -> None:
  """Estimate whether a decode fits a device and its highest speed, without the device.

  \b
  jaxspec plan --model anole-7b --method gsd --mesh data=1,model=8 --device v5e:2x4
  jaxspec plan --model llamagen-xl-t2i --device h100 --batch 1 --batch 32
  """
  import jax
  from rich.console import Console

  jax.config.update("jax_platforms", "cpu")  # no computation, so an accelerator of this machine is not used

  from jaxspec.cli import plan_table
  from jaxspec.run.decode_options import DecodeOptions

  console = Console(highlight=False)
  if options["show_list"]:
    warn(*unread("with --list", *(name for name in options if name not in ("show_list", "as_json"))))
    click.echo(json.dumps(plan_table.listed(), indent=2)) if options["as_json"] else plan_table.print_list(console)
    return
  for name in ("model", "device"):
    if not options[name]:
      raise UserError(f"Must have --{name}; jaxspec plan --list shows models and devices")
  if options["compiles"] and (len(options["model"]), len(options["device"]), len(options["batches"]) or 1) != (1, 1, 1):
    raise UserError("Must have one model, one device and one batch with --compile")
  decoding = DecodeOptions.of(options)
  decoding.check()
  plans, warnings = interruptible(_plans, options, decoding)
  warn(*warnings, *(unread("with --json", "markdown") if options["as_json"] else []))
  if not options["as_json"]:
    if options["markdown"]:
      click.echo(plan_table.markdown(plans))
    elif len(plans) > 1:
      plan_table.print_pairs(console, plans)
    else:
      plan_table.print_plan(console, plans[0])
  compiled = None
  if options["compiles"]:  # after the plan, so that it is printed if the compiler fails
    from jaxspec.planning.compiled import compile_plan
    from jaxspec.render.working import Working

    with Working("Compiling"):
      compiled = interruptible(compile_plan, plans[0], plans[0].batches[0].batch)
    if not options["as_json"]:
      plan_table.print_compiled(console, compiled)
  if options["as_json"]:
    from jaxspec.run.json_values import finite

    found = [finite(each.as_json()) | ({} if compiled is None else {"compiled": compiled._asdict()}) for each in plans]
    click.echo(json.dumps(found if len(found) > 1 else found[0], indent=2))


def _plans(options: dict[str, Any], decoding: Any) -> tuple[list[Any], list[str]]:
  """A plan for every model on every device, and warnings about unread options.

  Raises:
    ValueError: for options that do not fit together.
  """
  from jaxspec.cli import imposed
  from jaxspec.core import mesh
  from jaxspec.methods import Plain, get_method
  from jaxspec.planning import find_model, make_plan, method_of, parse_device, sampling_of

  batches = options["batches"] or (1,)
  if len(batches) > MOST_BATCHES:
    raise UserError(f"Must have at most {MOST_BATCHES} batches, we instead got {len(batches)}")
  cls = Plain if decoding.method is None else get_method(decoding.method)
  fields = decoding.for_method(cls)
  draft = find_model(fields.pop("draft")) if fields.get("draft") is not None else None
  sizes = None if options["mesh"] is None else mesh.parse(options["mesh"])
  devices = [parse_device(text) for text in options["device"]]
  models = [find_model(name) for name in options["model"]]
  if options["tokens"] is not None:
    models = [model.with_tokens(options["tokens"]) for model in models]
  plans, warnings = [], []
  for model in models:
    method = method_of(model, cls, **fields)
    acceptance, calls = imposed.shares(options["acceptance"], options["calls"], method)
    sampling = sampling_of(model)
    sampling = sampling_of(model, **decoding.for_sampling(type(sampling)))
    found = decoding.unread(cls, type(sampling))
    if acceptance is not None and not method.longest_path():
      found.insert(0, f"Not read by --method {cls.name}: --acceptance")
    warnings += [text for text in found if text not in warnings]
    for device in devices:
      plans.append(
        make_plan(
          model, device, batches=batches, method=method, sampling=sampling, draft=draft, mesh=sizes,
          dtype=options["dtype"], acceptance=acceptance, calls=calls,
        )
      )  # fmt: skip
  return plans, warnings
