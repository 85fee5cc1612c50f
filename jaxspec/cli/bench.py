"""``jaxspec bench``: what decoding costs on this machine, as ratios taken pairwise in one process."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from pathlib import Path

import click

from jaxspec.cli.errors import UserError, check_writable, interruptible, reading, write_whole
from jaxspec.cli.settings import MAX_BATCH, Settings, resolve

# How the drafts of a family are measured: as sampled chains.
_METHODS = {"llamagen": "speculative", "eagle": "eagle-chain"}

PROMPTS = ("red apple", "sleeping cat", "noto pizza on blue background", "fluent grinning face small")


@click.command()
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Bundle; the shipped one by default.")
@click.option("--draft", help="Name of the draft; the bundle's own choice by default.")
@click.option("--gamma", "gammas", multiple=True, type=int, help="Draft length; repeat for several.")
@click.option("--batch", "batches", multiple=True, type=int, help="Rows; repeat for several (default 1, 8, 32).")
@click.option("--repeats", default=5, show_default=True, type=click.IntRange(1, 1000), help="Counted repeats.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**31))
@click.option("--dtype", default="float32", type=click.Choice(["float32", "bfloat16"]), show_default=True)
@click.option("--matmul-precision", type=click.Choice(["float32", "bfloat16"]), help="As in generate.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for bench.json and bench.md.")
def bench(matmul_precision, dtype, **options):
  """Measure plain and speculative decoding, the loop's efficiency, and the cost of scoring k tokens."""
  from jaxspec.models import precision

  matmul_precision = matmul_precision or precision.preferred(dtype)
  _check_options(options)

  def work():
    import jax

    with jax.default_matmul_precision(matmul_precision):  # holds for one thread
      return _bench(matmul_precision=matmul_precision, dtype=dtype, **options)

  report = interruptible(work)
  table = render(report)
  click.echo(table)
  if (out := options["out"]) is not None:
    from jaxspec.cli.report import as_json

    write_whole(out / "bench.json", lambda path: path.write_text(as_json(report), encoding="utf-8"))
    write_whole(out / "bench.md", lambda path: path.write_text(table + "\n", encoding="utf-8"))


def _check_options(options) -> None:
  """Finds whatever would spoil an hour of measuring, before it begins."""
  if wrong := [rows for rows in options["batches"] if not 1 <= rows <= MAX_BATCH]:
    raise UserError(f"Must have a batch from 1 to {MAX_BATCH}, we instead got {wrong[0]}")
  if wrong := [gamma for gamma in options["gammas"] if gamma < 1]:
    raise UserError(f"Must have gamma of at least 1, we instead got {wrong[0]}")
  if (out := options["out"]) is not None:
    try:
      out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
      raise UserError(f"Cannot write to {out}: {error.strerror}, choose another --out") from error
    for name in ("bench.json", "bench.md"):
      check_writable(out / name, suffix=Path(name).suffix)


def _load(checkpoint, draft, dtype):
  """The bundle with the drafts that can be measured, and the name of the one that is."""
  from jaxspec.bundle import load_bundle

  with reading(checkpoint):
    bundle = load_bundle(checkpoint, dtype=dtype, drafts=None if draft is None else [draft])
    # What a bundle leaves out are the settings of `jaxspec generate`.
    known = {field.name: field.default for field in dataclasses.fields(Settings)}
    resolve({}, bundle.defaults)
  drafts = {name: part for name, part in bundle.drafts.items() if part.family in _METHODS}
  if not drafts:
    found = "has none" if draft is None else f"has a {bundle.drafts[draft].family} as {draft}"
    raise UserError(f"Must have a draft of the family {' or '.join(_METHODS)} to measure, {bundle.path} {found}")
  bundle = dataclasses.replace(bundle, drafts=drafts, defaults=known | bundle.defaults)
  name = draft or bundle.defaults["draft"]
  return bundle, name if name in drafts else next(iter(drafts))


