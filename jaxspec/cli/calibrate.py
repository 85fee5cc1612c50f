"""``jaxspec calibrate``: finds thresholds of method ``ciar`` for target rates of cloud calls."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from jaxspec.cli.guards import interruptible, reading
from jaxspec.cli.method_options import options_for
from jaxspec.cli.options import NETWORKS, NumberRange, common
from jaxspec.cli.outputs import check_writable
from jaxspec.core.command_line import PATH, UserError
from jaxspec.core.options import MAX_SEED
from jaxspec.io.whole_files import write_whole
from jaxspec.methods import Ciar
from jaxspec.run.decode_options import DecodeOptions

# Options of the method that affect the threshold.
_OPTIONS = ("gamma", "target_prefix", "inject")


@click.command(no_args_is_help=False)
@click.argument("prompts", nargs=-1)
@click.option("--rates", metavar="R1,R2,...", default="0.2,0.3,0.4", show_default=True, help="Target cloud calls per token.")
@click.option("--tolerance", type=NumberRange(0, 1), default=0.005, show_default=True, metavar="X",
              help="Largest distance from a target rate, in calls per token.")  # fmt: skip
@options_for(Ciar, *_OPTIONS)
@click.option("--samples", type=click.IntRange(1), default=4, show_default=True, metavar="N", help="Images per prompt.")
@click.option("--seed", type=click.IntRange(0, MAX_SEED - 1), default=0, show_default=True, metavar="N",
              help="Seed of the search; the next one is that of the other prompts.")  # fmt: skip
@click.option("--prompt-file", type=PATH, metavar="FILE", help="Text file with one prompt per line.")
@click.option("--held-out", multiple=True, metavar="PROMPT",
              help="Prompt or class for validation; repeat.  [default: built-in ones]")  # fmt: skip
@click.option("--held-out-file", type=PATH, metavar="FILE", help="Text file with one such prompt per line.")
@click.option("--quantile", is_flag=True, help="Take quantiles of the scores as thresholds, without any search.")
@click.option("--journal", type=PATH, metavar="FILE", help="Journal of the trials; a second start resumes from it.")
@click.option("--dry-run", is_flag=True, help="Print the thresholds, store nothing.")
@common("classes", *NETWORKS, "draft", "batch", "dtype", "matmul_precision", "no_cache")
def calibrate(**options: Any) -> None:
  """Decode PROMPTS, classes or built-in prompts at trial thresholds until cloud calls have the target rates.

  Every trial runs the whole decoder with the same keys; the rate is then measured on other prompts with other keys. Rates
  differ from image to image: thresholds that hold within half a point take a thousand prompts.

  \b
  jaxspec calibrate --model my_bundle --draft inter-2 --gamma 1 --rates 0.2,0.3,0.4
  jaxspec calibrate --prompt-file captions.txt --journal trials.journal
  """
  rates = _read_rates(options["rates"])

  from jaxspec.render.working import Working

  with contextlib.ExitStack() as stack:
    working = stack.enter_context(Working("Loading"))
    file, document, calibration = _work(options, rates, working, stack)
  from jaxspec.statistics import FEWEST_CLUSTERS

  few = f"fewer than {FEWEST_CLUSTERS} images have no interval"
  for entry in calibration["thresholds"]:
    spread = "{:.4f} to {:.4f}".format(*entry["interval"]) if entry["interval"] else few
    click.echo(
      f"cloud rate {entry['rate']:.3f}: tau {entry['tau']:.6g}, reached {entry['achieved']:.4f}, on other prompts "
      f"{entry['held_out']:.4f} ({spread})"
    )
  if options["dry_run"]:
    return
  document["meta"]["calibration"] = calibration
  text = json.dumps(document, indent=2, allow_nan=False) + "\n"
  write_whole(file, lambda path: path.write_text(text, encoding="utf-8"))
  click.echo(f"wrote {file}")


def _read_rates(text: str) -> list[float]:
  try:
    rates = [float(value) for value in text.split(",")]
  except ValueError:
    raise UserError(f"Must have --rates R1,R2,..., we instead got {text!r}") from None
  if not all(0 < rate < 1 for rate in rates):
    raise UserError(f"Must have --rates between 0 and 1, we instead got {text!r}")
  return sorted(rates)


def _work(
  options: dict[str, Any], rates: list[float], working, stack: contextlib.ExitStack
) -> tuple[Path, dict[str, Any], dict[str, Any]]:
  """The config file of the draft, what it holds, and the calibration."""
  from jaxspec.cli import compilation_cache, prompts
  from jaxspec.cli.job import make_job
  from jaxspec.cli.networks import load_sources, sources_of
  from jaxspec.evaluation.calibration import FIRST_TAU, Search, calibrate
  from jaxspec.io.checkpoints import CONFIG_FILE, read_config
  from jaxspec.io.shipped import is_installed
  from jaxspec.run.batches import batch_rows
  from jaxspec.run.job import draft_name
  from jaxspec.serving.edge.journal import Journal

  networks, request = sources_of(options), prompts.read(options)
  other = prompts.read({"prompts": options["held_out"], "prompt_file": options["held_out_file"]})
  given = {name: options[name] for name in _OPTIONS if options[name] is not None}
  decoding = DecodeOptions(Ciar.name, options["draft"], given | {"tau": FIRST_TAU})
  decoding.check()
  if rates[0] <= (prefix := options["target_prefix"] or 0.0):
    raise UserError(f"Must have --rates above --target-prefix, {prefix:g}, we instead got {rates[0]:g}")
  if not options["no_cache"]:
    compilation_cache.enable()
  default = None if request is None else request.checkpoint(decoding.method)
  pipeline = load_sources(networks, default, dtype=options["dtype"], matmul_precision=options["matmul_precision"])
  if not Ciar.fits((space := pipeline.family.space).kind):
    raise UserError(f"Must have networks of discrete tokens to calibrate, {pipeline.name} draws {space.noun}")
  request = request or prompts.examples(pipeline.family, 16, part=0, parts=2)
  other = other or prompts.examples(pipeline.family, 16, part=1, parts=2)
  # Batches of the search; too many prompts of either kind are an error.
  rows, _ = (batch_rows(options["batch"], len(of.prompts) * options["samples"]) for of in (request, other))
  job = make_job(pipeline, decoding, prompts.encode(pipeline, request, other), seed=options["seed"])
  draft = draft_name(job.method)
  assert draft is not None  # as `Ciar` has
  folder = pipeline.drafts.loaded(draft).folder
  if not options["dry_run"]:
    if is_installed(folder):
      raise UserError(f"Must have --dry-run, or --model DIR with a copy of {folder.parent}, a part of the installed package")
    check_writable(folder / CONFIG_FILE, suffix=".json")
  first, second = job.part(slice(len(request.prompts))), job.part(slice(len(request.prompts), None))
  second = dataclasses.replace(second, seed=options["seed"] + 1)  # other keys, too
  journal = None if options["journal"] is None else stack.enter_context(Journal(options["journal"]))
  search = Search(rates, options["tolerance"], options["quantile"], options["samples"], rows)
  calibration = interruptible(calibrate, first, second, search, journal=journal, progress=working)
  with reading(folder):
    return folder / CONFIG_FILE, read_config(folder), calibration
