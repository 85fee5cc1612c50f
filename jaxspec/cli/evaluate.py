"""``jaxspec evaluate``: offline metrics of a folder of pictures, or of the pictures a bundle draws."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from jaxspec.cli.errors import UserError, check_writable, interruptible, reading, write_whole
from jaxspec.cli.generate import generate
from jaxspec.cli.settings import MAX_PICTURES, Settings

SPLITS = ("train", "val_style", "val_concept")
DEFAULT_NUM = 128
_PATH = click.Path(path_type=Path)


class Pictures(NamedTuple):
  """What is evaluated."""

  name: str
  pixels: np.ndarray  # [N, side, side, 3] uint8
  prompts: list[str] | None
  asked: np.ndarray  # [K] int, numbers of the real pictures that were asked for
  about: dict[str, Any]  # how they came about; JSON
  warnings: list[str]


@click.command()
@click.argument("path", type=_PATH)
@click.option("--num", type=click.IntRange(1, MAX_PICTURES), help=f"Pictures to draw.  [default: {DEFAULT_NUM}]")
@click.option("--split", type=click.Choice(SPLITS), default="train", show_default=True, help="Real pictures asked for.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Only concepts of this group; may be repeated.")
@click.option("--prompts", "prompt_file", type=_PATH, help="Prompts: one per line, or JSON.")
@click.option("--reference", type=_PATH, help="Folder of real pictures, instead of the shipped ones.")
@click.option("--encoder", type=click.Choice(("concept", "classifier", "caption")), default="concept", show_default=True,
              help="Feature space of the distances.")  # fmt: skip
@click.option("--evaluators", type=_PATH, help="Folder of evaluators.  [default: the shipped one]")
@click.option("--repeats", type=click.IntRange(10, 100_000), default=200, show_default=True,
              help="Resamples of an interval.")  # fmt: skip
@click.option("--standard", is_flag=True, help="Also FID, IS and CLIP score (extra eval, downloads networks).")
@click.option("--save-pictures", type=_PATH, help="Folder for the drawn pictures and their prompts.")
@click.option("--out", type=_PATH, default="eval.json", show_default=True, help="Figures to write (.json).")
def evaluate(**options: Any) -> None:
  """Measure the pictures in a folder PATH, or those that the bundle in PATH draws.

  \b
  jaxspec evaluate checkpoints/emoji64 --num 64 --method gsd
  jaxspec evaluate my_pictures --prompts captions.txt
  """
  is_bundle = _check_options(options)

  from rich.console import Console

  from jaxspec.cli import compilation_cache

  if not options["no_cache"]:
    compilation_cache.enable()
  console = Console(stderr=True)
  with console.status("Loading") as status:
    document = _work(options, is_bundle, status.update)
  _print(Console(highlight=False), document, options["out"])


# Every option of `generate` that decides the tokens, under the same name.
_DECODING = {field.name for field in dataclasses.fields(Settings)} | {"batch", "no_cache"}
evaluate.params.extend(option for option in generate.params if option.name in _DECODING)


def _check_options(options: dict[str, Any]) -> bool:
  """Finds contradictions before anything is loaded; says whether the path is a bundle."""
  from jaxspec.bundle import BUNDLE_FILE
  from jaxspec.checkpoints import CONFIG_FILE
  from jaxspec.cli.picture_folder import check_new_folder

  path = options["path"]
  if not path.is_dir():
    raise UserError(f"No folder at {path}: give a bundle of networks or a folder of PNG pictures")
  is_bundle = (path / BUNDLE_FILE).is_file()
  if not is_bundle and (path / CONFIG_FILE).is_file():
    raise UserError(f"{path} holds a single network: give the bundle it belongs to")
  check_writable(options["out"], suffix=".json")
  if is_bundle:
    if options["save_pictures"] is not None:
      check_new_folder(options["save_pictures"])
    return True
  decoding = [name for name in sorted(_DECODING - {"seed", "no_cache"}) if options.get(name) is not None]
  for name in ("num", "save_pictures", *decoding):
    if options[name] is not None:
      raise UserError(f"--{name.replace('_', '-')} goes with a bundle that draws, {path} is a folder of pictures")
  return False


def _work(options: dict[str, Any], is_bundle: bool, report) -> dict[str, Any]:
  from jaxspec.cli.picture_folder import read_folder, write_folder
  from jaxspec.cli.report import as_json
  from jaxspec.data.emoji import load_emoji
  from jaxspec.data.prompts import parse_prompt
  from jaxspec.metrics import evaluation, evaluators, standard

  folder = options["evaluators"] or evaluators.default_evaluators()
  with reading(folder):
    networks = interruptible(evaluators.load_evaluators, folder)
  side, seed = networks.image_size, options["seed"]
  emoji = load_emoji()
  reference = None if options["reference"] is None else read_folder(options["reference"], side, captioned=False).pixels
  pictures = None if is_bundle else _read(options, side)
  if reference is not None:
    _check_count(reference, "real pictures to compare with")
  with_clip = is_bundle or pictures.prompts is not None
  metrics = standard.load_standard(with_clip) if options["standard"] else None
  if is_bundle:
    pictures = _drawn(options, emoji, side, report)
    if options["save_pictures"] is not None:
      write_folder(options["save_pictures"], pictures.pixels, pictures.prompts)
  if reference is None:
    held_out = options["split"] != "train"
    parts = [parse_prompt(prompt) for prompt in pictures.prompts or []]
    reference = evaluation.reference_pictures(
      emoji, SPLITS[1:] if held_out else SPLITS[:1], parts, exclude=pictures.asked, groups=options["groups"], seed=seed
    )
  _check_count(pictures.pixels, "pictures")
  _check_count(reference, "real pictures to compare with")

  report(f"Measuring {len(pictures.pixels)} pictures")
  figures, real = interruptible(_figures, networks, emoji, pictures, reference, options)
  document = {
    "pictures": {"source": pictures.name, "count": len(pictures.pixels)} | pictures.about,
    "reference": {"count": len(reference), "folder": options["reference"] and str(options["reference"])},
    "encoder": options["encoder"],
    "metrics": figures,
    "real_pictures": real,
    "evaluators": {"path": _below_here(folder), "held_out": held_out_scores(networks)},
    "warnings": pictures.warnings,
    "versions": {"python": platform.python_version(), "jaxspec": importlib.metadata.version("jaxspec-decoding")},
  }
  if metrics is not None:
    report("Computing the standard figures")
    document["standard"] = interruptible(
      standard.standard_metrics, metrics, pictures.pixels, reference, pictures.prompts
    )
  text = as_json(document)
  write_whole(options["out"], lambda path: path.write_text(text, encoding="utf-8"))
  return document


def _below_here(path: Path) -> str:
  """The path from the working directory, if it lies below: results should not name a machine's folders."""
  path, here = path.resolve(), Path.cwd()
  return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _check_count(things: Sequence, noun: str) -> None:
  """Refuses sets that have no manifold."""
  from jaxspec.metrics.evaluation import NEIGHBOURS

  if len(things) <= NEIGHBOURS:
    raise UserError(f"Must have at least {NEIGHBOURS + 1} {noun}, we instead got {len(things)}")


