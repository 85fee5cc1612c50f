"""``jaxspec generate``: images from prompts and classes, or continuations of texts, with the figures of the decoding."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from jaxspec.cli.guards import interruptible
from jaxspec.cli.option_help import Group, Line, MethodCommand
from jaxspec.cli.options import NETWORKS, NumberRange, common, unread, warn, was_given
from jaxspec.cli.outputs import check_writable, report_console
from jaxspec.core.command_line import PATH, UserError
from jaxspec.io.whole_files import destination, write_whole

LINKS = ("5g", "4g", "wifi")
_NEED_TARGET = ("compare", "repeats", "wire", "network", "mesh", "save_acceptance")
_OF_CLOUD = ("token_file", "ca", "cert", "key", "journal", "insecure", "route", "give_up")
_GROUPS = (
  Group("Prompts, decoding and output", (
    Line(("prompt_file", "features", "samples"), "Prompts, one a line; T5 features; images per prompt [1]."),
    Line(("classes", "texts", "max_tokens"), "Classes; texts to continue (both repeat); tokens [64]."),
    Line(("method", "draft", "seed", "batch"), "Method; draft network; random seed [0]; batch size [16]."),
    Line(("compare", "repeats", "wire", "network"), "Time plain too, N runs [3]; count bytes; 5g, 4g or wifi."),
    Line(("out", "heatmap", "json_file", "show", "raw"), "Images [images.png]; maps; figures; show; no captions."),
    Line(("save_acceptance", "save_features"), "Accepted drafts per round; T5 features of the prompts."),
  )),
  Group("Networks", (
    Line(("model", "draft_model", "no_cache"), "Bundle or network; extra draft network; no compile cache."),
    Line(("tokenizer", "text_encoder"), "Image tokenizer and T5 of a converted network."),
    Line(("dtype", "matmul_precision", "mesh"), "float32 or bfloat16; matmul precision; data=2,model=4."),
    Line(("cloud", "token_file", "ca"), "Server with the target; its token; trusted CA."),
    Line(("journal", "give_up"), "Resume after a stop; seconds of retries [60]."),
    Line(("cert", "key", "insecure", "route"), "Client certificate; without TLS; header for proxies."),
  )),
)  # fmt: skip


@click.command(cls=MethodCommand, groups=_GROUPS, no_args_is_help=False)
@click.argument("prompts", nargs=-1)
@click.option("--prompt-file", type=PATH, metavar="FILE", help="Text file with one prompt per line.")
@click.option("--text", "texts", multiple=True, metavar="TEXT", help="Text to continue; may be repeated.")
@click.option("--features", type=PATH, metavar="FILE", help="T5 features (.npz, .safetensors), with --model.")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", help="Largest number of tokens of a text.  [default: 64]")
@click.option("--save-features", type=PATH, metavar="FILE", help="Write the features of the prompts (.npz), for --features.")
@click.option("--mesh", metavar="NAME", help="Devices that share the work, such as data=2,model=4.")
@click.option("--cloud", metavar="URL", help="Server that has the target, grpcs://HOST:PORT; its weights are not loaded.")
@click.option("--token-file", type=PATH, metavar="FILE", help="The secret of a token, for --cloud.")
@click.option("--ca", type=PATH, metavar="FILE", help="Certificates to trust (.pem), for --cloud.")
@click.option("--cert", type=PATH, metavar="FILE", help="Client certificate (.pem), if --cloud requires one.")
@click.option("--key", type=PATH, metavar="FILE", help="The private key of --cert (.pem).")
@click.option("--journal", type=PATH, metavar="FILE", help="Store every reply of --cloud, and resume from it; for one row.")
@click.option("--insecure", is_flag=True, help="Without TLS, --cloud on other machines than this one.")
@click.option("--route", is_flag=True, help="Send the stream's name as a header, for proxies before --cloud.")
@click.option("--give-up", type=NumberRange(0, min_open=True, infinite=True), default=60.0, metavar="S",
              help="Seconds until a call of --cloud fails for good.")  # fmt: skip
@click.option("--compare", is_flag=True, help="Decode plainly too; images side by side, times measured in turns.")
@click.option("--repeats", type=click.IntRange(1, 100), default=3, metavar="N", help="Timed runs of --compare.")
@click.option("--wire", is_flag=True, help="Decode over a cloud in this process too, and count the bytes that cross.")
@click.option("--network", type=click.Choice(LINKS), metavar="NET", help="--wire, and the time on that network.")
@click.option("--out", type=PATH, default="images.png", metavar="FILE", help="Image to write (.png).")
@click.option("--show", is_flag=True, help="Show the images in the terminal too.")
@click.option("--raw", is_flag=True, help="Images at original size, without margins and captions.")
@click.option("--heatmap", type=PATH, metavar="FILE", help="Write maps of the origin of tokens (.png).")
@click.option("--json", "json_file", type=PATH, metavar="FILE", help="Write every figure (.json).")
@click.option("--save-acceptance", type=PATH, metavar="FILE", help="Write the accepted drafts of each round (.json).")
@common("classes", *NETWORKS, "method", "draft", "samples", "seed", "batch", "dtype", "matmul_precision", "no_cache")
def generate(**options: Any) -> None:
  """\b
  Draw PROMPTS, classes or texts, and report how they were decoded.
  jaxspec generate "a red heart" --method gsd --compare --heatmap map.png
  """
  from jaxspec.cli import prompts
  from jaxspec.run.batches import batch_rows
  from jaxspec.run.decode_options import DecodeOptions

  request, decoding = prompts.read(options), DecodeOptions.of(options)
  if request is None:
    raise UserError('Must have prompts, --class, --text or --features, for example: jaxspec generate "a cat"')
  decoding.check()
  if request.kind != "features":  # their number is known when they are read
    batch_rows(options["batch"], len(request.prompts) * options["samples"])
  networks = _check_options(options, request.kind)
  files = _check_files(options, of_images=request.kind != "text")

  from jaxspec.render.working import Working

  out = report_console(*files.values())
  shows = options["show"] and _can_show(out)
  with Working("Loading") as working, _connected(options) as cloud:
    runs, files = _work(options, networks, request, decoding, files, cloud, working)

  from jaxspec.cli.summary import print_summary

  if shows:
    from jaxspec.cli import image_files, show

    show.show_images(out, image_files.cells_of(runs), captions=not options["raw"])
  print_summary(out, runs, files)
  if runs[0].failure is not None:
    raise runs[0].failure


def _check_options(options: dict[str, Any], kind: str):
  """Checks options before loading; returns the selected networks."""
  from jaxspec.cli.networks import sources_of

  networks = sources_of(options)
  if options["features"] is not None and networks.model is None:
    raise UserError("--features goes with --model DIR, a converted transformer of images")
  for name in ("text_encoder", "save_features"):
    if options["features"] is not None and options[name] is not None:
      raise UserError(f"Must have either --features or --{name.replace('_', '-')}, not both")
  with_cloud = options["cloud"] is not None
  for name in _NEED_TARGET if with_cloud else _OF_CLOUD:
    if was_given(name):
      why = "needs the target in this process, not behind --cloud" if with_cloud else "goes with --cloud grpcs://HOST:PORT"
      raise UserError(f"--{name.replace('_', '-')} {why}")
  if options["mesh"] is not None and (options["wire"] or options["network"] is not None):
    raise UserError("--mesh goes with decodes in one program, we instead got --wire, whose two ends are several")
  if kind == "text":
    _refuse_image_options(options)
  return networks


def _refuse_image_options(options: dict[str, Any]) -> None:
  for name in ("out", "heatmap", "raw", "show", "save_features"):
    if was_given(name):
      raise UserError(f"--{name} is about images, we instead got texts to continue")


def _check_files(options: dict[str, Any], *, of_images: bool) -> dict[str, Path]:
  """The files to write, checked to be writable."""
  names = {"images": "out", "heatmap": "heatmap", "features": "save_features"} if of_images else {}
  names |= {"json": "json_file", "acceptance": "save_acceptance"}
  files = {name: options[option] for name, option in names.items() if options[option] is not None}
  for name, path in files.items():
    check_writable(path, suffix={"json": ".json", "acceptance": ".json", "features": ".npz"}.get(name, ".png"))
  if len(set(map(destination, files.values()))) < len(files):
    raise UserError("Must have different files for --out, --heatmap and the others, we instead got the same twice")
  return files


def _can_show(out) -> bool:
  """Whether stdout shows images; otherwise one line gives the reason."""
  from jaxspec.cli import show

  reason = show.why_not(out)
  if reason is not None:
    warn(f"The images are written, not shown: {reason}")
  return reason is None


def _connected(options: dict[str, Any]):
  """A context of the server of ``--cloud``, or of None, without imports for it."""
  if options["cloud"] is None:
    return contextlib.nullcontext()
  from jaxspec.cli import cloud_options

  return cloud_options.connected(options)


def _work(options: dict[str, Any], networks, request, decoding, files: dict[str, Path], cloud, report):
  """Loads, compiles, decodes and writes; results are written even if a later step fails."""
  from jaxspec.cli import compilation_cache, generate_files, image_files
  from jaxspec.cli.job import make_job
  from jaxspec.cli.networks import unread_draft
  from jaxspec.cli.prompts import encode
  from jaxspec.methods import Plain
  from jaxspec.planning.recorded_acceptance import check_recordable
  from jaxspec.run.batches import batch_rows
  from jaxspec.run.document import document
  from jaxspec.run.json_values import as_json
  from jaxspec.run.run import in_turns
  from jaxspec.serving import messages

  if not options["no_cache"]:
    compilation_cache.enable()
  pipeline = _load(options, networks, request, decoding)
  family = pipeline.family
  if family.noun != "image":
    _refuse_image_options(options)
    files = {name: path for name, path in files.items() if name in ("json", "acceptance")}
  elif options["max_tokens"] is not None:
    raise UserError("--max-tokens goes with networks that continue texts: images have all of their tokens")
  encoded = encode(pipeline, request)
  if "features" in files:
    generate_files.save_features(files["features"], encoded)
  _check_draft_model(options, pipeline)
  if options["compare"]:
    _check_compared(pipeline, decoding.method)
  job = make_job(pipeline, decoding, encoded, seed=options["seed"], max_len=options["max_tokens"])
  job.warnings.extend(unread_draft(networks, job.method))
  job.warnings.extend([] if options["compare"] else unread("without --compare", "repeats"))
  if request.kind == "class" and request.captions:
    job.warnings.append(f"Not read by networks that draw classes: {request.captions[0]!r}, which only names the image")
  warn(*job.warnings)
  sends = options["wire"] or options["network"] is not None
  if sends:
    messages.codec_of_job(job)  # an error if there is none
  if "acceptance" in files:
    check_recordable(job.decoder)
  rows = batch_rows(options["batch"], len(job.captions) * options["samples"])
  batches = job.batches(rows, samples=options["samples"])
  if cloud is None:
    jobs = [job, job.but(Plain())] if options["compare"] else [job]
    repeats = options["repeats"] if options["compare"] else 0
    runs = interruptible(in_turns, jobs, batches, repeats=repeats, progress=report)
  else:
    runs = _over_cloud(options, job, batches, cloud, report)
  if "acceptance" in files:
    report(f"Writing {files['acceptance']}")  # a pipe waits for its reader
    generate_files.save_acceptance(files["acceptance"], runs[0])
  report(f"Turning tokens into {job.noun}s")
  interruptible(lambda: [run.outputs for run in runs])
  if family.noun == "image":
    image_files.write_images(files, runs, samples=options["samples"], raw=options["raw"])
  try:
    if sends:
      report("Decoding once more, through messages")
      runs[0].messages = interruptible(messages.send, runs[0], options["network"])
  finally:
    if "json" in files:
      report(f"Writing {files['json']}")
      text = as_json(document(runs, files))
      write_whole(files["json"], lambda path: path.write_text(text, encoding="utf-8"))
  return runs, files


def _check_compared(pipeline, method: str | None) -> None:
  """Checks that plain decoding is not compared with itself."""
  from jaxspec.methods import Plain

  if (method or pipeline.default_method) == Plain.name:
    drafting = [name for name in pipeline.methods() if name != Plain.name]
    raise UserError(
      f"Must have a method besides {Plain.name} to compare with plain decoding: --method {' or '.join(drafting)}"
    )


def _over_cloud(options: dict[str, Any], job, batches, cloud, report):
  """Rows verified by a server's target, as the only run."""
  from jaxspec.io import checkpoints
  from jaxspec.serving.edge.journal import Journal
  from jaxspec.serving.edge.retries import Policy
  from jaxspec.serving.remote_generation import generate_over_cloud, profile_for

  file = options["journal"]
  if file is not None and batches.num != 1:
    raise UserError(f"--journal goes with one {job.noun}, we instead got {batches.num}")
  profile = profile_for(job, cloud, interruptible(checkpoints.digest, job.pipeline.family.target.folder))
  kwargs = dict(profile=profile, url=options["cloud"], policy=Policy(give_up_s=options["give_up"]), progress=report)
  with contextlib.nullcontext() if file is None else Journal(file) as journal:
    run = interruptible(generate_over_cloud, job, batches, cloud, journal=journal, **kwargs)
  if times := run.messages.resumes:
    often = "once" if times == 1 else f"{times} times"
    _warn(job, f"The server lost the stream {often}, as after a restart; the edge resumed it")
  if run.failure is not None:
    job.warnings.append(str(run.failure))
  return [run]


