"""``jaxspec convert``: released weights to checkpoint folders; the work is done in ``conversion/``."""

from __future__ import annotations

import click

from jaxspec.cli.lazy import LazyCommand, LazyGroup

COMMANDS = {
  "llamagen": LazyCommand("conversion.llamagen:main", "A LlamaGen transformer (class- or text-conditional)."),
  "llamagen-vq": LazyCommand("conversion.llamagen_vq:main", "A LlamaGen image tokenizer (VQ-16, VQ-8)."),
  "mar": LazyCommand("conversion.mar:main", "A MAR network with its diffusion head (MAR-B, MAR-L, MAR-H)."),
  "mar-vae": LazyCommand("conversion.mar_vae:main", "MAR's KL autoencoder (KL-16)."),
}


@click.group(cls=LazyGroup, lazy_commands=COMMANDS)
def convert() -> None:
  """Turn released weights into checkpoints: jaxspec convert llamagen SRC DST."""
