"""``jaxspec diagnose``: which decoding methods can speed up a target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxspec.cli.example_prompts import PROMPTS
from jaxspec.cli.guards import interruptible
from jaxspec.cli.options import NETWORKS, common, warn
from jaxspec.cli.outputs import check_report, report_console
from jaxspec.core.command_line import PATH, UserError
from jaxspec.io.whole_files import write_whole

if TYPE_CHECKING:
  from jaxspec.evaluation.diagnosis import Diagnosis
  from jaxspec.run.job import Job


@click.command(no_args_is_help=False)
@click.argument("prompts", nargs=-1)
@click.option(
  "--prompts", "num_prompts", type=click.IntRange(1, len(PROMPTS)), metavar="N", help="Built-in prompts.  [default: 8]"
)
@click.option("--out", type=PATH, metavar="FILE", help="Write every figure (.json).")
@click.option("--plot", type=PATH, metavar="FILE", help="Draw the largest probabilities of the tokens (.png).")
@common("classes", *NETWORKS, "samples", "seed", "batch", "dtype", "matmul_precision", "no_cache")
def diagnose(**options: Any) -> None:
  """Decode PROMPTS, classes or built-in prompts, and estimate which methods can speed up these networks.

  Prints how certain the target's tokens are, how much probability their nearest codes have, how many drafts of exact
  methods are accepted, and how wide the intervals of edge networks must be.

  \b
  jaxspec diagnose --checkpoint scenes --prompts 16 --plot certainty.png
  jaxspec diagnose --model my_target --tokenizer my_tokenizer --class 3
  """
  files = check_report(options)
  if (options["prompts"] or options["classes"]) and options["num_prompts"] is not None:
    raise UserError("Must have either prompts or --prompts N, the number of built-in ones, not both")

  from jaxspec.render.working import Working

  with Working("Loading") as working:
    job, found, num = _measure(options, working)
    warn(*job.warnings)
    working("Writing")
    _write(job, found, num, files)

  from jaxspec.cli.diagnose_table import print_diagnosis

  print_diagnosis(report_console(*files.values()), job, found, num, list(files.values()))


def _measure(options: dict[str, Any], working) -> tuple[Job, Diagnosis, int]:
  """The job, its figures, and the number of decoded rows."""
  from jaxspec.cli.prompts import example_job
  from jaxspec.evaluation.diagnosis import diagnose as measure
  from jaxspec.methods import Plain
  from jaxspec.run.batches import batch_rows
  from jaxspec.run.decode_options import DecodeOptions

  job, _ = example_job(options, DecodeOptions(Plain.name, None, {}))
  num = len(job.captions) * options["samples"]
  rows = batch_rows(options["batch"], num)
  return job, interruptible(measure, job, rows, samples=options["samples"], progress=working), num


def document(job: Job, found: Diagnosis, num: int) -> dict[str, Any]:
  """Every figure; JSON."""
  import numpy as np

  tokens = found.tokens
  spread = lambda values: {f"{q:g}": float(np.quantile(values, q)) for q in (0.05, 0.25, 0.5, 0.75, 0.95)}
  return {
    "source": job.pipeline.name,
    "settings": job.settings(),
    "prompts": job.captions,
    f"{job.noun}s": num,
    "tokens": len(tokens.largest),
    "vocab_size": found.vocab_size,
    "largest_probability": {
      "mean": float(tokens.largest.mean()), "above_0.95": found.certain, "below_0.2": found.flat,
      "quantiles": spread(tokens.largest),
    },
    "entropy_nats": {"mean": float(tokens.entropy.mean()), "quantiles": spread(tokens.entropy)},
    "probability_of_drawn": float(tokens.own.mean()),
    "probability_of_nearest_codes": float(tokens.near.mean()),
    "exact": [
      draft._asdict() | {name: getattr(draft, name)._asdict() for name in ("tokens_per_call", "accepted")}
      for draft in found.exact
    ],
    "intervals": [edge._asdict() for edge in found.intervals],
    "advice": found.advice(),
  }  # fmt: skip


def _write(job: Job, found: Diagnosis, num: int, files: dict[str, Path]) -> None:
  from jaxspec.run.json_values import as_json

  if "out" in files:
    text = as_json(document(job, found, num))
    write_whole(files["out"], lambda path: path.write_text(text, encoding="utf-8"))
  if "plot" in files:
    from jaxspec.cli.diagnose_plot import plot

    write_whole(files["plot"], lambda path: plot(job, found, path))
