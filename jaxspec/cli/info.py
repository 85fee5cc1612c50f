"""``jaxspec info``: the content of a checkpoint or a bundle, from headers without weights."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree
from safetensors import SafetensorError, safe_open

from jaxspec.cli.networks import sources_of
from jaxspec.cli.options import common
from jaxspec.core.command_line import PATH, UserError
from jaxspec.core.error_lines import one_line
from jaxspec.io.shipped import BUNDLES, shipped
from jaxspec.io.stored_files import check_readable

if TYPE_CHECKING:
  from jaxspec.io.bundle import Bundle

_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}
_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I32": "int32", "I8": "int8"}


class Leaf(NamedTuple):
  """One array of a checkpoint, by its header."""

  name: str
  shape: tuple[int, ...]
  dtype: str  # of safetensors

  @property
  def count(self) -> int:
    return math.prod(self.shape)

  @property
  def bytes(self) -> int:
    return self.count * _BYTES.get(self.dtype, 1)


@click.command()
@click.argument("path", type=PATH, required=False)
@click.option("--full", is_flag=True, help="Nothing shortened; of a bundle also the arrays.")
@common("model")
def info(full: bool, **options: Any) -> None:
  """Show networks, sizes, settings and figures of the checkpoint or bundle in PATH (or of a shipped one of that name).

  Without PATH: list the shipped bundles.
  """
  from jaxspec.io.bundle import BUNDLE_FILE, read_bundle
  from jaxspec.io.checkpoints import CONFIG_FILE
  from jaxspec.io.model_folders import model_folder

  if (path := sources_of(options, "path").model) is None:
    return _print_shipped(Console(highlight=False))
  path, problems = model_folder(path), []
  is_bundle = (path / BUNDLE_FILE).exists()  # also a network with heads in its folder
  if not is_bundle and ((path / CONFIG_FILE).is_file() or not path.is_dir()):
    tree = _checkpoint_tree(path, Text(path.resolve().name, style="bold"), arrays=True, full=full)
  else:
    tree = _bundle_tree(read_bundle(path), problems, full)
  Console(highlight=False).print(tree)
  if problems:
    raise UserError("; ".join(problems))


def _print_shipped(console: Console) -> None:
  """One line for every shipped bundle."""
  from jaxspec.io.bundle import read_bundle
  from jaxspec.io.checkpoints import read_config

  table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
  for title in ("bundle", "target", "drafts", "default method"):
    table.add_column(title, overflow="fold")
  for name in filter(lambda name: shipped(name).is_dir(), BUNDLES):
    bundle = read_bundle(shipped(name))
    family = read_config(bundle.target_folder())["family"]
    table.add_row(Text(name, style="bold"), family, ", ".join(bundle.drafts) or "none", bundle.defaults.method or "")
  console.print(table)
  console.print()
  console.print("jaxspec info NAME shows what one of them holds.", style="dim", soft_wrap=True)


def _bundle_tree(bundle: Bundle, problems: list[str], full: bool) -> Tree:
  """Settings first, then the target's parts, the target, and its drafts."""
  from jaxspec.io.model_folders import model_folder

  version = "" if bundle.version is None else f" of version {bundle.version}"
  tree = Tree(Text.assemble((bundle.name, "bold"), (f"  bundle{version}", "dim")), guide_style="dim")
  defaults = bundle.defaults
  chosen = {name: getattr(defaults, name) for name in ("method", "draft")} | dict(defaults.options)
  for name, fields in (("defaults", chosen), ("sampling", defaults.sampling)):
    if shown := _fields(fields):
      tree.add(_entry(name, shown))
  networks = []
  for name, value in bundle.parts.items():
    if isinstance(value, str) and Path(value).suffix != ".json":
      networks.append((name, value))
    else:
      tree.add(_entry(name, _part(bundle.path, name, value, full)))
  networks += [("target", bundle.target), *((f"draft {name}", folder) for name, folder in bundle.drafts.items())]
  for title, folder in networks:
    try:
      path = model_folder(bundle.folder(folder))
      tree.add(_checkpoint_tree(path, Text(title, style="bold cyan"), arrays=full, full=full))
    except (ValueError, click.ClickException) as error:
      tree.add(Text.assemble((title, "bold cyan"), ("  cannot be read", "bold red")))
      problems.append(one_line(error))
  return tree


def _part(path: Path, name: str, value: Any, full: bool) -> str:
  """A part without a network: a vocabulary, a list of classes, a number."""
  if isinstance(value, str):
    return _vocabulary(path / value)
  if isinstance(value, list | tuple):
    return f"{len(value)}: {_shown(', '.join(map(str, value)), None if full else 400)}"
  return _shown(value, None if full else 160)