def _bench(checkpoint, draft, gammas, batches, repeats, seed, dtype, matmul_precision, out):
  import jax

  from jaxspec.cli.sources import default_bundle

  del out
  bundle, name = _load(Path(checkpoint or default_bundle()), draft, dtype)
  gammas = gammas or (bundle.defaults["gamma"],)
  if (longest := max(gammas)) >= (num_tokens := bundle.target.config.num_tokens):
    raise UserError(f"Must have gamma below the {num_tokens} tokens of a picture, we instead got {longest}")
  report = {
    "machine": {"cpus": os.cpu_count(), "processor": platform.processor() or platform.machine()},
    "device": jax.devices()[0].device_kind,
    "versions": {"jax": jax.__version__, "python": platform.python_version()},
    "dtype": dtype,
    "matmul_precision": matmul_precision,
    "draft": name,
    "method": _METHODS[bundle.drafts[name].family],
    "seed": seed,
    "repeats": repeats,
    "settings": {k: bundle.defaults[k] for k in ("cfg_scale", "top_k", "top_p", "temperature")},
    "scoring": _scoring(bundle, repeats),
    "decoding": [],
  }
  for rows in batches or (1, 8, 32):
    for gamma in gammas:
      click.echo(f"batch {rows}, gamma {gamma} ...", err=True)
      report["decoding"].append(_decoding(bundle, name, rows, gamma, repeats, seed))
  return report


def _settings(bundle, **overrides):
  keys = ("cfg_scale", "top_k", "top_p", "temperature")
  return {k: bundle.defaults[k] for k in keys} | overrides


def _scoring(bundle, repeats: int) -> dict:
  """Milliseconds of a guided pass over k tokens of one picture, and its ratio to one token."""
  import jax

  from jaxspec.decode import measure
  from jaxspec.decode.assemble import assemble

  def calls(checkpoint, guided, blocks):
    settings = _settings(bundle) if guided else _settings(bundle, cfg_scale=1.0)
    params, _, _ = assemble(checkpoint.fns, checkpoint.params, method="ar", **settings)
    fns = checkpoint.fns
    if settings["cfg_scale"] > 1:
      from jaxspec.models.guidance import guided as guide

      fns = guide(checkpoint.fns)
    condition = bundle.caption([PROMPTS[0]])
    table = {}
    for block in blocks:
      run = jax.jit(
        lambda p, c, block=block: measure.score_block(
          fns, p, c, block=block, repeats=_INNER, max_len=checkpoint.config.num_tokens
        )
      )
      table[block] = lambda run=run: run(params.target.model, condition)
    return table

  target = calls(bundle.target, True, (1, 2, 4, 8, 16))
  seconds = measure.alternate({str(k): call for k, call in target.items()}, repeats)
  result = {
    "target_ms": {k: 1e3 * measure.Timing.of(v).median / _INNER for k, v in seconds.items()},
    "target_ratio": {k: measure.pairwise_ratio(v, seconds["1"])._asdict() for k, v in seconds.items()},
    "draft_ratio": {},
  }
  for name, draft in bundle.drafts.items():
    if draft.family != "llamagen":  # reads features, not tokens: its cost is that of a round
      continue
    guided = draft.meta.get("guided", True)
    pair = {"target": target[1], "draft": calls(draft, guided, (1,))[1]}
    seconds = measure.alternate(pair, repeats)
    result["draft_ratio"][name] = measure.pairwise_ratio(seconds["draft"], seconds["target"])._asdict()
  return result


# Forward passes (or rounds) inside one timed program, so that its dispatch does not count.
_INNER = 32


