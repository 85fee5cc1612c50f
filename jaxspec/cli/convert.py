"""``jaxspec convert``: released weights to checkpoint folders; the work is done in ``conversion/``."""

from __future__ import annotations

import click

from jaxspec.cli.lazy import LazyCommand, LazyGroup

COMMANDS = {
  "llamagen": LazyCommand("conversion.llamagen:main", "A LlamaGen transformer (class- or text-conditional)."),
  "gpt-neo": LazyCommand("conversion.gpt_neo:main", "A GPT-Neo language model."),
  "llama": LazyCommand("conversion.llama:main", "A Llama language model, also from a .gguf file."),
  "llamagen-vq": LazyCommand("conversion.llamagen_vq:main", "A LlamaGen image tokenizer (VQ-16, VQ-8)."),
  "t5": LazyCommand("conversion.t5:main", "The encoder of a T5 1.1 or Flan-T5, for captions."),
  "chameleon": LazyCommand("conversion.chameleon:main", "An Anole or Lumina-mGPT network (Chameleon)."),
  "chameleon-vq": LazyCommand("conversion.chameleon_vq:main", "The image tokenizer of Chameleon networks."),
  "mar": LazyCommand("conversion.mar:main", "A MAR network with its diffusion head (MAR-B, MAR-L, MAR-H)."),
  "mar-vae": LazyCommand("conversion.mar_vae:main", "MAR's KL autoencoder (KL-16)."),
  "var": LazyCommand("conversion.var:main", "A VAR network (d16, d20, d24, d30, d36)."),
  "var-vae": LazyCommand("conversion.var_vae:main", "VAR's image tokenizer of scales."),
  "dit": LazyCommand("conversion.dit:main", "A DiT network (DiT-S to DiT-XL)."),
  "dit-vae": LazyCommand("conversion.dit_vae:main", "Stable Diffusion's KL autoencoder, for DiT."),
}


@click.group(cls=LazyGroup, lazy_commands=COMMANDS)
def convert() -> None:
  """Turn released weights into checkpoints: jaxspec convert llamagen SRC DST."""
