"""``jaxspec evaluate``: offline metrics of a folder of images, or of the images a bundle draws.

Images of the world of scenes are scored in `jaxspec.cli.evaluate_scenes`.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from jaxspec.cli.batches import MAX_ROWS
from jaxspec.cli.errors import UserError, check_writable, interruptible, reading, write_whole
from jaxspec.cli.option_help import MethodCommand
from jaxspec.cli.options import PATH, common, was_given

SPLITS = ("train", "val_style", "val_concept")  # the first is the default
SCENE_SPLITS = ("validation", "train", "held_out")  # likewise, with --scenes
DEFAULT_NUM = 128


class Images(NamedTuple):
  """What is evaluated."""

  name: str
  pixels: np.ndarray  # [N, side, side, 3] uint8
  prompts: list[str] | None
  asked: np.ndarray  # [K] int, numbers of the real images that were asked for
  about: dict[str, Any]  # how they came about; JSON
  warnings: list[str]


@click.command(cls=MethodCommand)
@click.argument("path", type=PATH)
@click.option("--num", type=click.IntRange(1, MAX_ROWS), help=f"Images to draw.  [default: {DEFAULT_NUM}]")
@click.option("--split", metavar="NAME", help="What is asked for: train, val_style or val_concept; "
              "with --scenes validation, train or held_out.  [default: the first]")  # fmt: skip
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Only concepts of this group; may be repeated.")
@click.option("--prompts", "prompt_file", type=PATH, help="Prompts: one per line, or JSON.")
@click.option("--reference", type=PATH, help="Folder of real images, instead of the shipped ones.")
@click.option("--encoder", type=click.Choice(("concept", "classifier", "caption")), default="concept", show_default=True,
              help="Feature space of the distances.")  # fmt: skip
@click.option("--evaluators", type=PATH, help="Folder of evaluators.  [default: the shipped one]")
@click.option("--standard", is_flag=True, help="Also FID, IS and CLIP score (extra eval, downloads networks).")
@click.option("--scenes", is_flag=True, help="Scenes: read the images, and compare them with their captions.")
@click.option("--save-images", type=PATH, help="Folder for the drawn images and their prompts.")
@click.option("--out", type=PATH, default="eval.json", show_default=True, help="Figures to write (.json).")
@common("method", "draft", "seed", "batch", "dtype", "matmul_precision", "no_cache")
def evaluate(**options: Any) -> None:
  """Measure the images in a folder PATH, or those that the bundle in PATH draws.

  \b
  jaxspec evaluate --scenes scenes --num 64 --method gsd
  jaxspec evaluate my_images --prompts captions.txt
  jaxspec evaluate --scenes my_scenes
  """
  from jaxspec.cli.declared import Chosen
  from jaxspec.shipped import named

  options["path"] = named(options["path"])
  chosen = Chosen.of(options)
  chosen.check()
  is_bundle = _check_options(options)

  from rich.console import Console

  from jaxspec.cli import compilation_cache
  from jaxspec.cli.working import Working

  if not options["no_cache"]:
    compilation_cache.enable()
  with Working("Loading") as working:
    document = _measure(options, chosen, is_bundle, working)
  _write(document, options["out"])
  _print(Console(highlight=False), document, options)


def _measure(options: dict[str, Any], chosen, is_bundle: bool, report) -> dict[str, Any]:
  """The document of figures, by the kind of images."""
  if not options["scenes"]:
    return _work(options, chosen, is_bundle, report)
  from jaxspec.cli.evaluate_scenes import evaluate_scenes

  return evaluate_scenes(options, chosen, is_bundle, report)


def _print(console, document: dict[str, Any], options: dict[str, Any]) -> None:
  """The tables, by the kind of images."""
  if options["scenes"]:
    from jaxspec.cli.evaluate_scenes_table import print_scenes as print_document
  else:
    from jaxspec.cli.evaluate_table import print_document
  print_document(console, document, options["out"])


def _write(document: dict[str, Any], out: Path) -> None:
  """Writes the figures, with versions."""
  from jaxspec.cli.report import as_json

  versions = {"python": platform.python_version(), "jaxspec": importlib.metadata.version("jaxspec-decoding")}
  text = as_json(document | {"versions": versions})
  write_whole(out, lambda path: path.write_text(text, encoding="utf-8"))


def _check_options(options: dict[str, Any]) -> bool:
  """Finds contradictions before anything is loaded; says whether the path is a bundle."""
  from jaxspec.bundle import BUNDLE_FILE
  from jaxspec.checkpoints import CONFIG_FILE
  from jaxspec.cli.image_folder import check_new_folder

  path = options["path"]
  if not path.is_dir():
    raise UserError(f"No folder at {path}: give a bundle of networks or a folder of PNG images")
  is_bundle = (path / BUNDLE_FILE).is_file()
  if not is_bundle and (path / CONFIG_FILE).is_file():
    raise UserError(f"{path} holds a single network: give the bundle it belongs to")
  options["split"] = _split(options["split"], options["scenes"])
  check_writable(options["out"], suffix=".json")
  if is_bundle:
    if options["save_images"] is not None:
      check_new_folder(options["save_images"])
    return True
  from jaxspec.cli.declared import declarations, flag

  for name in ("num", "save_images", "method", "draft", "batch", "dtype", "matmul_precision", *declarations()):
    if was_given(name):
      raise UserError(f"{flag(name)} goes with a bundle that draws, {path} is a folder of images")
  return False


def _split(name: str | None, is_scenes: bool) -> str:
  """The split that is meant.

  Raises:
    UserError: for one that images of the other kind have, or none has.
  """
  known = SCENE_SPLITS if is_scenes else SPLITS
  if name not in (None, *known):
    kind = "with" if is_scenes else "without"
    raise UserError(f"Must have --split {', '.join(known[:-1])} or {known[-1]} {kind} --scenes, we instead got {name!r}")
  return name or known[0]


def _work(options: dict[str, Any], chosen, is_bundle: bool, report) -> dict[str, Any]:
  from jaxspec.cli.image_folder import read_folder, write_folder
  from jaxspec.data.emoji import load_emoji
  from jaxspec.data.prompts import parse_prompt
  from jaxspec.metrics import evaluation, evaluators, standard

  folder = options["evaluators"] or evaluators.default_evaluators()
  with reading(folder):
    networks = interruptible(evaluators.load_evaluators, folder)
  side, seed = networks.image_size, options["seed"]
  emoji = load_emoji()
  reference = None if options["reference"] is None else read_folder(options["reference"], side, captioned=False).pixels
  images = None if is_bundle else _read(options, side)
  if reference is not None:
    _check_count(reference, "real images to compare with")
  with_clip = is_bundle or images.prompts is not None
  metrics = standard.load_standard(with_clip) if options["standard"] else None
  if is_bundle:
    images = _drawn(options, chosen, emoji, side, report)
    if options["save_images"] is not None:
      write_folder(options["save_images"], images.pixels, images.prompts)
  if reference is None:
    held_out = options["split"] != "train"
    parts = [parse_prompt(prompt) for prompt in images.prompts or []]
    reference = evaluation.reference_images(
      emoji, SPLITS[1:] if held_out else SPLITS[:1], parts, exclude=images.asked, groups=options["groups"], seed=seed
    )
  _check_count(images.pixels, "images")
  _check_count(reference, "real images to compare with")

  report(f"Measuring {len(images.pixels)} images")
  figures, real, set_size = interruptible(_figures, networks, emoji, images, reference, options)
  document = {
    "images": {"source": images.name, "count": len(images.pixels)} | images.about,
    "reference": {"count": len(reference), "folder": options["reference"] and str(options["reference"])},
    "encoder": options["encoder"],
    "set_size": set_size,
    "metrics": figures,
    "real_images": real,
    "evaluators": {"path": _below_here(folder), "held_out": held_out_scores(networks)},
    "warnings": images.warnings,
  }
  if metrics is not None:
    report("Computing the standard figures")
    document["standard"] = interruptible(standard.standard_metrics, metrics, images.pixels, reference, images.prompts)
  return document


def _below_here(path: Path) -> str:
  """The path from the working directory, if it lies below: results should not name a machine's folders."""
  path, here = path.resolve(), Path.cwd()
  return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _check_count(things: Sequence, noun: str) -> None:
  """Refuses sets that are too small for an interval."""
  from jaxspec.metrics.evaluation import FEWEST

  if len(things) < FEWEST:
    raise UserError(f"Must have at least {FEWEST} {noun}, we instead got {len(things)}")


