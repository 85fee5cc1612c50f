"""Converters of released weights by name: the commands below ``jaxspec convert``, and what each of them recognises."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from jaxspec.core.plugins import Registry

# A wheel carries the converters inside of the package, as it carries checkpoints.
_PACKAGE = "jaxspec._conversion" if importlib.util.find_spec("jaxspec._conversion") else "conversion"


class ConvertFn(Protocol):
  """Writes the checkpoint folder ``destination`` of ``source``; a ValueError of one line if it cannot."""

  def __call__(self, source: Path, destination: Path, *, on_write: Callable[[int, int], None]) -> Any: ...


class Released(NamedTuple):
  """What a converter reads without being named and without options.

  Attributes:
    convert: the conversion; ``on_write`` gets the numbers of written and of all tensors.
    reads_folder: whether it reads a folder, by the names of its files (those in folders below with ``/``) and the content of
      its ``config.json``, ``{}`` without one.
    reads_file: whether it reads a file, by its path and its content: tensors by name, perhaps in mappings around them, none
      for a format that is not one of those (``.gguf``).
    read_config: the config of a folder's network, from its ``config.json`` and the small files beside it, without weights; a
      ValueError of one line if it does not fit. None if only the tensors tell the config.
  """

  convert: ConvertFn
  reads_folder: Callable[[Set[str], Mapping[str, Any]], bool] = lambda names, config: False
  reads_file: Callable[[Path, Mapping[Any, Any]], bool] = lambda path, content: False
  read_config: Callable[[Path], Any] | None = None


class Converter(NamedTuple):
  """Where a command lives, which is imported when it is used, and its line in the overview.

  Attributes:
    target: ``"module:attribute"`` of a click command.
    summary: one line of the help.
    released: ``"module:attribute"`` of a `Released`; None for a converter that must be named.
  """

  target: str
  summary: str
  released: str | None = None


def _own(module: str, summary: str) -> Converter:
  return Converter(f"{_PACKAGE}.{module}:main", summary, f"{_PACKAGE}.{module}:RELEASED")


# The one that finds the others.
AUTO = "auto"


CONVERTERS: Registry[Converter] = Registry(
  "converter",
  {
    AUTO: Converter(f"{_PACKAGE}.auto:main", "Any of the below, recognised by its files; also hf:ORG/NAME."),
    "llamagen": _own("llamagen", "A LlamaGen transformer (class- or text-conditional)."),
    "gpt-neo": _own("gpt_neo", "A GPT-Neo language model."),
    "llama": _own("llama", "A Llama language model, also from a .gguf file."),
    "llamagen-vq": _own("llamagen_vq", "A LlamaGen image tokenizer (VQ-16, VQ-8)."),
    "t5": _own("t5", "The encoder of a T5 1.1 or Flan-T5, for captions."),
    "chameleon": _own("chameleon", "An Anole or Lumina-mGPT network (Chameleon)."),
    "chameleon-vq": _own("chameleon_vq", "The image tokenizer of Chameleon networks."),
    "emu3": _own("emu3", "An Emu3 network that draws images (Emu3-Gen)."),
    "emu3-vq": _own("emu3_vq", "The vision tokenizer of Emu3."),
    "janus": _own("janus", "A Janus-Pro network with its image tokenizer."),
    "mar": _own("mar", "A MAR network with its diffusion head (MAR-B, MAR-L, MAR-H)."),
    "mar-vae": _own("mar_vae", "MAR's KL autoencoder (KL-16)."),
    "var": _own("var", "A VAR network (d16, d20, d24, d30, d36)."),
    "var-vae": _own("var_vae", "VAR's image tokenizer of scales."),
    "dit": _own("dit", "A DiT network (DiT-S to DiT-XL)."),
    "dit-vae": _own("dit_vae", "Stable Diffusion's KL autoencoder, for DiT."),
  },
)


def register(name: str, target: str, summary: str, released: str | None = None) -> None:
  """Adds ``jaxspec convert NAME``.

  Args:
    name: of the command.
    target: ``"module:attribute"`` of a click command.
    summary: one line of the help.
    released: ``"module:attribute"`` of a `Released`, by which `jaxspec.load_pipeline` finds the converter.
  Raises:
    ValueError: for a name that is taken.
  """
  CONVERTERS.add(name, Converter(target, summary, released))
