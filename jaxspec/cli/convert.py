"""``jaxspec convert``: released weights to checkpoint folders; `jaxspec.io.converters` lists what does the work."""

from __future__ import annotations

import click

from jaxspec.cli.lazy import LazyGroup
from jaxspec.io.converters import CONVERTERS


@click.group(cls=LazyGroup, lazy_commands=CONVERTERS)
def convert() -> None:
  """Convert released weights into checkpoints: jaxspec convert llamagen SRC DST."""
