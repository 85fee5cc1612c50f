"""``jaxspec link``: tools for the network between edges and a server."""

from __future__ import annotations

import click

from jaxspec.cli.lazy import LazyCommand, LazyGroup

COMMANDS = {
  "load": LazyCommand("jaxspec.cli.link_load:load", "Put a server under load by traces of decodes."),
  "relay": LazyCommand("jaxspec.cli.link_relay:relay", "Make a connection as slow as a network."),
}


@click.group(cls=LazyGroup, lazy_commands=COMMANDS)
def link() -> None:
  """Tools for the network between edges and a server."""
