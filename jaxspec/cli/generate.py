"""``jaxspec generate``: pictures from prompts or continuations of texts, with the figures of the decoding."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from jaxspec.cli.errors import UserError, check_writable, interruptible, write_whole
from jaxspec.codecs.bits import CODINGS
from jaxspec.codecs.conformal import Conformal
from jaxspec.decode.compression import SPARSIFIERS
from jaxspec.decode.methods import METHODS, RECYCLING, SOURCES, VERIFY
from jaxspec.drafters.compressed import ON_EMPTY
from jaxspec.intervals.heads import COMBINATIONS
from jaxspec.models.interval_features import INJECT

_PATH = click.Path(path_type=Path)
# Options of vector tokens only (`jaxspec.cli.by_class`).
_BY_CLASS = ("exact", "prefill", "no_align", "inner_temperature", "max_tries", "num_iter", "steps", "stop")


@click.command(no_args_is_help=False)
@click.argument("prompts", nargs=-1)
@click.option("--out", type=_PATH, default="pictures.png", show_default=True, help="Picture to write (.png).")
@click.option("--prompt-file", type=_PATH, help="Text file with one prompt per line.")
@click.option("--samples", type=click.IntRange(1), default=1, show_default=True, help="Pictures per prompt.")
@click.option("--checkpoint", type=_PATH, help="Bundle of networks.  [default: the shipped one]")
@click.option("--method", type=click.Choice([*METHODS, "cspd", "parallel"]), help="Plain decoding (ar), or what drafts.")
@click.option("--draft", metavar="NAME", help="Draft network of the bundle.")
@click.option("--gamma", type=int, help="Tokens drafted per round.")
@click.option("--tree-size", type=int, help="Tokens of a draft tree, with --method eagle.")
@click.option("--tree-top-k", type=int, help="Branches of a node of a draft tree.")
@click.option("--tree-depth", type=int, help="Draft passes that grow a tree; it has one more level.")
@click.option("--window", type=int, help="Drafts per pass of Jacobi decoding (sjd, gsd, scaled).")
@click.option("--recycle", type=click.Choice(RECYCLING), help="How a Jacobi window uses its last pass.")
@click.option("--initial", type=click.Choice(SOURCES), help="Where new places of a Jacobi window copy from.")
@click.option("--group-size", type=int, help="Tokens of a group, with --method gsd.")
@click.option("--max-gap", type=float, help="Largest difference of probabilities in a group.")
@click.option("--max-distance", type=float, help="Largest squared distance in a group.")
@click.option("--distance", type=click.Choice(("codebook", "embedding")), help="Vectors of that distance.")
@click.option("--num-neighbours", type=int, help="Nearest codes that lend probability, with --method lantern.")
@click.option("--factor", type=float, help="Most that a ratio is raised by (lantern, scaled).")
@click.option("--sparsifier", type=click.Choice(SPARSIFIERS), help="Which tokens of a law are sent, with --method sqs.")
@click.option("--support", type=int, help="Tokens of a law that topk keeps; the most for conformal.")
@click.option("--ell", type=int, help="Denominator of the laws that are sent.")
@click.option("--budget", type=float, help="Bits that the laws of one round may cost.")
@click.option("--max-drafts", type=int, help="Most drafts of a round, whatever the budget.")
@click.option("--beta1", type=float, help="First threshold of conformal.")
@click.option("--eta", type=float, help="Step size of the threshold; 0 keeps it.")
@click.option("--alpha", type=float, help="Probability to be dropped, which the threshold is steered to.")
@click.option("--policy", type=click.Choice(Conformal.POLICIES), help="Steps of the threshold that stay after a rejection.")
@click.option("--empty-error", type=click.Choice(Conformal.EMPTY_ERRORS), help="What no token above the threshold counts.")
@click.option("--on-empty", type=click.Choice(ON_EMPTY), help="What happens where no law fits into the budget.")
@click.option("--coding", type=click.Choice(CODINGS), help="How a law becomes bits.")
@click.option("--wire", is_flag=True, help="Decode by two ends that exchange messages too, and count what they emit.")
@click.option("--tau", type=float, help="Largest uncertainty of a token that the device keeps, with --method ciar.")
@click.option("--cloud-rate", type=float, help="Hold so many cloud calls per token instead, by a threshold that moves.")
@click.option("--rho", type=float, help="Leading share of tokens that the cloud draws, with --method ciar.")
@click.option("--max-run", type=int, help="Most tokens that a device keeps in one round.")
@click.option("--verify", type=click.Choice(VERIFY), help="How the cloud judges what it is asked about (ciar).")
@click.option("--score", metavar="NAME", help="Uncertainty: interval, entropy, max_prob, random, ... (ciar).")
@click.option("--combination", type=click.Choice(COMBINATIONS), help="How several heads of a device become one law (ciar).")
@click.option("--early-close/--no-early-close", default=None, help="End a window before its first certain token (ciar).")
@click.option("--inject", type=click.Choice(INJECT), help="Tokens that come with interval features (ciar).")
@click.option("--network", type=click.Choice(("5g", "4g", "wifi")), help="Send real messages; report their time (ciar).")
@click.option("--cfg-scale", type=float, help="Guidance scale; 1 switches guidance off.")
@click.option("--cfg-interval", type=click.IntRange(-1, 2**30), help="Guide only so many tokens (and two); -1 guides all.")
@click.option("--top-k", type=int, help="Keep the k likeliest tokens; 0 keeps all.")
@click.option("--top-p", type=float, help="Keep the likeliest tokens of this total probability.")
@click.option("--temperature", type=float, help="Divisor of the logits; 0 is greedy.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Seed of the pictures.")
@click.option("--batch", type=int, help="Pictures decoded together.  [default: all, up to 16]")
@click.option("--dtype", type=click.Choice(("float32", "bfloat16")), help="Arithmetic of the transformers.")
@click.option(
  "--matmul-precision",
  type=click.Choice(("float32", "bfloat16")),
  help="Rounding of what products read; sums stay in float32.  [default: what this machine is fast at]",
)
@click.option("--compare", is_flag=True, help="Decode plainly too; pictures side by side, times measured in turns.")
@click.option("--repeats", type=click.IntRange(1, 100), default=3, show_default=True, help="Timed runs of --compare.")
@click.option("--heatmap", type=_PATH, help="Write maps of accepted tokens, or of who decided (ciar) (.png).")
@click.option("--json", "json_file", type=_PATH, help="Write every figure (.json).")
@click.option("--raw", is_flag=True, help="Pictures edge to edge at their own size, no captions.")
@click.option("--model", type=_PATH, help="Converted LlamaGen transformer, instead of a bundle.")
@click.option("--tokenizer", type=_PATH, help="Converted LlamaGen tokenizer, with --model.")
@click.option("--draft-model", type=_PATH, help="Smaller LlamaGen transformer that drafts, with --model.")
@click.option("--class", "classes", multiple=True, help="Class name, or number with --model; may be repeated.")
@click.option("--exact", is_flag=True, help="Keep the target's law exactly (cspd).")
@click.option("--prefill", type=float, help="Leading share of tokens that the target draws alone (cspd).")
@click.option("--no-align", is_flag=True, help="Draft and target on noises of their own (cspd).")
@click.option("--inner-temperature", type=float, help="Widening of the published test; the released code has 42 (cspd).")
@click.option("--max-tries", type=int, help="Most proposals for a refused token (cspd).")
@click.option("--num-iter", type=int, help="Iterations of --method parallel.")
@click.option("--steps", type=int, help="Diffusion steps of a token, with --class NAME.")
@click.option("--stop", type=int, help="End tokens with the noise of this step, with --class NAME.")
@click.option("--features", type=_PATH, help="T5 features (.npz, .safetensors), with --model.")
@click.option("--text", "texts", multiple=True, help="Text to continue, instead of pictures; may be repeated.")
@click.option("--max-tokens", type=click.IntRange(1), help="Most tokens of a continuation.  [default: 64]")
@click.option("--no-cache", is_flag=True, help="Do not keep compiled programs for the next time.")
def generate(**options: Any) -> None:
  """Make pictures from PROMPTS and report how they were decoded.

  \b
  jaxspec generate "a red heart" "a green heart" --out hearts.png --compare
  jaxspec generate --model gpt-b --tokenizer vq-16 --class 207 --class 360
  jaxspec generate --class food-fruit --method cspd --exact --gamma 7 --heatmap map.png
  jaxspec generate --text "Once upon a time" --model smollm2 --max-tokens 40
  jaxspec generate --text "Once upon a time" --method sqs --sparsifier conformal --budget 5000
  """
  if options["texts"]:
    from jaxspec.cli import text

    return text.run(options, _given(options))
  if options["classes"] and options["model"] is None:
    from jaxspec.cli import by_class

    return by_class.run(options, _given(options))
  prompts = _read_prompts(options)
  _check_options(options, prompts)
  files = _check_files(options)

  from rich.console import Console

  console = Console(stderr=True)
  with console.status("Loading") as status:
    runs, source, batches = _work(options, prompts, lambda text: status.update(text))
    for warning in source.warnings:
      click.echo(click.style("Warning:", fg="yellow") + f" {warning}", err=True)
    status.update("Writing")
    traffic = None
    if options["network"] is not None:
      from jaxspec.cli.gated import send_messages

      status.update("Decoding once more, through messages")
      traffic = interruptible(send_messages, source, batches, runs[0])
    _write(options, files, source, batches, runs, traffic)

  from jaxspec.cli.report import print_summary

  print_summary(Console(highlight=False), source, batches, runs, files)
  if source.settings.parts.drafter == "interval":
    from jaxspec.cli.gated import print_gated

    print_gated(Console(highlight=False), source, runs, traffic, options["network"])


def _given(options: dict[str, Any]) -> list[str]:
  """Names of the options that the user gave."""
  source_of = click.get_current_context().get_parameter_source
  return [name for name in options if source_of(name) is not click.core.ParameterSource.DEFAULT]


def _is_number(name: str) -> bool:
  return name.lstrip("-").isdigit()


def _read_prompts(options: dict[str, Any]) -> list[str]:
  prompts = list(options["prompts"])
  if (file := options["prompt_file"]) is not None:
    try:
      text = file.read_text(encoding="utf-8-sig")  # some editors write a mark first
    except (OSError, UnicodeDecodeError) as error:
      raise UserError(f"Cannot read prompts from {file}: {getattr(error, 'strerror', None) or error}") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
      raise UserError(f"Must have one prompt per line in {file}, it is empty")
    prompts += lines
  return prompts


def _check_options(options: dict[str, Any], prompts: list[str]) -> None:
  """Finds contradictions before anything is loaded."""
  flags = {param.name: param.opts[0] for param in click.get_current_context().command.params}
  if wrong := [flags[name] for name in _given(options) if name in _BY_CLASS]:
    raise UserError(f"{wrong[0]} goes with --class NAME, pictures of a class from vector tokens")
  if options["method"] in ("cspd", "parallel"):
    raise UserError(f"--method {options['method']} goes with --class NAME, pictures of a class from vector tokens")
  if wrong := [name for name in options["classes"] if not _is_number(name)]:
    raise UserError(f"Must have a number as --class with --model, we instead got {wrong[0]!r}")
  if options["max_tokens"] is not None:
    raise UserError('--max-tokens goes with --text "...", the beginning of a text')
  if options["model"] is None:
    for name in ("tokenizer", "draft_model", "features"):
      if options[name] is not None:
        raise UserError(f"--{name.replace('_', '-')} goes with --model DIR, a converted LlamaGen transformer")
    if not prompts:
      raise UserError('Must have a prompt, for example: jaxspec generate "a red apple"')
    from jaxspec.data.prompts import normalize_prompt

    for number, prompt in enumerate(prompts, 1):
      if not normalize_prompt(prompt):
        raise UserError(f"Must have a word in every prompt, prompt {number} is {prompt!r}")
    return
  if options["tokenizer"] is None:
    raise UserError("Must have --tokenizer DIR with --model: the tokenizer turns tokens into pixels")
  if options["checkpoint"] is not None or options["draft"] is not None:
    raise UserError("Must have either --checkpoint (with --draft) or --model (with --draft-model), not both")
  if options["classes"] and options["features"] is not None:
    raise UserError("Must have either --class or --features, not both")


def _check_files(options: dict[str, Any]) -> dict[str, Path]:
  """The files to write, each checked to be writable."""
  files = {name: options[key] for name, key in (("pictures", "out"), ("heatmap", "heatmap"), ("json", "json_file"))}
  files = {name: path for name, path in files.items() if path is not None}
  for name, path in files.items():
    check_writable(path, suffix=".json" if name == "json" else ".png")
  if len({path.resolve() for path in files.values()}) < len(files):
    raise UserError("Must have different files for --out and --heatmap, we instead got the same twice")
  return files


def _work(options: dict[str, Any], prompts: list[str], report):
  """Loads, compiles and decodes."""
  from jaxspec.cli import compilation_cache, decoding, gated, settings, sources, wire

  if not options["no_cache"]:
    compilation_cache.enable()
  names = [field.name for field in dataclasses.fields(settings.Settings)]
  chosen = {name: options[name] for name in names}
  if options["wire"]:
    chosen = wire.prefer_float32(chosen)
  if options["model"] is None:
    bundle = options["checkpoint"] or sources.default_bundle()
    source = interruptible(sources.from_bundle, bundle, prompts, chosen, compare=options["compare"])
  else:
    source = interruptible(
      sources.from_llamagen,
      options["model"],
      options["tokenizer"],
      options["draft_model"],
      chosen,
      classes=[int(name) for name in options["classes"]],
      features=options["features"],
      captions=prompts,
      compare=options["compare"],
    )
  if options["wire"]:
    wire.check_wire(source.settings)
  if options["network"] is not None:
    gated.check_messages(source.settings)
  rows = settings.batch_rows(options["batch"], len(source.captions) * options["samples"])
  batches = decoding.make_batches(source.condition, samples=options["samples"], seed=source.settings.seed, rows=rows)
  methods = [source.settings.method] + (["ar"] if options["compare"] else [])
  repeats = options["repeats"] if options["compare"] else 0
  runs = decoding.run_methods(source, source.settings, batches, methods=methods, repeats=repeats, report=report)
  if options["wire"]:
    report("Decoding through messages")
    wire.add_traffic(source, source.settings, batches, runs[0])
  return runs, source, batches


def _write(options: dict[str, Any], files: dict[str, Path], source, batches, runs, traffic) -> None:
  from jaxspec.cli import pictures, report
  from jaxspec.cli.heatmap import draw_gated_map, draw_heatmap

  captions = [source.captions[prompt] for prompt in batches.prompt]
  settings = report.finite(dataclasses.asdict(source.settings))
  about = {"source": source.name, "settings": settings, "captions": captions}
  cells = list(zip(*(run.images for run in runs)))  # per picture, one image per method
  columns = pictures.columns_for(len(cells), options["samples"], len(runs))
  if options["raw"]:
    sheet = pictures.raw_grid(cells, columns)
  else:
    titles = [report.TITLES[run.method] for run in runs] if len(runs) > 1 else []
    sheet = pictures.draw_grid(
      [pictures.Cell([pictures.enlarge(image) for image in cell], titles, text) for cell, text in zip(cells, captions)],
      columns,
    )
  write_whole(files["pictures"], lambda path: pictures.save_png(sheet, path, about))
  if "heatmap" in files:
    columns = pictures.columns_for(len(cells), options["samples"], panels=3)
    draw = draw_gated_map if source.settings.parts.drafter == "interval" else draw_heatmap
    maps = draw(runs[0].result, runs[0].images, captions, columns=columns)
    write_whole(files["heatmap"], lambda path: pictures.save_png(maps, path, about))
  if "json" in files:
    document = report.document(source, batches, runs, {name: str(path) for name, path in files.items()})
    if source.settings.parts.drafter == "interval":
      from jaxspec.cli.gated import gated_figures

      document["cloud"] = gated_figures(source.settings, runs[0], traffic)
    text = report.as_json(document)
    write_whole(files["json"], lambda path: path.write_text(text, encoding="utf-8"))