def _checkpoint_tree(path: Path, title: Text, *, arrays: bool, full: bool) -> Tree:
  from jaxspec.io.checkpoints import PARAMS_FILE, read_config

  document = read_config(path)
  leaves = read_header(path / PARAMS_FILE)
  tree = Tree(title.append(f"  {document['family']}", style="default").append(f"  {_totals(leaves)}", style="dim"))
  tree.guide_style = "dim"
  try:
    tree.add(_entry("config", _fields(document["config"])))
    meta = dict(document.get("meta") or {})
  except (AttributeError, TypeError, ValueError) as error:
    raise UserError(f"Corrupt {path}: {one_line(error)}") from error
  for name, value in meta.items():
    tree.add(_entry(name, _shown(value, None if full else 160)))
  if arrays:
    tree.add(Text("arrays", style="dim")).add(_arrays_table(leaves))
  return tree


def _arrays_table(leaves: list[Leaf]) -> Table:
  table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
  for justify in ("left", "right", "left", "right"):
    table.add_column(justify=justify)
  for name, times, leaf in group(leaves):
    shape = Text(" x ".join(map(str, leaf.shape)) or "scalar", style="green")
    count = Text(_count(leaf.count * times), style="dim")
    table.add_row(name, Text(f"{times} of" if times > 1 else "", style="dim"), shape, count)
  return table


def read_header(file: Path) -> list[Leaf]:
  """Names, shapes and dtypes of a safetensors file.

  Raises:
    UserError: if the file is missing or its header cannot be read.
  """
  if not file.exists():
    raise UserError(f"No {file.name} in {file.parent}: the checkpoint is incomplete")
  check_readable(file)
  try:
    with safe_open(file, framework="numpy") as archive:
      parts = [(name, archive.get_slice(name)) for name in archive.keys()]
      return [Leaf(name, tuple(part.get_shape()), part.get_dtype()) for name, part in parts]
  except (SafetensorError, OSError) as error:
    raise UserError(f"Corrupt {file}: {one_line(error)}") from error


def group(leaves: Iterable[Leaf]) -> list[tuple[str, int, Leaf]]:
  """Arrays of equal shape that differ in a number only become one: ``layers_*.wo.weight``, their number, the first."""
  natural = lambda leaf: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", leaf.name)]
  leaves = sorted(leaves, key=natural)
  kind = lambda leaf: (re.sub(r"(?<=[_.])\d+(?=[_.]|$)", "*", leaf.name), leaf.shape, leaf.dtype)
  times = Counter(map(kind, leaves))
  firsts: dict[Any, Leaf] = {}
  for leaf in leaves:
    firsts.setdefault(kind(leaf), leaf)
  return [(key[0] if times[key] > 1 else leaf.name, times[key], leaf) for key, leaf in firsts.items()]


def _entry(name: str, value: str) -> Text:
  return Text.assemble((f"{name}  ", "dim"), value)


def _fields(fields: Mapping[str, Any]) -> str:
  shown = lambda value: str(value).replace(", ", ",")  # a field is one word, so that lines break between fields
  return " ".join(f"{name}={shown(value)}" for name, value in _flat(fields).items() if value is not None)


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
  """Nested fields, with dotted names."""
  nested = {name: _flat(value) if isinstance(value, dict) else {"": value} for name, value in fields.items()}
  return {f"{name}.{inner}".rstrip("."): value for name, part in nested.items() for inner, value in part.items()}


def _rounded(value: Any) -> Any:
  """The value with floats of six digits."""
  if isinstance(value, dict):
    return {name: _rounded(inner) for name, inner in value.items()}
  if isinstance(value, list):
    return [_rounded(inner) for inner in value]
  return float(f"{value:.6g}") if isinstance(value, float) else value


def _shown(value: Any, limit: int | None) -> str:
  value = value if limit is None else _rounded(value)
  if isinstance(value, dict) and not any(isinstance(v, dict | list) for v in value.values()):
    return _fields(value)
  text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False).replace('"', "")
  text = " ".join(text.split())
  return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"


def _vocabulary(file: Path) -> str:
  check_readable(file)
  try:
    return f"{len(json.loads(file.read_text(encoding='utf-8'))['model']['vocab']):,} word pieces"
  except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
    raise UserError(f"Corrupt {file}: {one_line(error)}") from error


def _totals(leaves: list[Leaf]) -> str:
  dtypes = " and ".join(sorted({_NAMES.get(leaf.dtype, leaf.dtype.lower()) for leaf in leaves}))
  size = sum(leaf.bytes for leaf in leaves)
  return f"{_count(sum(leaf.count for leaf in leaves))} parameters, {_size(size)}, {dtypes}"


def _count(number: int) -> str:
  for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
    if number >= scale:
      return f"{number / scale:.3g} {unit}"
  return str(number)


def _size(number: int) -> str:
  for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
    if number >= scale:
      return f"{number / scale:.3g} {unit}"
  return f"{number} B"
