"""``jaxspec generate``: images from prompts and classes, or continuations of texts, with the figures of the decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jaxspec.cli.errors import UserError, check_writable, interruptible, write_whole
from jaxspec.cli.option_help import Group, Line, MethodCommand
from jaxspec.cli.options import PATH, common, was_given

NETWORKS = ("5g", "4g", "wifi")
_GROUPS = (
  Group("What to draw", (
    Line(("prompt_file", "samples"), "Prompts, one per line; images of each [1]."),
    Line(("classes", "features"), "Classes by name or number (repeat it); T5 features, with --model."),
    Line(("texts", "max_tokens"), "Texts to continue (repeat it), and most tokens of one [64]."),
  )),
  Group("Networks", (
    Line(("checkpoint", "draft"), "A bundle, by folder or shipped name, and one of its drafts."),
    Line(("model", "tokenizer", "draft_model"), "Converted networks instead of a bundle."),
    Line(("dtype", "matmul_precision"), "float32 or bfloat16, of transformers and of products."),
  )),
  Group("Decoding and files", (
    Line(("method", "seed", "batch"), "How, from which seed [0], how many rows at a time [16]."),
    Line(("compare", "repeats"), "Decode plainly too, and measure both in turns, N times [3]."),
    Line(("wire", "network"), "Decode through messages too; their time on 5g, 4g or wifi."),
    Line(("out", "raw"), "Images [images.png]; at their own size, without captions."),
    Line(("heatmap", "json_file"), "Maps of where tokens came from (.png); every figure (.json)."),
    Line(("no_cache",)),
  )),
)  # fmt: skip


@click.command(cls=MethodCommand, groups=_GROUPS, no_args_is_help=False)
@click.argument("prompts", nargs=-1)
@click.option("--prompt-file", type=PATH, metavar="FILE", help="Text file with one prompt per line.")
@click.option("--class", "classes", multiple=True, metavar="NAME", help="Class, by name or number; may be repeated.")
@click.option("--text", "texts", multiple=True, metavar="TEXT", help="Text to continue; may be repeated.")
@click.option("--features", type=PATH, metavar="FILE", help="T5 features (.npz, .safetensors), with --model.")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Most tokens of a text.  [default: 64]")
@click.option("--model", type=PATH, metavar="DIR", help="Converted network, instead of a bundle.")
@click.option("--tokenizer", type=PATH, metavar="DIR", help="Converted image tokenizer, with --model.")
@click.option("--draft-model", type=PATH, metavar="DIR", help="Smaller network that drafts.")
@click.option("--compare", is_flag=True, help="Decode plainly too; images side by side, times measured in turns.")
@click.option("--repeats", type=click.IntRange(1, 100), default=3, metavar="N", help="Timed runs of --compare.")
@click.option("--wire", is_flag=True, help="Decode by two ends that exchange messages too, and count what they emit.")
@click.option("--network", type=click.Choice(NETWORKS), metavar="NAME", help="--wire, and the time on that network.")
@click.option("--out", type=PATH, default="images.png", metavar="FILE", help="Image to write (.png).")
@click.option("--raw", is_flag=True, help="Images edge to edge at their own size, no captions.")
@click.option("--heatmap", type=PATH, metavar="FILE", help="Write maps of where tokens came from (.png).")
@click.option("--json", "json_file", type=PATH, metavar="FILE", help="Write every figure (.json).")
@common("checkpoint", "method", "draft", "samples", "seed", "batch", "dtype", "matmul_precision", "no_cache")
def generate(**options: Any) -> None:
  """Draw PROMPTS, classes or texts, and report how they were decoded.

  \b
  jaxspec generate "a red heart" "a green heart" --method gsd --compare
  jaxspec generate --class food-fruit --method cspd --exact --heatmap map.png
  """
  from jaxspec.cli import prompts
  from jaxspec.cli.declared import Chosen

  asked, chosen = prompts.read(options), Chosen.of(options)
  chosen.check()
  _check_options(options, asked.kind)
  files = _check_files(options, of_images=asked.kind != "text")

  from rich.console import Console

  console = Console(stderr=True)
  with console.status("Loading") as status:
    job, batches, runs, files = _work(options, asked, chosen, files, lambda text: status.update(text))

  from jaxspec.cli.summary import print_summary

  print_summary(Console(highlight=False), job, batches, runs, files)


def _check_options(options: dict[str, Any], kind: str) -> None:
  """Finds contradictions before anything is loaded."""
  if options["checkpoint"] is not None and options["model"] is not None:
    raise UserError("Must have either --checkpoint or --model, not both")
  if options["model"] is None and options["tokenizer"] is not None:
    raise UserError("--tokenizer goes with --model DIR, a converted transformer of images")
  if options["model"] is None and options["features"] is not None:
    raise UserError("--features goes with --model DIR, a converted transformer of images")
  if options["draft"] is not None and options["draft_model"] is not None:
    raise UserError("Must have either --draft or --draft-model, not both")
  if kind == "text":
    _refuse_image_options(options)


def _refuse_image_options(options: dict[str, Any]) -> None:
  for name in ("out", "heatmap", "raw"):
    if was_given(name):
      raise UserError(f"--{name} is about images, we instead got texts to continue")


def _check_files(options: dict[str, Any], *, of_images: bool) -> dict[str, Path]:
  """The files to write, each checked to be writable."""
  names = {"images": "out", "heatmap": "heatmap"} if of_images else {}
  files = {name: options[option] for name, option in (names | {"json": "json_file"}).items() if options[option] is not None}
  for name, path in files.items():
    check_writable(path, suffix=".json" if name == "json" else ".png")
  if len({path.resolve() for path in files.values()}) < len(files):
    raise UserError("Must have different files for --out and --heatmap, we instead got the same twice")
  return files


def _work(options: dict[str, Any], asked, chosen, files: dict[str, Path], report):
  """Loads, compiles, decodes and writes; what was computed is written even if a later step fails."""
  from jaxspec.cli import compilation_cache, decoding, image_files, messages
  from jaxspec.cli.batches import batch_rows, make_batches
  from jaxspec.cli.job import make_job
  from jaxspec.cli.report import as_json, document
  from jaxspec.methods import Plain

  if not options["no_cache"]:
    compilation_cache.enable()
  pipeline = _load(options, asked, chosen)
  host = pipeline.host
  if host.noun != "image":
    _refuse_image_options(options)
    files = {name: path for name, path in files.items() if name == "json"}
  elif options["max_tokens"] is not None:
    raise UserError("--max-tokens goes with networks that continue texts: images have all of their tokens")
  encoded = interruptible(pipeline.encode, asked.for_host(host), asked.captions)
  _check_draft_model(options, pipeline)
  job = make_job(pipeline, chosen, encoded, seed=options["seed"], max_len=options["max_tokens"], compare=options["compare"])
  if options["draft_model"] is not None and job.method.draft_family is None:
    job.warnings.append(f"Not read by --method {job.method.name}: --draft-model")
  for warning in job.warnings:
    click.echo(click.style("Warning:", fg="yellow") + f" {warning}", err=True)
  sends = options["wire"] or options["network"] is not None
  if sends:
    messages.wire_of(job)  # says whether there is one
  rows = batch_rows(options["batch"], len(job.captions) * options["samples"])
  batches = make_batches(job.condition, samples=options["samples"], seed=job.seed, rows=rows)
  methods = [job.method] + [Plain()] * options["compare"]
  repeats = options["repeats"] if options["compare"] else 0
  runs = decoding.decode_methods(job, batches, methods=methods, repeats=repeats, report=report)
  decoding.finish(job, batches, runs, report)
  if host.noun == "image":
    image_files.write_images(files, job, batches, runs, samples=options["samples"], raw=options["raw"])
  try:
    if sends:
      report("Decoding once more, through messages")
      runs[0].messages = messages.send(job, batches, runs[0], options["network"])
  finally:
    if "json" in files:
      text = as_json(document(job, batches, runs, files))
      write_whole(files["json"], lambda path: path.write_text(text, encoding="utf-8"))
  return job, batches, runs, files


def _load(options: dict[str, Any], asked, chosen):
  """The networks that are named, else the shipped ones for what is asked."""
  from jaxspec.cli.job import load
  from jaxspec.shipped import named

  precision = options["matmul_precision"]
  if precision is None and (options["wire"] or options["network"] is not None):
    precision = "float32"  # rounded products differ between one program and three, which may change a token
  path = options["model"] or options["checkpoint"]
  if path is None and (path := asked.checkpoint(chosen.method)) is not None and not named(path).is_dir():
    raise UserError(f"Must have --checkpoint or --model DIR: no networks {path} come with this copy")
  try:
    return load(
      path, draft=options["draft_model"], tokenizer=options["tokenizer"], dtype=options["dtype"], matmul_precision=precision
    )
  except ValueError as error:
    if options["model"] is not None and "part 'tokenizer'" in str(error):
      raise UserError("Must have --tokenizer DIR with --model: the tokenizer turns tokens into pixels") from error
    raise


def _check_draft_model(options: dict[str, Any], pipeline) -> None:
  """Refuses a draft that no method can use, where nobody asked for plain decoding."""
  if options["draft_model"] is None or options["method"] is not None:
    return
  from jaxspec.methods import SAME_FAMILY, get_method

  if get_method(pipeline.default_method).draft_family is None:
    pipeline.host.check_fit(pipeline.drafts.checkpoint(options["draft_model"].resolve().name), SAME_FAMILY)
