"""``jaxspec evaluate``: figures of a folder of images, or of a bundle's images.

Images of scenes are read (`jaxspec.cli.evaluate_scenes`). For other images released networks compute the standard figures
(`jaxspec.cli.evaluate_standard`).
"""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path
from typing import Any

import click

from jaxspec.cli.image_folder import DEFAULT_NUM
from jaxspec.cli.option_help import MethodCommand
from jaxspec.cli.options import common, was_given
from jaxspec.cli.outputs import check_writable, report_console
from jaxspec.core.command_line import PATH, UserError
from jaxspec.io.whole_files import write_whole
from jaxspec.run.batches import MAX_ROWS

SPLITS = ("validation", "train", "held_out")

# Options for the other kind of images only.
_FOR_STANDARD = {"reference": "images are compared with their captions and the painter"}
_FOR_SCENES = {"split": "only scenes have captions of their own"}


@click.command(cls=MethodCommand)
@click.argument("path", type=PATH, required=False)
@click.option("--scenes", is_flag=True, help="Scenes: read the images, and compare them with their captions.")
@click.option("--standard", is_flag=True, help="Other images: FID, IS and CLIP score (extra eval, downloads networks).")
@click.option("--num", type=click.IntRange(1, MAX_ROWS), metavar="N",
              help=f"Images to draw.  [default: {DEFAULT_NUM}, or one of each prompt of a file]")  # fmt: skip
@click.option("--split", type=click.Choice(SPLITS), default=SPLITS[0], show_default=True, metavar="NAME",
              help="Captions of --scenes: validation, train or held_out.")  # fmt: skip
@click.option("--prompts", "prompt_file", type=PATH, metavar="FILE", help="Prompts: one per line, or JSON.")
@click.option("--reference", type=PATH, metavar="DIR", help="Folder of real images, for --standard.")
@click.option("--save-images", type=PATH, metavar="DIR", help="Folder for the drawn images and their prompts.")
@click.option("--out", type=PATH, default="eval.json", show_default=True, metavar="FILE", help="Figures to write (.json).")
@common("model", "method", "draft", "seed", "batch", "dtype", "matmul_precision", "no_cache")
def evaluate(**options: Any) -> None:
  """Measure the images in a folder PATH, or those that the bundle in PATH draws.

  \b
  jaxspec evaluate --scenes scenes --num 64 --method gsd
  jaxspec evaluate --scenes my_scenes --prompts captions.txt
  jaxspec evaluate --standard my_images --reference real_images
  """
  from jaxspec.cli.networks import needed, sources_of
  from jaxspec.io.model_folders import model_folder
  from jaxspec.run.decode_options import DecodeOptions

  options["path"] = model_folder(needed(sources_of(options, "path"), "PATH"))
  decoding = DecodeOptions.of(options)
  decoding.check()
  is_bundle = _check_options(options)

  from jaxspec.cli import compilation_cache
  from jaxspec.render.working import Working

  if options["scenes"]:
    from jaxspec.cli.evaluate_scenes import evaluate_scenes as measure
    from jaxspec.cli.evaluate_scenes_table import print_scenes as print_document
  else:
    from jaxspec.cli.evaluate_standard import evaluate_standard as measure
    from jaxspec.cli.evaluate_table import print_standard as print_document
  if not options["no_cache"]:
    compilation_cache.enable()
  with Working("Loading") as working:
    document = measure(options, decoding, is_bundle, working)
  _write(document, options["out"])
  print_document(report_console(options["out"]), document, options["out"])


def _write(document: dict[str, Any], out: Path) -> None:
  """Writes the figures, with versions."""
  from jaxspec.run.json_values import as_json

  versions = {"python": platform.python_version(), "jaxspec": importlib.metadata.version("jaxspec-decoding")}
  text = as_json(document | {"versions": versions})
  write_whole(out, lambda path: path.write_text(text, encoding="utf-8"))


def _check_options(options: dict[str, Any]) -> bool:
  """Checks options before loading; returns whether the path is a bundle."""
  from jaxspec.cli.image_folder import check_new_folder
  from jaxspec.io.bundle import BUNDLE_FILE
  from jaxspec.io.checkpoints import CONFIG_FILE

  path = options["path"]
  if not path.is_dir():
    raise UserError(f"No folder at {path}: give a bundle of networks or a folder of PNG images")
  is_bundle = (path / BUNDLE_FILE).exists()
  if not is_bundle and (path / CONFIG_FILE).is_file():
    raise UserError(f"{path} holds a single network: give the bundle it belongs to")
  if options["scenes"] == options["standard"]:
    ways = "--scenes (images of scenes) or --standard (FID, IS and CLIP score of others)"
    raise UserError(f"Must have one of {ways}, we instead got {'both' if options['scenes'] else 'neither'}")
  kind, others = ("scenes", _FOR_STANDARD) if options["scenes"] else ("standard", _FOR_SCENES)
  for name, why in others.items():
    if was_given(name):
      raise UserError(f"--{name} does not go with --{kind}: {why}")
  check_writable(options["out"], suffix=".json")
  if is_bundle:
    if options["save_images"] is not None:
      check_new_folder(options["save_images"])
    return True
  from jaxspec.run.decode_options import declarations, flag

  for name in ("num", "save_images", "method", "draft", "batch", "dtype", "matmul_precision", *declarations()):
    if was_given(name):
      raise UserError(f"{flag(name)} goes with a bundle that draws, {path} is a folder of images")
  return False
