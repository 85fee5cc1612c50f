"""``jaxspec train eagle``, ``spatial``, ``draft`` and others: drafters of a target learn from rows that it draws."""

from __future__ import annotations

import functools
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from jaxspec.cli.guards import interruptible
from jaxspec.cli.options import common, unread, warn
from jaxspec.core.command_line import PATH, UserError, set_option

if TYPE_CHECKING:
  from jaxspec.render.working import Working
  from jaxspec.run.pipeline import Pipeline
  from jaxspec.run.sources import Sources
  from jaxspec.training.distillation.drawn_samples import Drawing
  from jaxspec.training.distillation.samples import Samples
  from jaxspec.training.distillation.training import Trained

_OWN_NAMES = ("checkpoints", "samples", "tensorboard")  # of folders of a run

_OPTIONS = (
  common("model", "tokenizer", "text_encoder"),
  click.option("--prompt-file", type=PATH, metavar="FILE", help="Text file with one prompt per line."),
  common("classes"),
  click.option("--images", type=PATH, metavar="DIR", help="PNG images and their prompts, in place of drawn samples."),
  click.option("--samples", type=PATH, metavar="FILE", help="File of drawn samples, to share.  [default: RUN/samples.npz]"),
  click.option("--batch", type=click.IntRange(1), default=8, show_default=True, metavar="N", help="Rows drawn together."),
  click.option("--max-tokens", type=click.IntRange(2), metavar="N", help="Tokens of a drawn text.  [default: 64]"),
  common("dtype"),
  click.option("--mesh", metavar="data=N", help="Devices that share every batch.  [default: all, for updates]"),
  click.option("--config", type=PATH, metavar="FILE", help="Settings in a TOML file."),
  set_option,
  click.option("--name", metavar="NAME", help="Name of the result.  [default: by its kind and depth]"),
  click.option("--run-dir", type=PATH, metavar="DIR", help="Folder of the run.  [default: runs/NAME]"),
  click.option("--resume/--no-resume", default=True, show_default=True, help="Continue a run, or refuse its folder."),
  click.option("--export", type=PATH, metavar="DIR", help="Bundle that the result joins.  [default: only RUN/NAME]"),
  click.option("--plan", "device", metavar="KIND", help="Only estimate memory and time on a device: h100, a100-80, ..."),
  click.option("--dry-run", is_flag=True, help="Only show the settings."),
  common("no_cache"),
)


def _command(kind: str, help: str) -> click.Command:
  """The command of a kind of students."""

  def run(**options: Any) -> None:
    _train(kind, options)

  run.__doc__ = help
  decorated = functools.reduce(lambda function, option: option(function), reversed(_OPTIONS), run)
  return click.command(kind, no_args_is_help=False)(decorated)


eagle = _command(
  "eagle",
  """Train an EAGLE head: it continues the features of the target (methods eagle and eagle-chain).

  \b
  jaxspec train eagle --model own --prompt-file prompts.txt --export own
  jaxspec train eagle --model weights/t2i --tokenizer weights/vq --text-encoder weights/t5 \\
    --prompt-file prompts.txt --config eagle.toml
  """,
)
block_head = _command(
  "block-head",
  """Train a block head: it drafts a block in one pass, from features of three layers of the target (method block-head).

  \b
  jaxspec train block-head --model own --prompt-file prompts.txt --set gamma=7 --export own
  """,
)
spatial = _command(
  "spatial",
  """Train spatial heads: they draft to the right and downward in an image (method spatial).

  \b
  jaxspec train spatial --model own --prompt-file prompts.txt --export own
  jaxspec train spatial --model own --prompt-file prompts.txt --set num_places=31 --set num_rows=3
  """,
)
draft = _command(
  "draft",
  """Train a draft network: the first layers of the target, distilled (methods speculative, gsd, ...).

  \b
  jaxspec train draft --model own --prompt-file prompts.txt --set num_layers=2 --export own
  """,
)
inter_head = _command(
  "inter-head",
  """Train an edge network: the first layers of the target below heads of intervals (method ciar).

  \b
  jaxspec train inter-head --model own --prompt-file prompts.txt --set num_layers=1 --export own
  """,
)


