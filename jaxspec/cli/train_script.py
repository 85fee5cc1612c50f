"""``jaxspec train script``: runs a Python file with ``get_config(arg)`` and ``train(config, run_dir, resume)``."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import click
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from jaxspec.cli.settings_tree import settings_tree
from jaxspec.core.command_line import PATH, UserError, set_option
from jaxspec.core.error_lines import one_line


@click.command()
@click.argument("spec", metavar="FILE[:ARG]")
@set_option
@click.option("--run-dir", type=PATH, metavar="DIR", help="[default: runs/NAME of the file]")
@click.option("--resume/--no-resume", default=True, show_default=True, help="Go on with a run, or refuse its folder.")
@click.option("--dry-run", is_flag=True, help="Only show the resolved config.")
def script(spec: str, assignments: tuple[str, ...], run_dir: Path | None, resume: bool, dry_run: bool) -> None:
  """Run a training that a Python file defines, with ARG as the argument of its config.

  \b
  jaxspec train script experiments/train/scene_target.py --set loop.num_steps=500
  """
  from jaxspec.core.overrides import override

  file, arg = split_spec(spec)
  module = load_config_file(file)
  try:
    config = module.get_config(arg)
  except (ValueError, click.ClickException):
    raise  # these already have a message for users
  except Exception as error:
    raise UserError(f"Cannot get a config for {arg!r} from {file}: {type(error).__name__}, {one_line(error)}") from error
  if not dataclasses.is_dataclass(config) or isinstance(config, type):
    raise UserError(f"Must have a dataclass from get_config in {file}, we instead got {type(config).__name__}")
  config = override(config, assignments)
  run_dir = run_dir or Path("runs") / file.stem
  title = Text.assemble((file.name, "bold"), (f"  into {run_dir}" + ("" if resume else ", from the start"), "dim"))
  Console(highlight=False).print(settings_tree(Tree(title, guide_style="dim"), config))
  if dry_run:
    return
  is_new = not run_dir.exists()
  try:
    run_dir.mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise UserError(f"Cannot write to {run_dir}: {error.strerror}, choose another --run-dir") from error
  from jaxspec.training.train_loop import TrainingDiverged

  try:
    module.train(config, run_dir, resume)
  except TrainingDiverged as error:
    raise UserError(f"{one_line(error)}: try a lower learning rate (--set optimizer.learning_rate=...)") from error
  finally:
    if is_new:
      with contextlib.suppress(OSError):
        run_dir.rmdir()  # succeeds only if it is empty


def split_spec(spec: str) -> tuple[Path, str]:
  """``FILE[:ARG]`` to the file and the argument, empty by default."""
  if Path(spec).is_file():
    return Path(spec), ""
  name, sign, arg = spec.rpartition(":")
  path = Path(name if sign else spec)
  if not path.is_file():
    raise UserError(f"No config file at {path}")
  return path, arg


def load_config_file(file: Path) -> ModuleType:
  """Imports a config file by its path, within its package if it has one.

  Raises:
    UserError: if it cannot be imported or lacks one of the two functions.
  """
  if file.suffix != ".py":
    raise UserError(f"Must have a Python file as config, we instead got {str(file)!r}")
  file = file.resolve()
  root, names = file.parent, [file.stem]
  while (root / "__init__.py").is_file():
    names.insert(0, root.name)
    root = root.parent
  try:
    if len(names) > 1:
      if str(root) not in sys.path:
        sys.path.insert(0, str(root))
      module = importlib.import_module(".".join(names))
    else:
      spec = importlib.util.spec_from_file_location(f"jaxspec_config_{file.stem}", file)
      assert spec is not None and spec.loader is not None  # for an existing file
      module = importlib.util.module_from_spec(spec)
      sys.modules[spec.name] = module  # dataclasses look up their module
      spec.loader.exec_module(module)
  except Exception as error:
    raise UserError(f"Cannot import {file}: {type(error).__name__}, {one_line(error)}") from error
  if missing := [name for name in ("get_config", "train") if not callable(getattr(module, name, None))]:
    raise UserError(f"Must have functions get_config and train in {file}, we instead got no {' and no '.join(missing)}")
  return module
