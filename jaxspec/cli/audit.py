"""``jaxspec audit``: the exact distribution of every committed token against the target's, and the saved calls."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from jaxspec.cli.example_prompts import PROMPTS
from jaxspec.cli.guards import interruptible
from jaxspec.cli.option_help import MethodCommand
from jaxspec.cli.options import NETWORKS, common, unread, warn
from jaxspec.cli.outputs import check_report, report_console
from jaxspec.core.command_line import PATH, UserError
from jaxspec.io.whole_files import write_whole

if TYPE_CHECKING:
  from jaxspec.render.working import Working


class Sweep(NamedTuple):
  """One option, and its values in the sweep."""

  name: str
  values: list[Any]


@click.command(cls=MethodCommand, no_args_is_help=False)
@click.argument("prompts", nargs=-1)
@click.option(
  "--prompts", "num_prompts", type=click.IntRange(1, len(PROMPTS)), metavar="N", help="Built-in prompts.  [default: 8]"
)
@click.option("--sweep", metavar="NAME=V1,V2,...", help="Sweep one option of the method or the sampling over these values.")
@click.option("--tiny", is_flag=True, help="Enumerate every decode of a tiny random model instead.")
@click.option("--out", type=PATH, metavar="FILE", help="Write every figure (.json).")
@click.option("--plot", type=PATH, metavar="FILE", help="Draw total variation against tokens per call (.png).")
@common("classes", *NETWORKS, "method", "draft", "samples", "seed", "batch", "dtype", "matmul_precision", "no_cache")
def audit(**options: Any) -> None:
  """Decode PROMPTS, classes or built-in prompts, and compare the distribution of every token with the target's.

  \b
  jaxspec audit --method lantern --sweep factor=1,1.5,2,3 --plot audit.png
  jaxspec audit --method gsd --group-size 8 --prompts 8 --out audit.json
  jaxspec audit --method scaled --factor 2 --tiny
  """
  from jaxspec.run.decode_options import DecodeOptions

  files = check_report(options)
  if (options["prompts"] or options["classes"]) and options["num_prompts"] is not None:
    raise UserError("Must have either prompts or --prompts N, the number of built-in ones, not both")
  decoding = DecodeOptions.of(options)
  decoding.check()
  sweep = read_sweep(options["sweep"])
  work = _enumerate if options["tiny"] else _measure

  from jaxspec.render.working import Working

  with Working("Loading") as working:
    report = work(options, decoding, sweep, working)
    warn(*report.warnings)
    working("Writing")
    _write(report, files)

  from jaxspec.cli.audit_table import print_report

  print_report(report_console(*files.values()), report, list(files.values()))


def read_sweep(text: str | None) -> Sweep | None:
  """Name and values of ``--sweep``; the values are read like those of the option.

  Raises:
    UserError: for an undeclared name, or a value that no declaration allows.
  """
  from jaxspec.cli import method_options
  from jaxspec.run.decode_options import check_one_of, declarations, flag

  if text is None:
    return None
  name, _, values = text.partition("=")
  name, values = name.strip().removeprefix("--").replace("-", "_"), [value.strip() for value in values.split(",")]
  if not name or not all(values):
    raise UserError(f"Must have --sweep NAME=V1,V2,..., we instead got {text!r}")
  options = declarations().get(name)
  if options is None:
    raise UserError(f"Must have an option of a method or of the sampling in --sweep, we instead got {name!r}")
  kind = method_options.value_type(options)
  try:
    found = [kind.convert(value, None, None) for value in values]
    for value in found:
      check_one_of(options, value)
  except (click.BadParameter, ValueError) as error:
    reason = error.message if isinstance(error, click.BadParameter) else str(error)
    raise UserError(f"Must have values of {flag(name)} in --sweep, we instead got {text!r}: {reason}") from error
  return Sweep(name, found)


def walk(method: Any, sampling: Any, sweep: Sweep | None) -> list[tuple[Any, Any]]:
  """A method and sampling settings for every row of the report; ``sampling`` may be None.

  Raises:
    UserError: for a method without drafts, or a sweep of an undeclared option.
  """
  from jaxspec.core.options import options_of, suggestion
  from jaxspec.run.decode_options import fitting, flag

  if method.is_exact and not method.drafts_per_round():
    why = f"{method.name} draws every token from the target's distribution itself"
    raise UserError(f"Must have a method that drafts or is not exact: {why}")
  if sweep is None:
    return [(method, sampling)]
  of_method, of_sampling = options_of(type(method)), {} if sampling is None else options_of(type(sampling))
  if (option := of_method.get(sweep.name)) is not None:
    return [(dataclasses.replace(method, **{sweep.name: fitting(option, value)}), sampling) for value in sweep.values]
  if sampling is not None and (option := of_sampling.get(sweep.name)) is not None:
    return [(method, dataclasses.replace(sampling, **{sweep.name: fitting(option, value)})) for value in sweep.values]
  hint = suggestion(sweep.name, [*of_method, *of_sampling])
  names = ", ".join(flag(name).removeprefix("--") for name in (*of_method, *of_sampling))
  raise UserError(f"Must have an option in --sweep that {method.name} reads ({names}), we instead got {sweep.name!r}{hint}")


def _measure(options: dict[str, Any], decoding, sweep: Sweep | None, say: Working):
  """Decodes rows by the shared loop with a rule that reports the distribution of every token."""
  from jaxspec.cli import audit_report
  from jaxspec.cli.networks import unread_draft
  from jaxspec.cli.prompts import example_job
  from jaxspec.cli.summary import method_parts, rows_in_words, sampling_parts
  from jaxspec.evaluation.audit import summarize_audit
  from jaxspec.run.batches import batch_rows
  from jaxspec.run.run import run

  job, networks = example_job(options, decoding)
  job.warnings.extend(unread_draft(networks, job.method))
  settings = walk(job.method, job.sampling, sweep)
  # Errors are raised before the first decode.
  jobs = interruptible(lambda: [job.but(method, sampling=sampling, audit=True) for method, sampling in settings])
  rows = batch_rows(options["batch"], len(job.captions) * options["samples"])
  batches = job.batches(rows, samples=options["samples"])
  captions = [job.captions[prompt] for prompt in batches.prompt]

  grid, found = job.pipeline.family.space.grid, []
  say("Decoding")
  for number, row in enumerate(jobs):
    label = audit_report.label_of(row.method, sweep and sweep.name, sweep and sweep.values[number])
    say.step(number, len(jobs), "setting", f"Decoding {len(captions)} {job.noun}{'s' * (len(captions) != 1)} by {label}")
    outcome = interruptible(run, row, batches).result
    calls = outcome.counters.target_calls
    figures = summarize_audit(outcome.metrics, outcome.lengths, calls, prompts=batches.prompt)
    found.append(audit_report.measured_row(label, row.settings(), outcome, figures, captions, job.noun, grid))
  about = [rows_in_words(job, len(captions)), *method_parts(job.method)[1:]]
  about += [*sampling_parts(job.sampling), f"seed {job.seed}"]
  swept = sweep and sweep.name
  return audit_report.Report(job.pipeline.name, jobs[0].method, about, swept, False, found, job.warnings, job.noun)


def _enumerate(options: dict[str, Any], decoding, sweep: Sweep | None, say: Working):
  """Follows every decode of a tiny random model."""
  from jaxspec.cli import audit_report
  from jaxspec.core.options import options_of
  from jaxspec.core.token_kinds import DISCRETE
  from jaxspec.methods import Speculative, get_method
  from jaxspec.sampling import SAMPLING_TYPES
  from jaxspec.testing import enumeration

  cls = get_method(decoding.method or Speculative.name)
  of_sampling = {name for settings in SAMPLING_TYPES.values() for name in options_of(settings)} - options_of(cls).keys()
  of_networks = any(options[name] for name in ("prompts", "classes", "num_prompts", *NETWORKS))
  if of_networks or of_sampling & decoding.options.keys():
    raise UserError("Prompts, networks, guidance, temperature, top-k and top-p go with a checkpoint, not with --tiny")
  rows = [method for method, _ in walk(cls(**decoding.for_method(cls)), None, sweep)]
  seed = options["seed"]
  pair = enumeration.tiny_pair(seed)
  found = []
  say("Enumerating")
  for number, method in enumerate(rows):
    label = audit_report.label_of(method, sweep and sweep.name, sweep and sweep.values[number])
    say.step(number, len(rows), "setting", f"Enumerating {label}")
    outcome = interruptible(_enumerated, pair, method)
    figures = enumeration.summarize_enumeration(outcome, pair.target)
    settings = {"method": method.name, "options": method.options(), "seed": seed}
    found.append(audit_report.Row(label, settings, figures, {}))
  name = f"tiny model: {pair.num_tokens} tokens of {pair.vocab_size} codes"
  about = ["a random model, every decode followed", f"seed {seed}"]
  warnings = decoding.unread(cls, SAMPLING_TYPES[DISCRETE])
  warnings += unread("with --tiny", "samples", "batch", "dtype", "matmul_precision")
  return audit_report.Report(name, rows[0], about, sweep and sweep.name, True, found, warnings)


def _enumerated(pair, method):
  """Every decode of a method on a tiny pair.

  Raises:
    ValueError: for a method without enumeration.
  """
  import jax.numpy as jnp

  from jaxspec.core.token_space import TokenSpace
  from jaxspec.methods.auto_length import AUTO
  from jaxspec.methods.method import SAME_FAMILY, BuildContext
  from jaxspec.methods.sjd import JacobiMethod
  from jaxspec.methods.speculative import ChainMethod
  from jaxspec.rules.chain_rule import ChainRule
  from jaxspec.sampling import SamplingConfig
  from jaxspec.testing import enumeration

  options = method.options()
  if AUTO in (options.get("gamma"), options.get("window")):
    raise ValueError(f"Must have drafts of one length to enumerate a decode, we instead got {AUTO}")
  if not options.get("bonus", True):
    raise ValueError("Must have a bonus token to enumerate a decode, we instead got none")
  if "num_neighbours" in options:  # a tiny vocabulary has few neighbours
    method = dataclasses.replace(method, num_neighbours=min(options["num_neighbours"], pair.vocab_size - 1))
  family = method.name
  if isinstance(method, JacobiMethod):
    family = "jacobi"
  elif isinstance(method, ChainMethod) and method.draft_family == SAME_FAMILY:
    family = "chain"
  drafter = enumeration.enumerated_drafter(
    pair,
    family,
    gamma=options.get("gamma", 0),
    window=options.get("window", 0),
    recycle=options.get("recycle", ""),
    initial=method.initial_source(None) if isinstance(method, JacobiMethod) else "",  # the vocabulary has no grid
  )
  space = TokenSpace(vocab_size=pair.vocab_size, codebook=lambda: jnp.asarray(pair.codebook))
  rule, tables = method.rule(BuildContext(SamplingConfig(), space))
  if not isinstance(rule, ChainRule):
    raise ValueError(f"Must have a ChainRule to enumerate a decode, we instead got {type(rule).__name__}")
  return enumeration.enumerate_decode(pair.target, drafter, rule, tables)


def _write(report, files: dict[str, Path]) -> None:
  from jaxspec.cli.audit_report import document
  from jaxspec.run.json_values import as_json

  if "out" in files:
    text = as_json(document(report))
    write_whole(files["out"], lambda path: path.write_text(text, encoding="utf-8"))
  if "plot" in files:
    from jaxspec.cli.audit_plot import plot

    write_whole(files["plot"], lambda path: plot(report, path))