def _warn(job, warning: str) -> None:
  """A warning on stderr and in the document."""
  job.warnings.append(warning)
  warn(warning)


def _load(options: dict[str, Any], networks, request, decoding):
  """The selected networks, else the shipped ones for the kind of prompts."""
  from jaxspec.cli.networks import load_sources
  from jaxspec.core.precision import of_user

  precision = options["matmul_precision"]
  several = options["wire"] or options["network"] is not None or options["cloud"] is not None
  if several and precision is None and of_user() is None:
    precision = "float32"  # bfloat16 products differ between one program and three, which may change a token
  kwargs = dict(dtype=options["dtype"], matmul_precision=precision, mesh=options["mesh"])
  return load_sources(networks, request.checkpoint(decoding.method), target_weights=options["cloud"] is None, **kwargs)


def _check_draft_model(options: dict[str, Any], pipeline) -> None:
  """Checks that a method can use the draft, unless plain decoding was requested."""
  if options["draft_model"] is None or options["method"] is not None:
    return
  from jaxspec.io.model_folders import network_name
  from jaxspec.methods import SAME_FAMILY, get_method

  if get_method(pipeline.default_method).draft_family is None:
    pipeline.family.check_fit(pipeline.drafts.loaded(network_name(options["draft_model"])), SAME_FAMILY)
