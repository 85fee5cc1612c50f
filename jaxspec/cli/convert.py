"""``jaxspec convert``: released weights to checkpoint folders, implemented in ``conversion/``."""

from __future__ import annotations

import click

from jaxspec.cli.lazy import LazyGroup
from jaxspec.io.converters import CONVERTERS


@click.group(cls=LazyGroup, lazy_commands=CONVERTERS)
def convert() -> None:
  """Convert released weights into checkpoints: jaxspec convert llamagen SRC DST."""
