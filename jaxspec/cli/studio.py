"""``jaxspec studio``: a local web page that shows decoding."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from jaxspec.cli.guards import imported, interruptible
from jaxspec.cli.options import NETWORKS, common
from jaxspec.core.command_line import PATH, Interrupted, UserError


@click.command(no_args_is_help=False)
@click.argument("bundle", type=PATH, required=False)
@click.option(
  "--listen", default="127.0.0.1:8765", show_default=True, metavar="HOST:PORT", help="Where; port 0 is a free one."
)
@click.option("--out", type=PATH, metavar="FOLDER", help="Folder that finished races may be written to.")
@click.option("--host-name", "names", multiple=True, metavar="NAME", help="An allowed host name of the page; repeatable.")
@common(*NETWORKS, "dtype", "matmul_precision", "no_cache")
def studio(**options: Any) -> None:
  """Show decoding on a web page of this machine, with the networks of BUNDLE, a folder or a shipped name.

  \b
  jaxspec studio
  jaxspec studio wordnet --listen 127.0.0.1:9000 --out races
  """
  try:
    uvicorn, _ = imported("uvicorn"), imported("starlette")
  except ImportError as error:
    raise UserError("The studio needs its extra: pip install 'jaxspec-decoding[studio]'") from error
  from jaxspec.cli.networks import sources_of
  from jaxspec.serving.server.listen import Listen
  from jaxspec.serving.wire.address import Address

  networks = sources_of(options, "bundle")
  out: Path | None = options["out"]
  if out is not None and not out.is_dir():
    raise UserError(f"Must have a folder for --out, we instead got {out}")
  listen = Listen(options["listen"], insecure=True)
  sock = listen.bind()
  sock.listen()  # reserves the port while networks are loaded
  if not listen.where.on_this_machine():
    line = "clients that reach this address can decode here, without a password and without TLS"
    click.echo(click.style("Warning:", fg="yellow") + f" {line}", err=True)
  app = _app(options, networks, listen.host)
  host, port = sock.getsockname()[:2]
  click.echo(f"studio at http://{Address(host, port)}")
  config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1, server_header=False)

  class Server(uvicorn.Server):
    def handle_exit(self, *signal_and_frame) -> None:
      logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # an interrupted comparison is no error
      super().handle_exit(*signal_and_frame)

  try:
    Server(config).run(sockets=[sock])
  except KeyboardInterrupt as error:
    raise Interrupted from error  # the decoding thread may run compiled code


def _app(options: dict[str, Any], networks, host: str):
  imported("jaxspec.studio.api")
  from jaxspec.cli import compilation_cache
  from jaxspec.cli.networks import load_sources
  from jaxspec.core.precision import of_user
  from jaxspec.render.working import Working
  from jaxspec.studio.api import make_app
  from jaxspec.studio.studio_session import StudioSession

  if not options["no_cache"]:
    compilation_cache.enable()
  # bfloat16 products differ between one program and one per round, which may change a token.
  precision = options["matmul_precision"] or (None if of_user() else "float32")
  with Working("Loading"):
    pipeline = load_sources(networks, dtype=options["dtype"], matmul_precision=precision)
    session = interruptible(StudioSession, pipeline, networks)
  names = ("localhost", host, *options["names"])
  return make_app(session, folder=options["out"], hosts=names)
