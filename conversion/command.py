"""The command line of the converters: arguments that all take, and errors of one line."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import jax
from safetensors import SafetensorError

from jaxspec.core.error_lines import show_trace
from jaxspec.models import registry
from jaxspec.render.working import Working

from . import engine


class ConversionError(click.ClickException):
  """A user error. It is reported as one line, also if the command is part of a larger one."""

  exit_code = 2


class OneLineCommand(click.Command):
  """A command whose every user error is one line on stderr and exit status 2."""

  def invoke(self, ctx: click.Context) -> Any:
    jax.config.update("jax_platforms", "cpu")  # weights are turned on the host: an accelerator is neither needed nor taken
    try:
      return super().invoke(ctx)
    except (ValueError, OSError, MemoryError, SafetensorError) as error:
      raise ConversionError(" ".join(str(error).split()) or type(error).__name__) from error

  def main(self, *args, standalone_mode: bool = True, **kwargs):
    try:
      result = super().main(*args, standalone_mode=False, **kwargs)
    except click.exceptions.Abort:
      message = "Aborted"
    except click.ClickException as error:
      show_trace()
      message = error.format_message()
    else:
      if standalone_mode:
        sys.exit(result if isinstance(result, int) else 0)
      return result
    click.echo("Error: " + " ".join(message.split()), err=True)
    sys.exit(2)


@contextlib.contextmanager
def shown() -> Iterator[None]:
  """Conversions inside of the context show how far they are, on stderr."""
  with Working("reading weights") as working:

    def tell(done: int, total: int) -> None:
      if not done:
        working("writing weights")
      working.step(done, total, "tensor")

    with engine.watched(tell):
      yield


def read_fields(path: str | None) -> dict[str, Any]:
  """Config fields of a JSON file; empty without one.

  Raises:
    ValueError: one line naming the file.
  """
  if path is None:
    return {}
  try:
    fields = json.loads(Path(path).read_text())
  except (OSError, ValueError, RecursionError) as error:
    raise ValueError(f"Cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
  if not isinstance(fields, dict):
    raise ValueError(f"Must have a JSON object with config fields in {path}, we instead got {type(fields).__name__}")
  return fields


def check_fields(family: engine.Family, fields: dict[str, Any]) -> None:
  """Raises a ValueError for fields that the family's config does not have."""
  known = {f for f in registry.FAMILIES[family.name].config_class.__dataclass_fields__}
  if unknown := sorted(set(fields) - known):
    raise ValueError(f"Must have fields known to {family.name} in --config, we instead got {', '.join(unknown)}")


def common_options(command: Callable) -> Callable:
  """Arguments and options that every converter takes."""
  decorators = (
    click.argument("source", metavar="SRC", type=click.Path()),
    click.argument("destination", metavar="DST", type=click.Path()),
    click.option("--config", "config_file", type=click.Path(), help="JSON object with config fields the file lacks."),
    click.option("--export", is_flag=True, help="The other direction: SRC is a checkpoint folder, DST a file."),
  )
  return functools.reduce(lambda decorated, decorator: decorator(decorated), reversed(decorators), command)


averaged_option = click.option(
  "--ema/--no-ema", default=None, help="Averaged or raw weights of a training file; averaged where there are any."
)


def run(
  source: str,
  destination: str,
  family: engine.Family,
  *,
  config_file: str | None,
  export: bool,
  own: Callable[[dict[str, Any]], dict[str, Any]] = lambda fields: fields,
  convert: Callable[[str, str, engine.Family, dict[str, Any]], Any] = engine.convert_file,
  **given: Any,
) -> Any:
  """What a converter of files does; returns the config.

  Args:
    own: from what the user's config file holds to fields of the family's config, which are then checked.
    convert: writes the checkpoint folder of a source.
    given: further options that ``--export`` refuses, by their names with underscores; None and False mean not given.
  Raises:
    ValueError: one line; nothing is left at the destination then.
  """
  if not export:
    fields = own(read_fields(config_file))
    check_fields(family, fields)
    with shown():
      return convert(source, destination, family, fields)
  options = {"config": config_file} | given
  if any(value not in (None, False) for value in options.values()):
    names = [f"--{name.replace('_', '-')}" for name in options]
    wrong = f"no {names[0]}" if len(names) == 1 else f"neither {' nor '.join(names)}"
    raise ValueError(f"Must have {wrong} with --export")
  return engine.export_file(source, destination, family)
