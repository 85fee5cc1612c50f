"""``jaxspec calibrate``: finds the thresholds of a device for wanted rates of cloud calls, and stores them with it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import click

from jaxspec.cli.audit import PROMPTS
from jaxspec.cli.errors import UserError, check_writable, interruptible, reading, write_whole
from jaxspec.models.interval_features import INJECT

# On these the thresholds that were found on `PROMPTS` are tried.
HELD_OUT = (
  "green apple", "fluent pizza", "yellow heart", "noto strawberry", "watermelon on white background", "cherries",
  "white heart", "twemoji red heart", "banana", "bread on yellow background", "pink heart small", "carrot",
  "fluent hamburger", "pear", "brown heart on green background", "noto doughnut",
)  # fmt: skip

_PATH = click.Path(path_type=Path)


@click.command(no_args_is_help=False)
@click.argument("prompts", nargs=-1)
@click.option("--checkpoint", type=_PATH, help="Bundle of networks.  [default: the shipped one]")
@click.option("--draft", metavar="NAME", help="Device of the bundle.  [default: its first]")
@click.option("--rates", default="0.2,0.3,0.4", show_default=True, help="Wanted cloud calls per token.")
@click.option("--tolerance", type=click.FloatRange(0, 1), default=0.005, show_default=True,
              help="Good enough, in calls per token.")  # fmt: skip
@click.option("--gamma", type=int, help="Tokens drafted in a window.")
@click.option("--rho", type=float, help="Leading share of tokens that the cloud draws.")
@click.option("--inject", type=click.Choice(INJECT), help="Tokens that come with interval features.")
@click.option("--samples", type=click.IntRange(1), default=4, show_default=True, help="Pictures per prompt.")
@click.option("--batch", type=int, help="Pictures decoded together.  [default: all, up to 16]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 2), default=0, show_default=True)
@click.option("--held-out", multiple=True, metavar="PROMPT",
              help="Prompt that the thresholds are tried on; may be repeated.  [default: built-in ones]")  # fmt: skip
@click.option("--quantile", is_flag=True, help="Take quantiles of the scores as thresholds, without any search.")
@click.option("--dry-run", is_flag=True, help="Print the thresholds, store nothing.")
@click.option("--no-cache", is_flag=True, help="Do not keep compiled programs for the next time.")
def calibrate(**options: Any) -> None:
  """Decode PROMPTS (or built-in ones) at trial thresholds until cloud calls have the wanted rates.

  Every trial runs the whole decoder with the same keys; the rate is then measured on other prompts with other keys.

  \b
  jaxspec calibrate --draft inter-2 --rates 0.2,0.3,0.4 --samples 4
  """
  rates = _read_rates(options["rates"])

  from rich.console import Console

  console = Console(stderr=True)
  with console.status("Loading") as status:
    file, document, calibration = _work(options, rates, lambda text: status.update(text))
  for entry in calibration["thresholds"]:
    low, high = entry["interval"]
    spread = f"{low:.4f} to {high:.4f}" if math.isfinite(high) else "one picture has no interval"
    click.echo(
      f"cloud rate {entry['rate']:.3f}: tau {entry['tau']:.6g}, reached {entry['achieved']:.4f}, on other prompts "
      f"{entry['held_out']:.4f} ({spread})"
    )
  if options["dry_run"]:
    return
  from jaxspec.cli.report import finite

  document["meta"]["calibration"] = finite(calibration)  # of one picture the interval has no end
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


def _work(options: dict[str, Any], rates: list[float], report) -> tuple[Path, dict[str, Any], dict[str, Any]]:
  import dataclasses

  import jax
  import jax.numpy as jnp
  import numpy as np

  from jaxspec.checkpoints import CONFIG_FILE, read_config
  from jaxspec.cli import compilation_cache, decoding, settings, sources
  from jaxspec.decode.loop import speculate
  from jaxspec.intervals.scores import IntervalScore
  from jaxspec.metrics.calibration import Calibrated, find_threshold, prompts_hash, quantile_threshold
  from jaxspec.metrics.cloud_calls import cloud_calls

  if math.isnan(options["tolerance"]):
    raise UserError("Must have a number as --tolerance, we instead got nan")
  if not options["no_cache"]:
    compilation_cache.enable()
  chosen = {field.name: None for field in dataclasses.fields(settings.Settings)}
  chosen |= {name: options[name] for name in ("draft", "gamma", "rho", "inject", "seed")} | {"method": "ciar", "tau": 1.0}
  prompts = list(options["prompts"]) or list(PROMPTS)
  bundle = options["checkpoint"] or sources.default_bundle()
  held_out = list(options["held_out"]) or list(HELD_OUT)
  source = interruptible(sources.from_bundle, bundle, [*prompts, *held_out], chosen, compare=False)
  chosen = source.settings
  if not options["dry_run"]:
    check_writable(source.draft.path / CONFIG_FILE, suffix=".json")
  rows = settings.batch_rows(options["batch"], len(prompts) * options["samples"])

  def batches_of(part: slice, seed: int) -> decoding.Batches:
    condition = jax.tree.map(lambda leaf: leaf[part], source.condition)
    return decoding.make_batches(condition, samples=options["samples"], seed=seed, rows=rows)

  batches = [
    batches_of(slice(None, len(prompts)), chosen.seed), batches_of(slice(len(prompts), None), chosen.seed + 1)
  ]  # fmt: skip
  params, drafter, verifier = source.assemble(chosen)
  report("Compiling")

  @jax.jit
  def decode(params, key_data, condition):
    keys = jax.random.wrap_key_data(key_data)
    return speculate(params, keys, condition, drafter=drafter, verifier=verifier, max_len=source.num_tokens)

  def outcome(tau: float, part: int):
    at = params._replace(draft=params.draft._replace(gate=jnp.float32(tau)))
    pairs = zip(batches[part].key_data, batches[part].condition)
    with jax.default_matmul_precision(chosen.matmul_precision):
      parts = [jax.device_get(decode(at, key_data, condition)) for key_data, condition in pairs]
    num = len(batches[part].prompt)
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:num], *parts)

  # Everything from the cloud: the scores of every place, under the cloud's own contexts.
  scores = interruptible(outcome, 0.0, 0).report.scores
  thresholds = []
  for rate in rates:
    report(f"Searching the threshold of {rate:g} cloud calls per token")
    start = max(quantile_threshold(scores, rate), 1e-12)
    rate_of = lambda tau: cloud_calls(interruptible(outcome, tau, 0)).call_rate
    try:
      if options["quantile"]:
        found = Calibrated(start, rate_of(start), 1)
      else:
        found = find_threshold(rate_of, rate, start=start, tolerance=options["tolerance"])
    except ValueError as error:
      raise UserError(f"Cloud rate {rate:g}: {error}") from error
    fresh = cloud_calls(interruptible(outcome, found.tau, 1))
    thresholds.append(
      {"rate": rate, "tau": found.tau, "achieved": found.rate, "held_out": fresh.call_rate, "interval": fresh.interval}
    )
  folder = source.draft.path
  with reading(folder):
    document = read_config(folder)
  score = IntervalScore()
  calibration = {
    "score": score.uncertainty.form,
    "scaling": score.scaling,
    "gamma": chosen.gamma,
    "rho": chosen.rho,
    "verify": chosen.verify,
    "inject": chosen.inject,
    "cfg_scale": chosen.cfg_scale,
    "temperature": chosen.temperature,
    "pictures": len(batches[0].prompt),
    "prompts": prompts_hash(prompts),
    "held_out_prompts": prompts_hash(held_out),
    "policy": "quantile" if options["quantile"] else "search",
    "thresholds": thresholds,
  }
  return folder / CONFIG_FILE, document, calibration
