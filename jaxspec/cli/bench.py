"""``jaxspec bench``: the cost of decoding on this machine, as pairwise ratios in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxspec.cli.guards import interruptible
from jaxspec.cli.method_options import IntOrWord
from jaxspec.cli.options import NETWORKS, common
from jaxspec.cli.outputs import check_writable
from jaxspec.core.command_line import PATH, UserError
from jaxspec.io.whole_files import write_whole

if TYPE_CHECKING:
  from jaxspec.render.working import Working

BATCHES = (1, 8, 32)


@click.command()
@click.argument("prompts", nargs=-1)
@click.option("--gamma", "gammas", multiple=True, type=IntOrWord(("auto",)), metavar="N",
              help="Draft length, or auto; repeat for several.")  # fmt: skip
@click.option("--batch", "batches", multiple=True, type=int, metavar="N",
              help="Rows; repeat for several.  [default: 1, 8, 32]")  # fmt: skip
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1, 1000), metavar="N", help="Timed runs.")
@click.option(
  "--out", type=PATH, metavar="FOLDER", help="Folder for bench.json and bench.md, written after each measurement."
)
@common("classes", *NETWORKS, "draft", "seed", "dtype", "matmul_precision")
def bench(**options: Any) -> None:
  """Measure plain and speculative decoding of PROMPTS, classes or built-in prompts, and the cost of scoring k tokens."""
  from jaxspec.cli.bench_table import render
  from jaxspec.render.working import Working

  _check_options(options)
  with Working("Loading") as working:
    report = interruptible(_bench, options, working)
  click.echo(render(report))


def _check_options(options: dict[str, Any]) -> None:
  """Checks all options before the measurement."""
  from jaxspec.run.batches import check_batch

  for rows in options["batches"]:
    check_batch(rows)
  if wrong := [gamma for gamma in options["gammas"] if gamma != "auto" and gamma < 1]:
    raise UserError(f"Must have gamma of at least 1, we instead got {wrong[0]}")
  if (out := options["out"]) is not None:
    try:
      out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      raise UserError(f"Cannot write to {out}: {error.strerror}, choose another --out") from error
    for name in ("bench.json", "bench.md"):
      check_writable(out / name, suffix=Path(name).suffix)


def _bench(options: dict[str, Any], working: Working) -> dict[str, Any]:
  from jaxspec.cli import prompts
  from jaxspec.cli.networks import load_sources, sources_of
  from jaxspec.methods import Plain
  from jaxspec.run import chain_bench

  networks, request = sources_of(options), prompts.read(options)
  default = None if request is None else request.checkpoint(None)
  pipeline = load_sources(networks, default, dtype=options["dtype"], matmul_precision=options["matmul_precision"])
  encoded = prompts.encode(pipeline, request or prompts.examples(pipeline.family, chain_bench.NUM_PROMPTS))
  draft, method = chain_bench.chain_of(pipeline, options["draft"])
  methods = [pipeline.method(method, draft=draft, gamma=gamma) for gamma in options["gammas"]]
  methods = methods or [pipeline.method(method, draft=draft)]
  sampling = pipeline.sampling()
  # What does not fit shows before anything is measured. No end token ends a row: both sides draw equally many tokens.
  job = lambda method: pipeline.job(encoded, method=method, sampling=sampling, seed=options["seed"], ends=False)
  jobs, batches = [job(made) for made in methods], options["batches"] or BATCHES
  report = {}
  for report in chain_bench.reports(jobs, jobs[0].but(Plain()), batches, options["repeats"], progress=working):
    if options["out"] is not None:
      _write(report, options["out"])
  return report


def _write(report: dict[str, Any], out: Path) -> None:
  from jaxspec.cli.bench_table import render
  from jaxspec.run.json_values import as_json

  for name, text in (("bench.json", as_json(report)), ("bench.md", render(report) + "\n")):
    write_whole(out / name, lambda path, text=text: path.write_text(text, encoding="utf-8"))