def _drawn(options: dict[str, Any], chosen, emoji, side: int, report) -> Images:
  """Images that the bundle draws for prompts of the user or for real images of the split."""
  from jaxspec.cli.drawn_captions import draw_captions

  prompts, asked, about = _asked(options, emoji)
  _check_count(prompts, "images")  # before they are drawn
  drawn = draw_captions(options, chosen, prompts, side=side, purpose="the evaluators", report=report)
  return Images(drawn.name, drawn.pixels, prompts, asked, about | drawn.about, drawn.warnings)


def _asked(options: dict[str, Any], emoji) -> tuple[list[str], np.ndarray, dict[str, Any]]:
  """Prompts, the numbers of the real images that they name, and where they come from."""
  from jaxspec.cli.image_folder import read_prompts
  from jaxspec.data.emoji import STYLES
  from jaxspec.data.prompts import canonical_prompt
  from jaxspec.data.tokens import BACKGROUND_NAMES
  from jaxspec.metrics.evaluation import choose_images, in_groups

  if options["prompt_file"] is not None:
    prompts = read_prompts(options["prompt_file"])[: options["num"]]
    return prompts, np.zeros(0, int), {"prompts": str(options["prompt_file"])}
  pool = in_groups(emoji, emoji.indices(options["split"]), options["groups"])
  num = min(DEFAULT_NUM, len(pool)) if options["num"] is None else options["num"]
  asked, painting = choose_images(emoji, options["split"], num, groups=options["groups"], seed=options["seed"])
  prompts = [
    canonical_prompt(emoji.emoji[emoji.concept[p]], STYLES[emoji.style[p]], BACKGROUND_NAMES[background], bool(small))
    for p, background, small in zip(asked, painting.background, painting.small)
  ]
  return prompts, asked, {"split": options["split"], "groups": list(options["groups"])}


