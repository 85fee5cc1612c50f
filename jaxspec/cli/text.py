"""``jaxspec generate --text``: continues texts and reports how they were decoded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from jaxspec.cli.errors import UserError, check_writable, interruptible, write_whole
from jaxspec.decode.compression import CompressionOptions

DEFAULT_MAX_TOKENS = 64

# Everything else is about pictures.
_OPTIONS = frozenset(
  "texts max_tokens model draft_model method gamma window recycle top_k top_p temperature samples seed batch dtype "
  "matmul_precision compare repeats json_file no_cache wire".split()
) | frozenset(CompressionOptions.names())


def run(options: dict[str, Any], given: list[str]) -> None:
  """Continues ``options["texts"]``.

  Args:
    options: those of ``jaxspec generate``.
    given: names of the options that the user gave.
  """
  _check_options(options, given)
  file: Path | None = options["json_file"]
  if file is not None:
    check_writable(file, suffix=".json")

  from rich.console import Console

  console = Console(stderr=True)
  with console.status("Loading") as status:
    runs, source, batches = _work(options, lambda text: status.update(text))
    for warning in source.warnings:
      click.echo(click.style("Warning:", fg="yellow") + f" {warning}", err=True)

  from jaxspec.cli import report, text_report

  if file is not None:
    document = text_report.document(source, batches, runs)
    text = report.as_json(document)
    write_whole(file, lambda path: path.write_text(text, encoding="utf-8"))
  text_report.print_summary(Console(highlight=False), source, batches, runs, file)


def _check_options(options: dict[str, Any], given: list[str]) -> None:
  """Finds contradictions before anything is loaded."""
  if options["prompts"]:
    raise UserError(f"Must have either --text or prompts of pictures, we instead got both ({options['prompts'][0]!r})")
  flags = {param.name: param.opts[0] for param in click.get_current_context().command.params}
  if refused := [flags[name] for name in given if name not in _OPTIONS]:
    raise UserError(f"{refused[0]} is about pictures and does not go with --text")
  if options["model"] is None and options["draft_model"] is not None:
    raise UserError("--draft-model goes with --model DIR, the language model that it drafts for")


def _work(options: dict[str, Any], report):
  """Loads, compiles and decodes."""
  from jaxspec.cli import compilation_cache, decoding, settings, text_source, wire

  if not options["no_cache"]:
    compilation_cache.enable()
  chosen = {field.name: options[field.name] for field in dataclasses.fields(settings.Settings)}
  model, draft_model = options["model"], options["draft_model"]
  if model is None:
    model, draft_model = text_source.shipped_pair()
  if options["wire"]:
    chosen = wire.prefer_float32(chosen)
  source = interruptible(
    text_source.from_checkpoints,
    model,
    draft_model,
    list(options["texts"]),
    chosen,
    max_tokens=options["max_tokens"] or DEFAULT_MAX_TOKENS,
    compare=options["compare"],
  )
  if options["wire"]:
    wire.check_wire(source.settings)
  rows = settings.batch_rows(options["batch"], len(source.captions) * options["samples"])
  batches = decoding.make_batches(source.condition, samples=options["samples"], seed=source.settings.seed, rows=rows)
  methods = [source.settings.method] + (["ar"] if options["compare"] else [])
  repeats = options["repeats"] if options["compare"] else 0
  decoded = decoding.decode_methods(source, source.settings, batches, methods=methods, repeats=repeats, report=report)
  runs = [run for run, _ in decoded]
  if options["wire"]:
    report("Decoding through messages")
    wire.add_traffic(source, source.settings, batches, runs[0])
  return runs, source, batches
