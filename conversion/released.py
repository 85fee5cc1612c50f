"""What converters recognise of their own accord (`jaxspec.io.converters.Released`): folders of the hub, files of tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxspec.io.converters import Released
from jaxspec.models import registry

from . import command, engine, hugging_face


def of_model_type(
  model_type: str, convert_folder: Callable[..., Any], read_config: Callable[[Path], Any] | None = None
) -> Released:
  """Folders of the hub, by the ``model_type`` of their ``config.json``.

  Args:
    convert_folder: ``(source, destination, fields, on_write=...)``; the fields are empty.
    read_config: as in `Released`.
  """

  def convert(source: Path, destination: Path, *, on_write: engine.OnWrite) -> Any:
    return convert_folder(source, destination, {}, on_write=on_write)

  reads_folder = lambda names, config: config.get("model_type") == model_type
  return Released(convert, reads_folder=reads_folder, read_config=read_config)


def of_folder(architecture: hugging_face.Architecture, read: hugging_face.ReadFn | None = None) -> Released:
  """Folders of an architecture.

  Args:
    read: as for `hugging_face.convert_folder`.
  """

  def convert_folder(source: Path, destination: Path, fields: dict[str, Any], *, on_write: engine.OnWrite) -> Any:
    return hugging_face.convert_folder(source, destination, architecture, fields, None, read, on_write=on_write)

  def read_config(folder: Path) -> Any:
    return registry.make_config(architecture.family.name, hugging_face.read_fields(folder, architecture))

  return of_model_type(architecture.model_type, convert_folder, read_config)


def of_file(
  family: engine.Family,
  *,
  own: Callable[[dict[str, Any]], dict[str, Any]] = lambda fields: fields,
  convert: Callable[..., Any] = engine.convert_file,
) -> Released:
  """Files whose tensors all have names of the family's table; ``NAME.json`` beside one has the fields of ``--config``.

  Args:
    own, convert: as for `command.run`.
  """

  def convert_it(source: Path, destination: Path, *, on_write: engine.OnWrite) -> Any:
    return convert(source, destination, family, fields_beside(source, family, own), on_write=on_write)

  return Released(convert_it, reads_file=lambda path, content: engine.knows(family, content))


def fields_beside(
  source: Path, family: engine.Family, own: Callable[[dict[str, Any]], dict[str, Any]] = lambda fields: fields
) -> dict[str, Any]:
  """Config fields of the JSON file beside a file, empty without one.

  Raises:
    ValueError: one line, for a file that cannot be read, or unknown fields.
  """
  file = source.with_suffix(".json")
  fields = own(command.read_fields(file)) if file.is_file() else {}
  command.check_fields(family, fields, str(file))
  return fields
