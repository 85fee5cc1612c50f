"""Converters of released weights by name: the commands below ``jaxspec convert``."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

from jaxspec.core.plugins import Registry

# A wheel carries the converters inside of the package, as it carries checkpoints.
_PACKAGE = "jaxspec._conversion" if importlib.util.find_spec("jaxspec._conversion") else "conversion"


class Converter(NamedTuple):
  """Where a command lives, which is imported when it is used, and its line in the overview."""

  target: str  # "module:attribute", a click command
  summary: str


CONVERTERS: Registry[Converter] = Registry(
  "converter",
  {
    "llamagen": Converter(f"{_PACKAGE}.llamagen:main", "A LlamaGen transformer (class- or text-conditional)."),
    "gpt-neo": Converter(f"{_PACKAGE}.gpt_neo:main", "A GPT-Neo language model."),
    "llama": Converter(f"{_PACKAGE}.llama:main", "A Llama language model, also from a .gguf file."),
    "llamagen-vq": Converter(f"{_PACKAGE}.llamagen_vq:main", "A LlamaGen image tokenizer (VQ-16, VQ-8)."),
    "t5": Converter(f"{_PACKAGE}.t5:main", "The encoder of a T5 1.1 or Flan-T5, for captions."),
    "chameleon": Converter(f"{_PACKAGE}.chameleon:main", "An Anole or Lumina-mGPT network (Chameleon)."),
    "chameleon-vq": Converter(f"{_PACKAGE}.chameleon_vq:main", "The image tokenizer of Chameleon networks."),
    "emu3": Converter(f"{_PACKAGE}.emu3:main", "An Emu3 network that draws images (Emu3-Gen)."),
    "emu3-vq": Converter(f"{_PACKAGE}.emu3_vq:main", "The vision tokenizer of Emu3."),
    "janus": Converter(f"{_PACKAGE}.janus:main", "A Janus-Pro network with its image tokenizer."),
    "mar": Converter(f"{_PACKAGE}.mar:main", "A MAR network with its diffusion head (MAR-B, MAR-L, MAR-H)."),
    "mar-vae": Converter(f"{_PACKAGE}.mar_vae:main", "MAR's KL autoencoder (KL-16)."),
    "var": Converter(f"{_PACKAGE}.var:main", "A VAR network (d16, d20, d24, d30, d36)."),
    "var-vae": Converter(f"{_PACKAGE}.var_vae:main", "VAR's image tokenizer of scales."),
    "dit": Converter(f"{_PACKAGE}.dit:main", "A DiT network (DiT-S to DiT-XL)."),
    "dit-vae": Converter(f"{_PACKAGE}.dit_vae:main", "Stable Diffusion's KL autoencoder, for DiT."),
  },
)


def register(name: str, target: str, summary: str) -> None:
  """Adds ``jaxspec convert NAME``.

  Args:
    name: of the command.
    target: ``"module:attribute"`` of a click command.
    summary: one line of the help.
  Raises:
    ValueError: for a name that is taken.
  """
  CONVERTERS.add(name, Converter(target, summary))
