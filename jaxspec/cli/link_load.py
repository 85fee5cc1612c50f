"""``jaxspec link load``: devices that play traces against a server, in stages, and a report in JSON. No JAX."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path
from typing import Any

import click

from jaxspec.cli.cloud_options import connecting, network_errors
from jaxspec.cli.errors import UserError, interruptible
from jaxspec.cli.options import PATH
from jaxspec.serving.edge.connection import split_url
from jaxspec.serving.edge.retries import Policy
from jaxspec.serving.load.load import run_load
from jaxspec.serving.load.player import fitting
from jaxspec.serving.load.relay import Shape, relaying
from jaxspec.serving.load.server_metrics import read_metrics
from jaxspec.serving.load.trace import read_traces
from jaxspec.serving.wire.link_model import NETWORKS


@click.command(no_args_is_help=False)
@click.argument("url")
@click.option("--trace", "folder", type=PATH, required=True, metavar="DIR",
              help="Traces, as `jaxspec generate --cloud --trace DIR` writes them.")  # fmt: skip
@click.option("--devices", type=click.IntRange(1, 4096), default=64, show_default=True, metavar="N",
              help="Devices of the last stage; those before it have 1, 8 and 64.")  # fmt: skip
@click.option("--network", type=click.Choice(tuple(NETWORKS)), metavar="NAME",
              help="Make every connection as slow as 5g, 4g or wifi.")  # fmt: skip
@click.option("--metrics", metavar="HOST:PORT", help="Where the server answers for its counters.")
@click.option("--token-file", type=PATH, metavar="FILE", help="The secret of a token.")
@click.option("--ca", type=PATH, metavar="FILE", help="Certificates to trust (.pem).")
@click.option("--cert", type=PATH, metavar="FILE", help="Our own certificate (.pem), where the server asks for one.")
@click.option("--key", type=PATH, metavar="FILE", help="The private key of --cert (.pem).")
@click.option("--insecure", is_flag=True, help="Without TLS, to other machines than this one.")
@click.option("--route", is_flag=True, help="Send the stream's name as a header, for proxies.")
@click.option("--give-up", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True, metavar="S",
              help="How long to try a call.")  # fmt: skip
def load(url: str, folder: Path, **options: Any) -> None:
  """Play the traces of DIR against the server at URL, grpcs://HOST:PORT, and print a report in JSON.

  \b
  jaxspec link load grpcs://box:8443 --devices 64 --trace traces --network 4g
  """
  traces = read_traces(folder)
  logging.getLogger("jaxspec.serving").setLevel(logging.ERROR)  # what devices meet is counted
  with network_errors(), contextlib.ExitStack() as stack:
    first = connecting(options, url)()  # says whether this is a server, and ours, before there are relays and devices
    stack.callback(first.hang_up)
    for trace in traces:
      fitting(trace, first)
    metrics = None if options["metrics"] is None else lambda: read_metrics(options["metrics"])
    if metrics is not None:
      metrics()
    connect = connecting(options, url)
    if options["network"] is not None:
      scheme, target = split_url(url)
      relay = stack.enter_context(relaying(str(target), Shape.of(NETWORKS[options["network"]])))
      name = {"server_name": target.host} if scheme == "grpcs" else {}
      connect = lambda dial=connecting(options, f"{scheme}://{relay}"): dial(**name)
    kwargs = dict(network=options["network"], metrics=metrics, policy=Policy(give_up_s=options["give_up"]))
    say = lambda text: click.echo(text, err=True)
    found = interruptible(run_load, connect, traces, devices=options["devices"], report=say, **kwargs)
  click.echo(json.dumps({"url": url} | found, indent=1))
  _judge(found["stages"])


def _judge(stages: list[dict[str, Any]]) -> None:
  """One line, and exit code 2, where a device was not answered as it was when it was traced."""
  differing = sum(stage["differing"] for stage in stages)
  failures = [failure for stage in stages for failure in stage["failures"]]
  if differing:
    raise UserError(f"{differing} devices got a reply that is not the recorded one")
  if failures:
    raise UserError(f"{len(failures)} devices failed; the first one: {failures[0]}")