def _read(options: dict[str, Any], side: int) -> Images:
  from jaxspec.cli.image_folder import read_folder

  found = read_folder(options["path"], side, prompt_file=options["prompt_file"])
  warnings = []
  if found.num_resized:
    warnings.append(f"{found.num_resized} images were resized to {side}x{side} pixels")
  if found.prompts is None:
    warnings.append("No prompts.txt or prompts.json: only distances are measured")
  about = {"names": found.names, "split": options["split"], "groups": list(options["groups"])}
  name = options["path"].resolve().name
  return Images(name, found.pixels, found.prompts, np.zeros(0, int), about, warnings)


def _figures(networks, emoji, images: Images, reference: np.ndarray, options: dict[str, Any]) -> tuple[dict, dict, int]:
  """Figures of the images, those of the real images that their prompts name, and the ``set_size`` of both."""
  from jaxspec.cli.report import interval_fields
  from jaxspec.data.emoji import STYLES
  from jaxspec.data.prompts import parse_prompt
  from jaxspec.metrics import evaluation

  encoder, prompts = options["encoder"], [parse_prompt(prompt) for prompt in images.prompts or []]
  clusters, first = _clusters(prompts, images)
  gallery = evaluation.make_gallery(networks, emoji) if prompts else None
  asked = [prompts[row] for row in first]
  named = evaluation.real_images(gallery, asked) if prompts else None
  has_real = named is not None and len(named.rows) >= evaluation.FEWEST
  counts = [len(images.pixels) if clusters is None else len(first), len(reference)]
  counts += [len(named.rows)] if has_real else []
  settings = dict(set_size=evaluation.largest_set(*counts), seed=options["seed"])
  features = networks.embed(encoder, reference)

  def measure(pixels: np.ndarray, clusters: np.ndarray | None) -> dict[str, evaluation.Figure]:
    return evaluation.set_distances(networks.embed(encoder, pixels), features, encoder, clusters=clusters, **settings)

  figures, real = measure(images.pixels, clusters), {}
  if prompts:
    scores = evaluation.image_scores(networks, gallery, images.pixels, prompts)
    figures |= evaluation.summarize_scores(scores, clusters=clusters)
  if has_real:
    styles = [STYLES[emoji.style[image]] for image in named.image]
    scores = evaluation.image_scores(networks, gallery, named.pixels, [asked[row] for row in named.rows], styles=styles)
    real = measure(named.pixels, None) | evaluation.summarize_scores(scores)
  as_json = lambda figure: interval_fields(figure.interval) | {"count": figure.count}
  parts = ({name: as_json(figure) for name, figure in part.items()} for part in (figures, real))
  return *parts, settings["set_size"]


def _clusters(prompts: list, images: Images) -> tuple[np.ndarray | None, np.ndarray]:
  """Prompt ``[N]`` of each image where some repeat, else None; and the first image of each prompt."""
  from jaxspec.metrics.evaluation import FEWEST

  number = {prompt: i for i, prompt in enumerate(dict.fromkeys(prompts))}
  labels, first = np.unique([number[prompt] for prompt in prompts], return_index=True)
  if len(labels) == len(prompts):
    return None, first
  if len(labels) < FEWEST:
    images.warnings.append(f"Intervals hold for these {len(labels)} prompts only: others may differ by more")
    return None, first
  return np.array([number[prompt] for prompt in prompts]), first


def held_out_scores(networks) -> dict[str, Any]:
  """What the evaluators scored on images they had never seen, from their ``meta``."""
  return {name: getattr(networks, name).meta.get("held_out") for name in ("concept", "classifier", "caption")}
