"""``jaxspec link relay``: a connection as slow as a network. No JAX."""

from __future__ import annotations

import threading

import click

from jaxspec.cli.errors import UserError
from jaxspec.serving.load.relay import Relay, Shape
from jaxspec.serving.server.listen import reason
from jaxspec.serving.wire.address import parse_address
from jaxspec.serving.wire.link_model import NETWORKS

_MS = click.FloatRange(0)


@click.command(no_args_is_help=False)
@click.argument("target")
@click.option("--network", type=click.Choice(tuple(NETWORKS)), required=True, metavar="NAME", help="5g, 4g or wifi.")
@click.option("--jitter-ms", type=_MS, default=0.0, show_default=True, metavar="T", help="More delay each way, at random.")
@click.option("--loss", type=click.FloatRange(0, 1, max_open=True), default=0.0, show_default=True, metavar="P",
              help="Share of chunks that are sent again.")  # fmt: skip
@click.option("--listen", default="127.0.0.1:0", show_default=True, metavar="HOST:PORT", help="Where; port 0 is a free one.")
def relay(target: str, network: str, jitter_ms: float, loss: float, listen: str) -> None:
  """Relay connections to TARGET, HOST:PORT, as slowly as a network, until Ctrl-C.

  \b
  jaxspec link relay 127.0.0.1:8443 --network 4g --listen 127.0.0.1:9000
  """
  behind = parse_address(target, "TARGET as HOST:PORT")
  parse_address(listen, "--listen as HOST:PORT", free=True)
  shape = Shape.of(NETWORKS[network], jitter_s=jitter_ms / 1e3, loss=loss)
  try:
    behind.resolve()
  except OSError as error:
    raise UserError(f"Cannot relay to {target}: {reason(error)}") from error
  try:
    running = Relay(target, shape, listen=listen)
  except OSError as error:
    raise UserError(f"Cannot listen on {listen}: {reason(error)}") from error
  with running:
    click.echo(f"relaying at {running.host}")
    threading.Event().wait()