def _drawn(options: dict[str, Any], emoji, side: int, report) -> Pictures:
  """Pictures that the bundle draws for prompts of the user or for real pictures of the split."""
  from jaxspec.cli import decoding, settings, sources
  from jaxspec.cli.picture_folder import read_prompts
  from jaxspec.data.emoji import STYLES
  from jaxspec.data.prompts import canonical_prompt
  from jaxspec.data.tokens import BACKGROUND_NAMES
  from jaxspec.metrics.evaluation import choose_pictures, in_groups

  asked = np.zeros(0, int)
  if options["prompt_file"] is not None:
    prompts = read_prompts(options["prompt_file"])[: options["num"]]
    about = {"prompts": str(options["prompt_file"])}
  else:
    pool = in_groups(emoji, emoji.indices(options["split"]), options["groups"])
    num = min(DEFAULT_NUM, len(pool)) if options["num"] is None else options["num"]
    asked, painting = choose_pictures(emoji, options["split"], num, groups=options["groups"], seed=options["seed"])
    prompts = [
      canonical_prompt(emoji.emoji[emoji.concept[p]], STYLES[emoji.style[p]], BACKGROUND_NAMES[background], bool(small))
      for p, background, small in zip(asked, painting.background, painting.small)
    ]
    about = {"split": options["split"], "groups": list(options["groups"])}
  _check_count(prompts, "pictures")  # before they are drawn
  chosen = {field.name: options.get(field.name) for field in dataclasses.fields(settings.Settings)}
  source = interruptible(sources.from_bundle, options["path"], prompts, chosen, compare=False)
  if (made := getattr(source.tokenizer.config, "image_size", side)) != side:
    raise UserError(f"Must have pictures of {side} pixels for the evaluators, {options['path']} draws {made}")
  rows = settings.batch_rows(options["batch"], len(prompts))
  batches = decoding.make_batches(source.condition, samples=1, seed=source.settings.seed, rows=rows)
  runs = decoding.run_methods(source, source.settings, batches, methods=[source.settings.method], repeats=0, report=report)
  counters = {name: int(values.sum()) for name, values in decoding.per_row(runs[0].result.counters).items()}
  about |= {"settings": dataclasses.asdict(source.settings), "counters": counters}
  return Pictures(source.name, runs[0].images, prompts, asked, about, source.warnings)


