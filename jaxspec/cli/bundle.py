"""``jaxspec bundle``: writes a bundle of networks that generate together, or updates one."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from jaxspec.cli.guards import interruptible
from jaxspec.cli.option_help import Group, Line, MethodCommand
from jaxspec.cli.options import common
from jaxspec.core.command_line import PATH, UserError

_GROUPS = (
  Group("Networks and what belongs to them", (
    Line(("target",)), Line(("draft_models",)), Line(("tokenizer",)), Line(("text_encoder",)), Line(("classes",)),
    Line(("parts",)),
  )),
  Group("Defaults, which a command reads where nothing else is said", (Line(("method",)), Line(("draft",)))),
)  # fmt: skip


@click.command(cls=MethodCommand, groups=_GROUPS)
@click.argument("folder", type=PATH)
@click.option("--target", type=PATH, metavar="DIR", help="The network that everything is decoded for.")
@click.option("--draft-model", "draft_models", type=PATH, multiple=True, metavar="DIR",
              help="A draft or head, named after its folder; repeat.")  # fmt: skip
@click.option("--tokenizer", type=PATH, metavar="DIR", help="Image tokenizer: the part `tokenizer`.")
@click.option("--text-encoder", type=PATH, metavar="DIR", help="T5 or small text encoder: the part `text`.")
@click.option("--classes", type=PATH, metavar="FILE", help="Names of the classes, one a line: the part `classes`.")
@click.option("--part", "parts", multiple=True, metavar="NAME=VALUE", help="Another part, a path or a number; repeat.")
@common("method", "draft")
def bundle(**options: Any) -> None:
  """Write or update FOLDER/bundle.json: networks by paths from FOLDER, and defaults.

  \b
  jaxspec bundle own --target own/c2i --tokenizer own/vq --draft-model own/eagle
  """
  from jaxspec.io.bundle import BUNDLE_FILE, write_bundle
  from jaxspec.run.decode_options import DecodeOptions

  decoding = DecodeOptions.of(options)
  decoding.check()
  folder = options["folder"]
  if folder.exists() and not folder.is_dir():
    raise UserError(f"Must have a folder for the bundle, we instead got {folder}")
  with _there(folder):
    made = write_bundle(folder, **interruptible(_fields, options, decoding))
  click.echo(f"wrote {folder / BUNDLE_FILE}: target {made.target}, drafts {', '.join(made.drafts) or '(none)'}")


@contextlib.contextmanager
def _there(folder: Path) -> Iterator[None]:
  """Makes a folder, and removes it if it stays empty."""
  new = [path for path in (folder, *folder.parents) if not path.exists()]
  try:
    folder.mkdir(parents=True, exist_ok=True)
    yield
  except OSError as error:
    raise UserError(f"Cannot write to {folder}: {error.strerror or error}") from error
  finally:
    for path in new:
      with contextlib.suppress(OSError):
        path.rmdir()


def _fields(options: dict[str, Any], decoding) -> dict[str, Any]:
  """Arguments of `jaxspec.io.bundle.write_bundle`, checked.

  Raises:
    ValueError: in one line, for missing networks, mismatches, or settings of other networks.
  """
  from jaxspec.io import hub
  from jaxspec.io.bundle import BUNDLE_FILE, completed, read_bundle
  from jaxspec.io.checkpoints import CONFIG_FILE, read_config
  from jaxspec.io.model_folders import model_folder, network_name
  from jaxspec.run.decode_options import flag
  from jaxspec.run.loading import load_pipeline

  folder = options["folder"]
  fields: dict[str, Any] = {}
  inside = lambda path: str(path) if hub.is_reference(path) else _relative(path, folder)
  is_network = lambda path: (path / CONFIG_FILE).is_file()
  for path in (options["target"], options["tokenizer"], options["text_encoder"], *options["draft_models"]):
    if path is not None:
      read_config(model_folder(path))  # an error with the given name if there is no network
  if options["target"] is not None:
    fields["target"] = inside(options["target"])
  elif (folder / BUNDLE_FILE).exists() or is_network(folder) or is_network(folder / "target"):
    old = read_bundle(folder, complete=False)
    fields = dict(target=old.target, drafts=dict(old.drafts), parts=dict(old.parts))
  if fields.get("target") is None:
    raise UserError("Must have --target DIR: there is no network in the bundle yet")
  fields["drafts"] = fields.get("drafts", {}) | {network_name(path): inside(path) for path in options["draft_models"]}
  fields["parts"] = fields.get("parts", {}) | _parts(options, inside)
  made = completed(folder, **fields)
  pipeline = load_pipeline(made, target_weights=False)
  _check_drafts(pipeline, {name: made.folder(draft) for name, draft in made.drafts.items()})
  family = pipeline.family
  sampling = decoding.for_sampling(family.sampling_type)
  if not made.defaults.sampling:  # a network without a bundle file has them too
    sampling = family.published_sampling() | sampling
  settings = {name: value for name, value in decoding.options.items() if name not in sampling}
  of_some = {name for each in pipeline.methods() for name in pipeline.without_draft(each).options()}
  if unread := sorted(settings.keys() - of_some):
    # A missing draft is said first: its methods may read the setting.
    fields |= dict(method=decoding.method, draft=decoding.draft)
    dataclasses.replace(pipeline, defaults=completed(folder, **fields).defaults).method()
    wanted = f"settings of {family.space.noun} or of a method of these drafts"
    raise UserError(f"Must have {wanted}, we instead got {flag(unread[0])}")
  fields |= dict(method=decoding.method, draft=decoding.draft, sampling=sampling, options=settings)
  made = dataclasses.replace(pipeline, defaults=completed(folder, **fields).defaults)
  method = made.method()
  if (length := family.row_tokens(made.sampling())) is not None:
    method.check_length(length)
  return fields


def _relative(path: str | Path, folder: Path) -> str:
  return Path(os.path.relpath(Path(path).resolve(), folder.resolve())).as_posix()


def _parts(options: dict[str, Any], inside) -> dict[str, Any]:
  """Parts by name: paths from the folder of the bundle, numbers, and names of classes."""
  from jaxspec.cli.prompts import read_prompt_file

  named = {"tokenizer": options["tokenizer"], "text": options["text_encoder"]}
  found = {name: inside(path) for name, path in named.items() if path is not None}
  if options["classes"] is not None:
    found["classes"] = read_prompt_file(options["classes"])
  for given in options["parts"]:
    name, _, value = given.partition("=")
    if not name or not value:
      raise UserError(f"Must have --part NAME=VALUE, we instead got {given!r}")
    found[name] = _number(value)
    if found[name] is None:
      if not Path(value).exists():
        raise UserError(f"Must have a path or a number as --part {name}, there is no {value}")
      found[name] = inside(value)
  return found


def _number(text: str) -> float | None:
  try:
    value = float(text)
  except ValueError:
    return None
  return value if math.isfinite(value) else None


def _check_drafts(pipeline, folders: dict[str, Path]) -> None:
  """Checks that drafts exist and fit a method for this target; weights are not read."""
  from jaxspec.io import checkpoints
  from jaxspec.io.model_folders import model_folder
  from jaxspec.methods import SAME_FAMILY
  from jaxspec.run.loading import check_families

  family = pipeline.family
  check_families(family, {folder: pipeline.drafts.family_name(name) for name, folder in folders.items()})
  for folder in folders.values():
    draft = checkpoints.load(model_folder(folder), weights=False)
    family.check_fit(draft, SAME_FAMILY if draft.family_name in family.draft_families else draft.family_name)
