"""The command line of the converters: common arguments, and progress on stderr."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import jax

from jaxspec.core.command_line import PATH, OneLineErrors
from jaxspec.models import registry
from jaxspec.render.working import Working

from . import engine

_PLACES = ("source", "destination")

averaged_option = click.option(
  "--ema/--no-ema", default=None, help="Averaged or raw weights of a training file.  [default: averaged where there are any]"
)


def converter(*, exports: bool = True, takes_fields: bool = True) -> Callable[[Callable[..., str]], click.Command]:
  """The command of a converter: ``SRC DST``, ``--config`` if it ``takes_fields``, ``--export`` if it ``exports``, and the
  options of its function.

  The function receives all of them as keywords and returns a message about the written files.
  """
  options = [click.argument(name, metavar=metavar, type=PATH) for name, metavar in zip(_PLACES, ("SRC", "DST"))]
  if takes_fields:
    of_fields = "JSON object of config fields that SRC lacks, or that replace those of SRC."
    options.append(click.option("--config", "config_file", type=PATH, metavar="FILE", help=of_fields))
  if exports:
    of_export = "The other direction: SRC is a checkpoint folder, DST what is written."
    options.append(click.option("--export", is_flag=True, help=of_export))

  def decorate(function: Callable[..., str]) -> click.Command:
    @functools.wraps(function)
    def call(**options: Any) -> None:
      jax.config.update("jax_platforms", "cpu")  # weights are transformed on the CPU, without an accelerator
      if options.get("export"):
        _check_alone(click.get_current_context())
      click.echo(f"Wrote {options['destination']}: {function(**options)}")

    whole = functools.reduce(lambda decorated, option: option(decorated), reversed(options), call)
    return click.command(cls=OneLineErrors)(whole)

  return decorate


def _check_alone(context: click.Context) -> None:
  """Raises a ValueError for options that ``--export`` does not read."""
  names = [param.name for param in context.command.params if param.name not in (*_PLACES, "export")]
  if any(context.get_parameter_source(name or "") is click.core.ParameterSource.COMMANDLINE for name in names):
    flags = [param.opts[0] for param in context.command.params if param.name in names]
    wrong = f"no {flags[0]}" if len(flags) == 1 else f"neither {' nor '.join(flags)}"
    raise ValueError(f"Must have {wrong} with --export")


@contextlib.contextmanager
def shown(of: str = "") -> Iterator[engine.OnWrite]:
  """Gives the callback of a conversion, which shows the number of written tensors on stderr.

  Args:
    of: text before the stages.
  """
  with Working(f"{of}reading weights") as working:

    def on_write(done: int, total: int) -> None:
      if not done:
        working(f"{of}writing weights")
      working.step(done, total, "tensor")

    yield on_write


def read_fields(path: Path | None) -> dict[str, Any]:
  """Config fields of a JSON file; empty without one.

  Raises:
    ValueError: one line naming the file.
  """
  if path is None:
    return {}
  try:
    fields = json.loads(path.read_text())
  except (OSError, ValueError, RecursionError) as error:
    raise ValueError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
  if not isinstance(fields, dict):
    raise ValueError(f"Must have a JSON object with config fields in {path}, we instead got {type(fields).__name__}")
  return fields


def check_fields(family: engine.Family, fields: dict[str, Any], where: str = "--config") -> None:
  """Raises a ValueError for fields that the family's config does not have; ``where`` they are from."""
  known = {f for f in registry.FAMILIES[family.name].config_class.__dataclass_fields__}
  if unknown := sorted(set(fields) - known):
    raise ValueError(f"Must have fields known to {family.name} in {where}, we instead got {', '.join(unknown)}")


def run(
  family: engine.Family,
  *,
  source: Path,
  destination: Path,
  config_file: Path | None,
  export: bool,
  own: Callable[[dict[str, Any]], dict[str, Any]] = lambda fields: fields,
  convert: Callable[..., Any] = engine.convert_file,
) -> Any:
  """Runs a converter of files; returns the config.

  Args:
    own: function from the fields of the user's config file to fields of the family's config, which are then checked.
    convert: writes the checkpoint folder of a source, ``(source, destination, family, fields, on_write=...)``.
  Raises:
    ValueError: one line; nothing is left at the destination then.
  """
  if export:
    return engine.export_file(source, destination, family)
  fields = own(read_fields(config_file))
  check_fields(family, fields)
  with shown() as on_write:
    return convert(source, destination, family, fields, on_write=on_write)