def _train(kind: str, options: dict[str, Any]) -> None:
  from rich.console import Console
  from rich.tree import Tree

  from jaxspec.cli import compilation_cache
  from jaxspec.cli.settings_tree import settings_tree
  from jaxspec.core.overrides import override, override_from_file
  from jaxspec.render.working import Working
  from jaxspec.training.curves import can_plot
  from jaxspec.training.distillation.students import STUDENTS

  settings = STUDENTS[kind].settings()
  if options["config"] is not None:
    settings = override_from_file(settings, options["config"])
  settings = override(settings, options["assignments"])
  if options["dry_run"]:
    Console(highlight=False).print(settings_tree(Tree(kind, guide_style="dim"), settings))
    return
  if options["device"] is not None:
    from jaxspec.cli.train_plan import print_plan

    print_plan(kind, settings, options)
    return
  if not options["no_cache"]:
    compilation_cache.enable()
  with Working("Checking") as working:
    run = interruptible(_checked, kind, settings, options)
    trained, folder = interruptible(_trained, run, working)
  if not can_plot():  # at the end: an error before it stays one line
    warn("No curves.png is drawn without matplotlib: pip install 'jaxspec-decoding[train]'")
  if "acceptance" in trained.held_out:
    acceptance, rows = trained.held_out["acceptance"], settings.num_held_out
    click.echo(f"{run.name}: expected acceptance {acceptance:.4f} on {rows} held-out rows")
  click.echo(f"wrote {folder}")


class _Run(NamedTuple):
  """A training whose options passed every check that needs no weights."""

  kind: str
  settings: Any
  options: dict[str, Any]
  sources: Sources
  default: str | None  # the shipped bundle without a model
  name: str
  run_dir: Path
  drawing: Drawing | None  # None for images
  data: dict[str, Any]  # origin of the samples
  images: tuple[Any, list[Any]] | None  # pixels [M, S, S, 3] uint8, and prompts

  @property
  def command(self) -> str:
    """The command of this training, for the metadata of its result."""
    from jaxspec.core.overrides import differences
    from jaxspec.training.distillation.students import STUDENTS

    words = ["jaxspec", "train", self.kind]
    for name in ("model", "tokenizer", "text_encoder", "prompt_file", "images", "max_tokens", "name", "export"):
      if self.options[name] is not None:
        words += [f"--{name.replace('_', '-')}", str(self.options[name])]
    words += [word for label in self.options["classes"] for word in ("--class", label)]
    changed = differences(STUDENTS[self.kind].settings(), self.settings)
    return shlex.join([*words, *(word for assignment in changed for word in ("--set", assignment))])


def _checked(kind: str, settings: Any, options: dict[str, Any]) -> _Run:
  """Checks everything that can be wrong before weights are read, and writes the record of the run.

  Raises:
    ValueError: in one line.
  """
  import dataclasses

  import jax

  from jaxspec.cli import prompts
  from jaxspec.cli.networks import load_sources, sources_of
  from jaxspec.cli.outputs import check_writable
  from jaxspec.core import mesh as meshes
  from jaxspec.io import checkpoints
  from jaxspec.models.conditions import Caption
  from jaxspec.training import run_record
  from jaxspec.training.distillation.drawn_samples import Drawing
  from jaxspec.training.distillation.student import teacher
  from jaxspec.training.distillation.training import check_devices

  sizes = None if options["mesh"] is None else meshes.parse(options["mesh"])
  if sizes is not None and sizes.model > 1:
    raise UserError(f"Must have --mesh data=N for a training, we instead got {options['mesh']}")
  if sizes is not None:
    meshes.make_mesh(str(sizes))  # raises for more devices than there are
  if options["images"] is not None and (options["prompt_file"] is not None or options["classes"]):
    raise UserError("Must have either --images, with their prompts in the folder, or --prompt-file and --class")
  sources, request = sources_of(options), prompts.read(options | {"prompts": ()})
  default = None if request is None else request.checkpoint(None)
  pipeline = load_sources(sources, default, dtype=options["dtype"], target_weights=False)
  family, folder = pipeline.family, pipeline.target.folder
  settings.check(pipeline.target)
  teacher(pipeline)
  check_devices(settings, jax.local_device_count() if sizes is None else sizes.data)
  if options["max_tokens"] is not None and family.noun != "text":
    warn(*unread("for images", "max_tokens"))
  max_len = (options["max_tokens"] or 64) if family.noun == "text" else None
  images, drawing = None, None
  target = checkpoints.digest(folder).hex()[:16]
  if options["images"] is not None:
    images = _read_images(pipeline, options["images"])
    settings = dataclasses.replace(settings, num_samples=len(images[1]))
    settings.check(pipeline.target)
    data = {"target": target, "images": _digest_of(images)}
  else:
    found = _all_classes(pipeline) if request is None else request.for_family(family)
    if family.condition_type is not Caption:  # encoders of captions may be large
      pipeline.encode(found)
    drawing = Drawing(found, settings.num_samples, options["batch"], max_len, settings.sample_seed)
    data = drawing.origin(target, pipeline.sampling())
  name = options["name"] or _default_name(kind, settings)
  run_dir = options["run_dir"] or Path("runs") / name
  if name in _OWN_NAMES or not name or Path(name).name != name:
    raise UserError(f"Must have the name of a folder as --name, other than {', '.join(_OWN_NAMES)}, we instead got {name!r}")
  if options["samples"] is not None:
    check_writable(options["samples"], suffix=".npz")
  if options["export"] is not None:
    _check_export(options["export"], name, target)
  run_record.begin(run_dir, kind, settings, data, resume=options["resume"])
  return _Run(kind, settings, options, sources, default, name, run_dir, drawing, data, images)


