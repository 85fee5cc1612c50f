"""``jaxspec bench-model``: the speed-up of a method on a published network, measured with random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from jaxspec.cli.guards import interruptible
from jaxspec.cli.option_help import Group, Line, MethodCommand
from jaxspec.cli.options import common, unread, warn
from jaxspec.cli.outputs import check_writable
from jaxspec.core.command_line import PATH, UserError
from jaxspec.io.whole_files import is_stdout, write_whole

if TYPE_CHECKING:
  from jaxspec.methods import Method
  from jaxspec.planning.imposed_bench import Cell
  from jaxspec.planning.published_models import Model
  from jaxspec.render.working import Working
  from jaxspec.sampling import SamplingConfig

ACCEPTANCES, BATCHES = (0.5, 0.7, 0.9), (1,)
_NOUNS = {"acceptances": "an acceptance", "calls": "calls"}

_GROUPS = (
  Group(
    "What to measure", (Line(("model",)), Line(("batches",)), Line(("acceptances",)), Line(("calls",)), Line(("tokens",)))
  ),
  Group("How to decode", (Line(("method",)), Line(("draft",)), Line(("draft_layers",)), Line(("dtype",)))),
  Group("Output", (Line(("repeats",)), Line(("lock_step",)), Line(("out",)))),
)


@click.command(cls=MethodCommand, groups=_GROUPS)
@click.option("--model", metavar="NAME", help="Published network, or a checkpoint folder; jaxspec plan --list.")
@click.option("--batch", "batches", multiple=True, type=int, metavar="N", help="Rows together; repeat.  [default: 1]")
@click.option("--acceptance", "acceptances", multiple=True, metavar="A",
              help="Probability of a draft, or a recorded file; repeat.  [default: 0.5, 0.7, 0.9]")  # fmt: skip
@click.option("--calls", multiple=True, metavar="C",
              help="Calls of the cloud per token, or a recorded file; ciar; repeat.  [default: 0.3]")  # fmt: skip
@click.option("--lock-step/--no-lock-step", default=True, help="Rows that wait for the slowest, above batch 1.")
@click.option("--tokens", type=int, metavar="N", help="Tokens of a row.  [default: as published]")
@click.option("--draft", metavar="NAME", help="Draft network.  [default: the bundle's or the published one, else 2 layers]")
@click.option("--draft-layers", type=click.IntRange(1), metavar="N", help="The first layers of the model as draft network.")
@click.option("--dtype", type=click.Choice(("bfloat16", "float32")), default="float32", show_default=True, metavar="NAME",
              help="Weights and arithmetic.")  # fmt: skip
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1, 1000), metavar="N", help="Timed runs.")
@click.option("--out", type=PATH, metavar="FILE", help="Write the figures as JSON.")
@common("method")
def bench_model(**options: Any) -> None:
  """Measure the speed-up of a method over plain decoding at an imposed acceptance, and of ciar at imposed calls.

  Weights are random, so the tokens mean nothing. Rounds are computed in full; the number of accepted drafts is drawn
  from a probability, or read from a file (jaxspec generate --save-acceptance). The method rows drafts nothing: its
  schedule decides the passes. A published size needs its memory and takes minutes.

  \b
  jaxspec bench-model --model llamagen-b --gamma 3 --acceptance 0.7
  jaxspec bench-model --model llamagen-l --method sjd --acceptance sjd.json
  jaxspec bench-model --model llamagen-l --method ciar --calls 0.3 --acceptance 0.7
  """
  from jaxspec.cli.bench_model_table import render
  from jaxspec.render.working import Working

  warn(*(unread("at batch 1", "lock_step") if max(options["batches"] or BATCHES) == 1 else ()))
  with Working("Checking") as working:
    report = interruptible(_measured, options, working)
  click.echo(render(report), err=is_stdout(options["out"]))
  if (out := options["out"]) is not None:
    from jaxspec.run.json_values import as_json

    write_whole(out, lambda path: path.write_text(as_json(report), encoding="utf-8"))


class _Setup(NamedTuple):
  """Options that passed every check that needs no weights."""

  model: Model
  draft: Model | None
  method: Method
  sampling: SamplingConfig
  batches: tuple[int, ...]
  cells: list[Cell]


def _setup(options: dict[str, Any]) -> _Setup:
  """The options, checked, with warnings about unread ones.

  Raises:
    ValueError: in one line, for options that cannot be measured.
  """
  import dataclasses

  from jaxspec.cli import imposed
  from jaxspec.methods import DISCRETE, get_method
  from jaxspec.planning import find_model, method_of, sampling_of
  from jaxspec.planning.imposed_bench import saves_without_drafts
  from jaxspec.run.batches import check_batch
  from jaxspec.run.decode_options import DecodeOptions
  from jaxspec.sampling import SamplingConfig

  decoding = DecodeOptions.of(options)
  decoding.check()
  if options["model"] is None:
    raise UserError("Must have --model; jaxspec plan --list shows the models")
  batches = options["batches"] or BATCHES
  for rows in batches:
    check_batch(rows)
  given = {name: {text: imposed.read(text, noun) for text in options[name]} for name, noun in _NOUNS.items()}
  if options["out"] is not None:
    check_writable(options["out"], suffix=".json")
  model = find_model(options["model"])
  model = model if options["tokens"] is None else model.with_tokens(options["tokens"])
  cls = get_method(decoding.method or "speculative")
  method = method_of(model, cls, **_fields(decoding, cls)) if cls.fits(DISCRETE) else None
  if method is None or not (method.longest_path() or saves_without_drafts(method, model.num_tokens)):
    raise UserError(f"Must have a method that drafts discrete tokens, or draws rows, we instead got {cls.name}")
  method.check_length(model.num_tokens)
  cells, warnings = _cells(given, method)
  draft = None if options["draft"] is None else find_model(options["draft"])
  if (layers := options["draft_layers"]) is not None:
    if draft is not None:
      raise UserError("Must have either --draft or --draft-layers, we instead got both")
    draft = _first_layers(model, layers)
  sampling = sampling_of(model)
  sampling = dataclasses.replace(sampling, **decoding.for_sampling(type(sampling)))
  warnings += decoding.unread(cls, type(sampling))
  if draft is not None and cls.draft_family is None and options["draft_layers"] is not None:
    warnings.append(f"Not read by --method {cls.name}: --draft-layers")
  warn(*warnings)
  if not isinstance(sampling, SamplingConfig):
    raise UserError(f"Must have a model of token ids to impose acceptance, we instead got {model.name}")
  return _Setup(model, draft, method, sampling, batches, cells)


def _cells(given: dict[str, dict[str, Any]], method: Method) -> tuple[list[Cell], list[str]]:
  """Every acceptance with every share of calls, and warnings.

  A recording of calls has its own acceptance, unless one is given.

  Raises:
    ValueError: for a recording that does not fit.
  """
  from jaxspec.methods.ciar import DEFAULT_RATE, Ciar
  from jaxspec.planning.imposed_bench import Cell, imposed_of

  calls, warnings = given["calls"], []
  if not isinstance(method, Ciar):
    warnings += [f"Not read by --method {method.name}: --calls"] if calls else []
    calls = {}
  elif not calls and method.tau is None and method.cloud_rate is None:
    calls = {text: found for text, found in given["acceptances"].items() if getattr(found, "called_at", ())}
    calls = calls or {str(DEFAULT_RATE): DEFAULT_RATE}
  defaults: dict[str, Any] = {str(value): value for value in ACCEPTANCES}
  cells = []
  for text, called in calls.items() or [(None, None)]:
    own: dict[str, Any] = {str(text): called} if getattr(called, "called_at", ()) else defaults
    cells += [Cell(found, called, (name, text)) for name, found in (given["acceptances"] or own).items()]
  if not method.longest_path():
    warnings += [f"Not read by --method {method.name} without drafts: --acceptance"] if given["acceptances"] else []
    return [Cell(None)], warnings
  for cell in cells:
    imposed_of(method, cell.acceptance, cell.calls)
  return cells, warnings


def _first_layers(model: Model, layers: int) -> Model:
  """A draft that is as wide as the model.

  Raises:
    UserError: for more layers than it has.
  """
  import dataclasses

  if layers > (most := getattr(model.config, "num_layers", 0)):
    raise UserError(f"Must have at most the {most} layers of {model.name} in a draft, we instead got {layers}")
  config = dataclasses.replace(model.config, num_layers=layers)
  return dataclasses.replace(model, name=f"{layers} layers of {model.name}", config=config)


def _measured(options: dict[str, Any], working: Working) -> dict[str, Any]:
  """The report.

  Raises:
    ValueError: in one line, before anything is measured.
  """
  from jaxspec.cli.compilation_cache import enable
  from jaxspec.planning.imposed_bench import imposed_of, imposed_report
  from jaxspec.planning.parts import needs_of
  from jaxspec.planning.random_weights import RandomModel

  setup, dtype = _setup(options), options["dtype"]
  model, method, sampling = setup.model, setup.method, setup.sampling
  random = RandomModel(model, dtype, setup.draft)
  needs = needs_of(model, model.sized(dtype), method, sampling, setup.draft, dtype)  # before there are weights
  if needs.parts.decode is not None and method.longest_path():
    raise UserError(f"Must have drafts that the loop tests to impose their acceptance, {method.name} tests its own")
  enable()
  for cell in setup.cells:  # errors are raised before the measurement
    _ = random.decoder(method, sampling, imposed_of(method, cell.acceptance, cell.calls)).parts
  return imposed_report(
    random, method, sampling, setup.cells, batches=setup.batches, lock_step=options["lock_step"],
    repeats=options["repeats"], progress=working,
  )  # fmt: skip


def _fields(decoding: Any, cls: Any) -> dict[str, Any]:
  fields = decoding.for_method(cls)
  fields.pop("draft", None)  # a network of the plan, not a name of a bundle
  return fields