def _decoding(bundle, draft_name: str, rows: int, gamma: int, repeats: int, seed: int) -> dict:
  import jax

  import jaxspec
  from jaxspec.decode import measure
  from jaxspec.decode.assemble import assemble
  from jaxspec.decode.state import summarize

  draft, num_tokens = bundle.drafts[draft_name], bundle.target.config.num_tokens
  condition = bundle.caption([PROMPTS[i % len(PROMPTS)] for i in range(rows)])
  params, drafter, verifier = assemble(
    bundle.target.fns, bundle.target.params, draft.fns, draft.params, method=_METHODS[draft.family], gamma=gamma,
    draft_guidance=draft.meta.get("guided", True), **_settings(bundle),
  )  # fmt: skip
  keys = [jax.random.key(seed + i) for i in range(repeats + 1)]
  turn = {"plain": 0, "speculative": 0}
  outcomes = []

  def next_key(name):
    turn[name] += 1
    return keys[(turn[name] - 1) % len(keys)]

  def plain():
    return jaxspec.autoregress(params, next_key("plain"), condition, verifier=verifier, max_len=num_tokens).tokens

  def speculative():
    out = jaxspec.speculate(
      params, next_key("speculative"), condition, drafter=drafter, verifier=verifier, max_len=num_tokens
    )
    outcomes.append(out)
    return out.tokens

  compile_s = {}
  for name, call in (("plain", plain), ("speculative", speculative)):
    started = time.perf_counter()
    jax.block_until_ready(call())
    compile_s[name] = time.perf_counter() - started
    turn[name] = 0
  outcomes.clear()
  seconds = measure.alternate({"plain": plain, "speculative": speculative}, repeats)
  outcomes = outcomes[1:]  # the uncounted call
  counts = [summarize(out.counters) for out in outcomes]

  kwargs = dict(drafter=drafter, verifier=verifier, max_len=num_tokens)
  rounds_run = jax.jit(
    lambda p, k, c: measure.bare_rounds(p, k, c, rounds=_INNER, **kwargs)
  )
  parts = measure.alternate(
    {
      "start": lambda: measure.prefill(params, keys[0], condition, **kwargs),
      "start_and_rounds": lambda: rounds_run(params, keys[0], condition),
      "speculative": lambda: jaxspec.speculate(params, keys[0], condition, **kwargs).tokens,
    },
    repeats,
  )
  start = measure.Timing.of(parts["start"]).median
  reference = jaxspec.speculate(params, keys[0], condition, **kwargs)
  loop_rounds = int(reference.counters.rounds.max())
  efficiency = [
    loop_rounds * (b - start) / _INNER / (total - start)
    for b, total in zip(parts["start_and_rounds"], parts["speculative"], strict=True)
  ]
  total = {k: sum(c[k] for c in counts) for k in ("rounds", "drafted", "accepted", "target_calls")}
  alpha = measure.acceptance_per_position(total["accepted"], total["rounds"], gamma)
  tokens = rows * num_tokens
  round_s = (measure.Timing.of(parts["start_and_rounds"]).median - start) / _INNER
  plain_step_s = (measure.Timing.of(seconds["plain"]).median - start) / (num_tokens - 1)
  per_round = 1 + total["accepted"] / total["rounds"]
  return {
    "batch": rows,
    "gamma": gamma,
    "plain_tokens_per_s": tokens / measure.Timing.of(seconds["plain"]).median,
    "speculative_tokens_per_s": tokens / measure.Timing.of(seconds["speculative"]).median,
    "speedup": measure.pairwise_ratio(seconds["plain"], seconds["speculative"])._asdict(),
    "predicted_speedup": per_round * plain_step_s / round_s,
    "acceptance": total["accepted"] / total["drafted"],
    "acceptance_per_tested_position": alpha,
    "tokens_per_target_call": tokens * len(counts) / total["target_calls"],
    "plain_step_ms": 1e3 * plain_step_s,
    "round_ms": 1e3 * round_s,
    "prefill_ms": 1e3 * start,
    "loop_efficiency": measure.Timing.of(efficiency)._asdict(),
    "first_call_s": compile_s,
  }


def render(report: dict) -> str:
  """The report as Markdown."""
  span = lambda t, digits=2: f"{t['median']:.{digits}f} ({t['low']:.{digits}f}–{t['high']:.{digits}f})"
  settings = ", ".join(f"{k} {v}" for k, v in report["settings"].items())
  lines = [
    f"jax {report['versions']['jax']}, {report['device']}, {report['machine']['cpus']} cores, {report['dtype']} "
    f"with {report['matmul_precision']} products, "
    f"{report['method']} with draft {report['draft']}, {settings}; "
    f"median (lowest–highest) of {report['repeats']} pairwise repeats.",
    "",
    "| batch | gamma | plain tok/s | speculative tok/s | speed-up | predicted | accepted | per tested "
    "| tokens per target call | plain step ms | round ms | loop efficiency |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
  ]
  for d in report["decoding"]:
    lines.append(
      f"| {d['batch']} | {d['gamma']} | {d['plain_tokens_per_s']:.0f} | {d['speculative_tokens_per_s']:.0f} "
      f"| {span(d['speedup'])} | {d['predicted_speedup']:.2f} | {d['acceptance']:.2f} "
      f"| {d['acceptance_per_tested_position']:.2f} | {d['tokens_per_target_call']:.2f} | {d['plain_step_ms']:.2f} "
      f"| {d['round_ms']:.2f} | {span(d['loop_efficiency'])} |"
    )
  scoring = report["scoring"]
  lines += ["", "Predicted: tokens per round, times the cost of a plain step over that of a bare round (all rows busy)."]
  lines += ["", "| tokens scored in one target pass | ms | ratio to one |", "|---|---|---|"]
  for k, ms in scoring["target_ms"].items():
    lines.append(f"| {k} | {ms:.2f} | {span(scoring['target_ratio'][k])} |")
  lines += ["", "| draft | cost of one step, as a share of a target step |", "|---|---|"]
  lines += [f"| {name} | {span(ratio)} |" for name, ratio in scoring["draft_ratio"].items()]
  return "\n".join(lines)