def _default_name(kind: str, settings: Any) -> str:
  return kind if kind in ("eagle", "spatial") else f"{kind.removesuffix('-head')}-{settings.num_layers}"


def _all_classes(pipeline: Pipeline) -> list[int]:
  from jaxspec.models.conditions import ClassLabels

  if pipeline.family.condition_type is not ClassLabels:
    raise UserError("Must have --prompt-file FILE, one prompt per line, or --images DIR")
  return list(range(pipeline.family.target.config.num_classes))


def _read_images(pipeline: Pipeline, folder: Path) -> tuple[Any, list[Any]]:
  """Pixels and prompts of a folder of images."""
  from jaxspec.cli.image_folder import PROMPT_FILES, read_folder
  from jaxspec.run.prompt_request import PromptRequest
  from jaxspec.training.distillation.drawn_samples import image_side

  found = read_folder(folder, image_side(pipeline))
  if found.prompts is None:
    raise UserError(f"Must have {' or '.join(PROMPT_FILES)} in {folder}, one prompt per image")
  return found.pixels, PromptRequest("prompt", found.prompts).for_family(pipeline.family)


def _digest_of(images: tuple[Any, list[Any]]) -> str:
  import hashlib

  pixels, prompts = images
  return hashlib.sha256(pixels.tobytes() + "\n".join(map(str, prompts)).encode()).hexdigest()[:16]


def _check_export(folder: Path, name: str, target: str) -> None:
  """Checks that a bundle has the target of the training and can be written to."""
  from jaxspec.io import checkpoints
  from jaxspec.io.bundle import read_bundle

  bundle = read_bundle(folder)
  if checkpoints.digest(bundle.target_folder()).hex()[:16] != target:
    raise UserError(f"Must have the target of the training in the bundle {folder}, it has another one")
  others = {"target": bundle.target} | {part: value for part, value in bundle.parts.items() if isinstance(value, str)}
  for part, other in others.items():
    if other is not None and bundle.folder(other).resolve() == (folder / name).resolve():
      raise UserError(f"Must have a --name of its own in {folder}, {name} is the folder of its {part}")
  checkpoints.check_destination(folder / name)
  try:
    with tempfile.TemporaryFile(dir=folder):
      pass
  except OSError as error:
    raise UserError(f"Cannot write to {folder}: {error.strerror}, choose another --export") from error


def _trained(run: _Run, working: Working) -> tuple[Trained, Path]:
  """Trains, and writes the result; returns its folder."""
  from jaxspec.cli.networks import load_sources
  from jaxspec.io import checkpoints
  from jaxspec.models import registry
  from jaxspec.training.distillation.students import STUDENTS
  from jaxspec.training.distillation.training import Training, export, join
  from jaxspec.training.train_loop import TrainingDiverged

  options, settings = run.options, run.settings
  working("Loading")
  mesh, precision = options["mesh"], settings.matmul_precision
  pipeline = load_sources(run.sources, run.default, dtype=options["dtype"], matmul_precision=precision, mesh=mesh)
  samples = _samples(run, pipeline, working)
  training = Training(
    pipeline, samples, STUDENTS[run.kind].make_student(pipeline, settings)._replace(name=run.name), settings
  )
  joined = options["export"]
  folder = (run.run_dir if joined is None else joined) / run.name
  checkpoints.check_destination(folder, family=registry.family_name(training.student.config))  # before hours of training
  try:
    trained = training.run(run.run_dir, resume=options["resume"], progress=working, on_eval=_print_figures)
  except TrainingDiverged as error:
    raise UserError(f"{error}: try a lower learning rate (--set optimizer.learning_rate=...)") from error
  export(training, trained, folder, command=run.command)
  if joined is not None:
    join(pipeline, joined, run.name)
  return trained, folder


def _samples(run: _Run, pipeline: Pipeline, working: Working) -> Samples:
  from jaxspec.training.distillation.drawn_samples import draw_samples, encode_images

  if run.images is not None:
    return encode_images(pipeline, *run.images, batch=run.options["batch"], progress=working)
  assert run.drawing is not None  # without images
  file = run.options["samples"] or run.run_dir / "samples.npz"
  return draw_samples(pipeline, run.drawing, file, run.data, progress=working)


def _print_figures(step: int, figures: dict[str, float]) -> None:
  shown = "  ".join(f"{name} {figures[name]:.4f}" for name in ("loss", "acceptance") if name in figures)
  click.echo(f"step {step}  held out: {shown}")
