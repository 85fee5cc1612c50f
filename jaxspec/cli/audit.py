"""``jaxspec audit``: what a method costs in fidelity, as exact laws of the tokens it commits, and what it buys in calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from jaxspec.cli.errors import UserError, check_writable, interruptible, write_whole
from jaxspec.cli.generate import generate
from jaxspec.cli.settings import Settings, batch_rows, check_lengths
from jaxspec.decode.methods import METHODS

# Asked for one after the other; the shipped networks know foods and hearts.
PROMPTS = (
  "red heart", "red apple", "green heart", "pizza", "blue heart on yellow background", "strawberry", "hamburger",
  "purple heart small", "lemon", "noto cookie", "orange heart", "twemoji doughnut", "grapes on white background",
  "broken heart", "ice cream", "fluent watermelon",
)  # fmt: skip

_PATH = click.Path(path_type=Path)
_FIELDS = tuple(field.name for field in dataclasses.fields(Settings))
# Read by every method.
_SAMPLING = ("cfg_scale", "cfg_interval", "top_k", "top_p", "temperature")


def _as_in_generate(*names: str) -> Callable[[Callable], Callable]:
  """Gives a command the options of ``jaxspec generate`` with these names: one definition, one meaning."""

  def add(function: Callable) -> Callable:
    for option in reversed([option for option in generate.params if option.name in names]):
      function.__dict__.setdefault("__click_params__", []).append(option)
    return function

  return add


@click.command(no_args_is_help=False)
@click.argument("prompts", nargs=-1)
@click.option("--prompts", "num_prompts", type=click.IntRange(1, len(PROMPTS)), help="Built-in prompts.  [default: 8]")
@click.option("--sweep", metavar="NAME=V1,V2,...", help="Walk one option over these values.")
@click.option("--tiny", is_flag=True, help="Enumerate every decode of a tiny random model instead.")
@click.option("--out", type=_PATH, help="Write every figure (.json).")
@click.option("--plot", type=_PATH, help="Draw total variation against tokens per call (.png).")
@_as_in_generate(*_FIELDS, "checkpoint", "samples", "batch", "no_cache")
def audit(**options: Any) -> None:
  """Decode PROMPTS, or built-in ones, and compare the law of every token with the target's.

  \b
  jaxspec audit --method lantern --num-neighbours 10 --sweep factor=1,1.5,2,3 --plot audit.png
  jaxspec audit --method gsd --group-size 8 --prompts 8 --out audit.json
  jaxspec audit --method scaled --factor 2 --tiny
  """
  files = _check_files(options)
  if options["prompts"] and options["num_prompts"] is not None:
    raise UserError("Must have either prompts or --prompts N, the number of built-in ones, not both")
  if options["method"] is not None:
    _check_method(options["method"])
  sweep = _read_sweep(options["sweep"])
  work = _enumerate if options["tiny"] else _measure

  from rich.console import Console

  console = Console(stderr=True)
  with console.status("Loading") as status:
    report = work(options, sweep, lambda text: status.update(text))
    for warning in report.warnings:
      click.echo(click.style("Warning:", fg="yellow") + f" {warning}", err=True)
    status.update("Writing")
    _write(report, files)

  from jaxspec.cli.audit_report import print_report

  print_report(Console(highlight=False), report, list(files.values()))


def _check_files(options: dict[str, Any]) -> dict[str, Path]:
  """The files to write, each checked to be writable."""
  files = {name: options[name] for name in ("out", "plot") if options[name] is not None}
  for name, path in files.items():
    check_writable(path, suffix=".json" if name == "out" else ".png")
  if "plot" in files:
    try:
      import matplotlib  # noqa: F401
    except ImportError as error:
      raise UserError("Must have matplotlib for --plot: pip install 'jaxspec-decoding[train]'") from error
  return files


def _check_method(method: str) -> None:
  if METHODS[method].drafter is None:
    raise UserError(f"Must have a method that drafts: {method} draws every token from the target's law itself")
  if METHODS[method].drafter == "compressed":
    raise UserError(f"Must have a method whose drafts come with logits, we instead got {method}; it is exact")
  if METHODS[method].drafter == "interval":
    raise UserError(f"Must have a method whose tokens are all judged: {method} keeps tokens that no rule sees")


def _read_sweep(text: str | None) -> tuple[str, list] | None:
  """Name and values of ``--sweep``; the values are read as the option of that name reads them."""
  if text is None:
    return None
  name, _, values = text.partition("=")
  name, values = name.strip().removeprefix("--").replace("-", "_"), [value.strip() for value in values.split(",")]
  if not name or not all(values):
    raise UserError(f"Must have --sweep NAME=V1,V2,..., we instead got {text!r}")
  swept = {option.name: option for option in audit.params if option.name in _FIELDS}.get(name)
  if swept is None or name in ("method", "draft", "seed", "dtype", "matmul_precision"):
    raise UserError(f"Must have an option of the method in --sweep, we instead got {name!r}")
  try:
    found = [swept.type.convert(value, swept, None) for value in values]
    if not name.startswith("tree"):  # how large a tree may be depends on the other settings
      for value in found:
        Settings(**{name: value})
  except click.BadParameter as error:
    raise UserError(f"Must have values of {swept.opts[0]} in --sweep, we instead got {text!r}: {error.message}") from error
  return name, found


def _walk(settings: Settings, sweep: tuple[str, list] | None, *, sampling: tuple[str, ...]) -> list[Settings]:
  """One `Settings` per row of the report.

  Raises:
    UserError: for a method that drafts nothing, or a sweep of an option that it does not read.
  """
  _check_method(settings.method)
  if sweep is None:
    return [settings]
  name, values = sweep
  if name not in (read := settings.parts.options + sampling):
    names = ", ".join(option.replace("_", "-") for option in read)
    raise UserError(f"Must have an option in --sweep that {settings.method} reads ({names}), we instead got {name!r}")
  return [dataclasses.replace(settings, **{name: value}) for value in values]


def _measure(options: dict[str, Any], sweep: tuple[str, list] | None, say: Callable[[str], None]):
  """Decodes pictures by the shared loop with a rule that reports the law of every token."""
  from jaxspec.cli import audit_report, compilation_cache, decoding, sources
  from jaxspec.metrics.audit import summarize_audit

  if not options["no_cache"]:
    compilation_cache.enable()
  prompts = list(options["prompts"]) or list(PROMPTS[: options["num_prompts"] or 8])
  chosen = {name: options[name] for name in _FIELDS}
  bundle = options["checkpoint"] or sources.default_bundle()
  source = interruptible(sources.from_bundle, bundle, prompts, chosen, compare=False)
  walk = _walk(source.settings, sweep, sampling=_SAMPLING)
  for settings in walk:  # whatever does not fit shows before the first decode
    check_lengths(settings, source.num_tokens)
    interruptible(source.assemble, settings, audit=True)
  rows = batch_rows(options["batch"], len(prompts) * options["samples"])
  batches = decoding.make_batches(source.condition, samples=options["samples"], seed=source.settings.seed, rows=rows)
  captions = [prompts[prompt] for prompt in batches.prompt]

  found = []
  for number, settings in enumerate(walk, 1):
    label = audit_report.label_of(settings, sweep and sweep[0])
    say(f"Decoding {len(captions)} pictures by {label} ({number} of {len(walk)})")
    outcome = decoding.decode_once(source, settings, batches, audit=True)
    figures = summarize_audit(outcome.metrics, outcome.counters.target_calls)
    found.append(audit_report.measured_row(label, settings, outcome, figures, captions))
  return audit_report.Report(source.name, source.settings, sweep and sweep[0], False, found, source.warnings)


def _enumerate(options: dict[str, Any], sweep: tuple[str, list] | None, say: Callable[[str], None]):
  """Follows every decode of a tiny random model."""
  import jax.numpy as jnp

  from jaxspec.cli import audit_report
  from jaxspec.decode.methods import make_rule
  from jaxspec.metrics import enumeration

  if options["prompts"] or any(options[name] is not None for name in ("num_prompts", "checkpoint", *_SAMPLING)):
    raise UserError("Prompts, --checkpoint, guidance, temperature, top-k and top-p go with a checkpoint, not with --tiny")
  base = Settings(**{name: options[name] for name in _FIELDS if options[name] is not None})
  walk = _walk(base, sweep, sampling=())
  pair = enumeration.tiny_pair(base.seed)
  found = []
  for number, settings in enumerate(walk, 1):
    label = audit_report.label_of(settings, sweep and sweep[0])
    say(f"Enumerating {label} ({number} of {len(walk)})")
    # A tiny vocabulary has few neighbours to ask for.
    fitting = dataclasses.replace(settings, num_neighbours=min(settings.num_neighbours, pair.vocab_size - 1))
    drafter = enumeration.enumerated_drafter(
      pair,
      settings.parts.drafter,
      gamma=settings.gamma,
      window=settings.window,
      recycle=settings.recycle,
      initial=settings.initial,
    )
    rule, tables = make_rule(settings.parts.rule, fitting, embedding=None, codebook=jnp.asarray(pair.codebook))
    outcome = interruptible(enumeration.enumerate_decode, pair.target, drafter, rule, tables)
    figures = enumeration.summarize_enumeration(outcome, pair.target)
    found.append(audit_report.enumerated_row(label, settings, figures))
  name = f"tiny model: {pair.num_tokens} tokens of {pair.vocab_size} codes"
  return audit_report.Report(name, base, sweep and sweep[0], True, found, [])


def _write(report, files: dict[str, Path]) -> None:
  from jaxspec.cli import audit_report
  from jaxspec.cli.report import as_json

  if "out" in files:
    text = as_json(audit_report.document(report))
    write_whole(files["out"], lambda path: path.write_text(text, encoding="utf-8"))
  if "plot" in files:
    write_whole(files["plot"], lambda path: audit_report.plot(report, path))