def _read(options: dict[str, Any], side: int) -> Pictures:
  from jaxspec.cli.picture_folder import read_folder

  found = read_folder(options["path"], side, prompt_file=options["prompt_file"])
  warnings = []
  if found.num_resized:
    warnings.append(f"{found.num_resized} pictures were resized to {side}x{side} pixels")
  if found.prompts is None:
    warnings.append("No prompts.txt or prompts.json: only distances are measured")
  about = {"names": found.names, "split": options["split"], "groups": list(options["groups"])}
  name = options["path"].resolve().name
  return Pictures(name, found.pixels, found.prompts, np.zeros(0, int), about, warnings)


def _figures(networks, emoji, pictures: Pictures, reference: np.ndarray, options: dict[str, Any]) -> tuple[dict, dict]:
  """Figures of the pictures, and those of the real pictures that their prompts name."""
  from jaxspec.data.emoji import STYLES
  from jaxspec.data.prompts import parse_prompt
  from jaxspec.metrics import evaluation

  encoder, resampling = options["encoder"], dict(repeats=options["repeats"], seed=options["seed"])
  features = networks.embed(encoder, reference)
  measure = lambda pixels: evaluation.set_distances(networks.embed(encoder, pixels), features, encoder, **resampling)
  figures, real = measure(pictures.pixels), {}
  if pictures.prompts is not None:
    gallery = evaluation.make_gallery(networks, emoji)
    prompts = [parse_prompt(prompt) for prompt in pictures.prompts]
    scores = evaluation.picture_scores(networks, gallery, pictures.pixels, prompts)
    figures |= evaluation.summarize_scores(scores, **resampling)
    named = evaluation.real_pictures(gallery, prompts)
    if len(named.rows) > evaluation.NEIGHBOURS:
      styles = [STYLES[emoji.style[picture]] for picture in named.picture]
      own = [prompts[row] for row in named.rows]
      scores = evaluation.picture_scores(networks, gallery, named.pixels, own, styles=styles)
      real = measure(named.pixels) | evaluation.summarize_scores(scores, **resampling)
  as_json = lambda figure: figure.interval._asdict() | {"count": figure.count}
  return tuple({name: as_json(figure) for name, figure in part.items()} for part in (figures, real))


def held_out_scores(networks) -> dict[str, Any]:
  """What the evaluators scored on pictures they had never seen, from their ``meta``."""
  return {name: getattr(networks, name).meta.get("held_out") for name in ("concept", "classifier", "caption")}


def _print(console, document: dict[str, Any], out: Path) -> None:
  from rich.table import Table
  from rich.text import Text

  for warning in document["warnings"]:
    click.echo(click.style("Warning:", fg="yellow") + f" {warning}", err=True)
  pictures, reference, real = document["pictures"], document["reference"], document["real_pictures"]
  console.print()
  counts = f"  {pictures['count']} pictures against {reference['count']} real ones"
  head = Text.assemble((pictures["source"], "bold"), counts)
  if settings := pictures.get("settings"):
    head.append(f"  {settings['method']}, guidance {settings['cfg_scale']:g}, seed {settings['seed']}", style="dim")
  console.print(head, soft_wrap=True)
  console.print()
  table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
  for title in ["", "these pictures"] + ["real pictures of the prompts"] * bool(real):
    table.add_column(title)
  for name, figure in document["metrics"].items():
    lower = name.startswith(("kid_", "frechet_"))
    title = Text.assemble(name, (" (lower is better)" if lower else "", "dim"))
    cells = [_cell(figure, pictures["count"], lower)]
    if real:
      cells.append(_cell(real[name], pictures["count"], lower) if name in real else Text("-"))
    table.add_row(title, *cells)
  for name, value in document.get("standard", {}).items():
    table.add_row(name, f"{value:.4g}")
  console.print(table)
  console.print()
  console.print(Text.assemble(("wrote ", "dim"), str(out)), soft_wrap=True)


def _cell(figure: dict[str, Any], total: int, is_distance: bool):
  from rich.text import Text

  shown = (lambda x: f"{x:.4f}") if is_distance else (lambda x: f"{x:.3f}")
  text = Text.assemble((shown(figure["value"]), "bold"), f"  {shown(figure['low'])} to {shown(figure['high'])}")
  return text.append(f"  of {figure['count']}", style="dim") if figure["count"] != total else text
