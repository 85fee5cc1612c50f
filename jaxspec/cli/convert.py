"""``jaxspec convert``: released weights to checkpoint folders, implemented in ``conversion/``."""

from __future__ import annotations

import importlib.util

import click

from jaxspec.cli.lazy import LazyCommand, LazyGroup

# A wheel has the converters inside of the package, like the checkpoints.
_PACKAGE = "jaxspec._conversion" if importlib.util.find_spec("jaxspec._conversion") else "conversion"

COMMANDS = {
  "llamagen": LazyCommand(f"{_PACKAGE}.llamagen:main", "A LlamaGen transformer (class- or text-conditional)."),
  "gpt-neo": LazyCommand(f"{_PACKAGE}.gpt_neo:main", "A GPT-Neo language model."),
  "llama": LazyCommand(f"{_PACKAGE}.llama:main", "A Llama language model, also from a .gguf file."),
  "llamagen-vq": LazyCommand(f"{_PACKAGE}.llamagen_vq:main", "A LlamaGen image tokenizer (VQ-16, VQ-8)."),
  "t5": LazyCommand(f"{_PACKAGE}.t5:main", "The encoder of a T5 1.1 or Flan-T5, for captions."),
  "chameleon": LazyCommand(f"{_PACKAGE}.chameleon:main", "An Anole or Lumina-mGPT network (Chameleon)."),
  "chameleon-vq": LazyCommand(f"{_PACKAGE}.chameleon_vq:main", "The image tokenizer of Chameleon networks."),
  "mar": LazyCommand(f"{_PACKAGE}.mar:main", "A MAR network with its diffusion head (MAR-B, MAR-L, MAR-H)."),
  "mar-vae": LazyCommand(f"{_PACKAGE}.mar_vae:main", "MAR's KL autoencoder (KL-16)."),
  "var": LazyCommand(f"{_PACKAGE}.var:main", "A VAR network (d16, d20, d24, d30, d36)."),
  "var-vae": LazyCommand(f"{_PACKAGE}.var_vae:main", "VAR's image tokenizer of scales."),
  "dit": LazyCommand(f"{_PACKAGE}.dit:main", "A DiT network (DiT-S to DiT-XL)."),
  "dit-vae": LazyCommand(f"{_PACKAGE}.dit_vae:main", "Stable Diffusion's KL autoencoder, for DiT."),
}


@click.group(cls=LazyGroup, lazy_commands=COMMANDS)
def convert() -> None:
  """Turn released weights into checkpoints: jaxspec convert llamagen SRC DST."""
