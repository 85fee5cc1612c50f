"""``jaxspec serve``: a server that verifies for edges, and its bearer tokens."""

from __future__ import annotations

from typing import Any

import click

from jaxspec.cli.cloud_options import read_file
from jaxspec.cli.guards import imported, interruptible
from jaxspec.cli.options import NumberRange, common, unread, warn
from jaxspec.core.command_line import PATH, UserError
from jaxspec.serving.wire.address import Address, parse_address

_COUNT = click.IntRange(1, (1 << 31) - 1)
_SECONDS = NumberRange(0, min_open=True, infinite=True)  # inf is never


@click.command(no_args_is_help=False)
@click.argument("checkpoint", type=PATH, required=False)
@click.option(
  "--listen", default="127.0.0.1:8443", show_default=True, metavar="HOST:PORT", help="Address; port 0 is a free one."
)
@click.option("--tls-cert", type=PATH, metavar="FILE", help="Certificate of the server (.pem).")
@click.option("--tls-key", type=PATH, metavar="FILE", help="Its key (.pem).")
@click.option("--tls-client-ca", type=PATH, metavar="FILE", help="Edges must have a certificate of this authority (.pem).")
@click.option("--insecure", is_flag=True, help="Without TLS, listen to other machines than this one.")
@click.option("--token-file", type=PATH, metavar="FILE", help="Tokens that may open streams (.jsonl); reloaded on SIGHUP.")
@click.option("--auth-every-call", is_flag=True, help="Require the token in every call, not only in handshakes.")
@click.option("--new-token", metavar="NAME", help="Add a token to --token-file, print its secret once, and end.")
@click.option("--quota", metavar="NAME=VALUE,...", help="Of the new token: streams=N, calls_per_s=X, fed_per_s=X (tokens).")
@click.option("--profile", "profiles", multiple=True, metavar="METHOD[:NAME=VALUE,...]",
              help="A method that edges may use, with its options; may be repeated.  [default: sqs and ar]")  # fmt: skip
@click.option("--max-streams", type=_COUNT, default=256, show_default=True, metavar="N", help="Most streams with a cache.")
@click.option("--max-rows", type=_COUNT, default=32, show_default=True, metavar="M", help="Most rows of a step.")
@click.option("--max-len", type=_COUNT, metavar="N", help="Most tokens of a row.  [default: what the network is made for]")
@click.option("--max-prompt", type=_COUNT, metavar="N", help="Most tokens of a prompt.")
@click.option("--widths", default="8,32", show_default=True, metavar="W1,W2,..", help="Tokens of a row in a forward pass.")
@click.option("--numerics", type=click.Choice(("exact", "fast")), default="exact", show_default=True, metavar="NAME",
              help="exact: refuse programs in which rows depend on each other; or fast.")  # fmt: skip
@click.option("--max-wait-ms", type=NumberRange(0), default=0.0, show_default=True, metavar="T",
              help="Largest wait of a call for others to share its step, in milliseconds.")  # fmt: skip
@click.option("--idle-s", type=_SECONDS, default=60.0, show_default=True, metavar="T",
              help="Seconds without a call until the cache of a stream is evicted.")  # fmt: skip
@click.option("--forget-s", type=_SECONDS, default=600.0, show_default=True, metavar="T",
              help="Seconds without a call until a stream is closed.")  # fmt: skip
@click.option("--max-decode-ms", type=_SECONDS, default=100.0, show_default=True, metavar="T",
              help="Refuse a profile whose longest frame takes longer to read.")  # fmt: skip
@click.option("--metrics", metavar="HOST:PORT", help="Address of the metrics (HTTP, Prometheus).")
@click.option("--mesh", metavar="NAME", help="Devices that share the work, such as data=2,model=4.")
@common("model", "tokenizer", "text_encoder", "dtype", "matmul_precision", "no_cache")
def serve(**options: Any) -> int:
  """Serve the target of CHECKPOINT, a folder or a shipped name, to edge devices until SIGTERM.

  \b
  jaxspec serve wordnet --profile sqs:coding=lazy,max_drafts=7 --profile ar
  jaxspec serve --new-token alice --token-file tokens.jsonl --quota streams=8
  """
  try:
    Listen = imported("jaxspec.serving.server.server").Listen
  except ImportError as error:
    raise UserError(str(error)) from error
  if options["new_token"] is not None:
    read = ("new_token", "token_file", "quota")
    warn(*unread("with --new-token", *(name for name in options if name not in read)))
    return _new_token(options)
  if options["quota"] is not None:
    raise UserError("--quota goes with --new-token NAME; that of a token that is there stands in its line of the file")
  widths = _widths(options["widths"])
  metrics = None if options["metrics"] is None else parse_address(options["metrics"], "--metrics HOST:PORT")
  names = dict(certificate="tls_cert", key="tls_key", client_ca="tls_client_ca")
  pems = {field: None if options[name] is None else read_file(options[name]) for field, name in names.items()}
  listen = Listen(options["listen"], insecure=options["insecure"], **pems)
  imported("jaxspec.serving.server.from_bundle")
  methods = [_method(text) for text in options["profiles"]] or None
  server = _server(options, listen, methods, widths, None if metrics is None else _counters(metrics))
  return server.run(lambda: click.echo(f"serving at {server.address}"))


def _new_token(options: dict[str, Any]) -> int:
  from jaxspec.serving.server.bearer_tokens import new_token

  if options["token_file"] is None:
    raise UserError("--new-token goes with --token-file FILE, to which it is added")
  click.echo(new_token(options["token_file"], options["new_token"], _quota(options["quota"])))
  return 0


def _quota(text: str | None):
  """The quotas of a bearer token, ``streams=8,calls_per_s=50``; missing ones are unlimited."""
  from jaxspec.serving.server.quotas import Quota

  kinds = {"streams": int, "calls_per_s": float, "fed_per_s": float}
  values: dict[str, float] = {}
  for item in [] if text is None else text.split(","):
    name, _, value = item.partition("=")
    try:
      if name in values:
        raise ValueError
      values[name] = kinds[name](value)
      Quota(**values)
    except (KeyError, ValueError):
      form = "streams=N,calls_per_s=X,fed_per_s=X, each at most once and above 0"
      raise UserError(f"Must have --quota {form}, we instead got {item!r} in {text!r}") from None
  return Quota(**values)


def _counters(address: Address):
  """Metrics, with the port opened before compilation, so that a port in use is reported first."""
  from jaxspec.serving.server.listen import reason_of
  from jaxspec.serving.server.prometheus import Metrics

  metrics = Metrics()
  try:
    metrics.listen(*address)
  except OSError as error:
    raise UserError(f"Cannot answer at --metrics {address}: {reason_of(error)}; take another address") from error
  return metrics


def _server(options: dict[str, Any], listen, methods, widths: tuple[int, ...], metrics):
  """Loads, compiles, and runs the determinism check."""
  from jaxspec.cli import compilation_cache
  from jaxspec.cli.networks import sources_of
  from jaxspec.core.precision import of_user
  from jaxspec.render.working import Working
  from jaxspec.serving.server import from_bundle

  networks = sources_of(options, "checkpoint")
  if not options["no_cache"]:
    compilation_cache.enable()
  names = ("auth_every_call", "dtype", "matmul_precision", "max_streams", "max_rows", "max_len", "max_prompt", "numerics")
  kwargs = {name: options[name] for name in (*names, "idle_s", "forget_s", "max_decode_ms", "mesh")}
  if kwargs["matmul_precision"] is None and kwargs["dtype"] == "float32" and of_user() is None:
    kwargs["matmul_precision"] = "float32"  # as on edges, so that a decode over a network draws the same tokens
  kwargs |= dict(metrics=metrics, tokens=options["token_file"], widths=widths, max_wait_s=options["max_wait_ms"] / 1000)
  with Working("Loading and compiling"):
    methods = methods or from_bundle.METHODS
    named = dict(listen=listen, methods=methods, parts=networks.parts)
    return interruptible(from_bundle.serve, networks.model, **named, **kwargs)


def _method(text: str) -> tuple[str, dict[str, Any]]:
  """A method by name with options that override the bundle's, ``sqs:coding=lazy,max_drafts=7``."""
  from jaxspec.cli.method_options import value_type
  from jaxspec.core.options import options_of, suggestion
  from jaxspec.methods import get_method
  from jaxspec.run.decode_options import fitting

  name, colon, rest = text.partition(":")
  cls = get_method(name)
  declared, values = options_of(cls), {}
  for item in rest.split(",") if colon else ():
    key, equals, value = item.partition("=")
    if not equals or key not in declared:
      raise UserError(
        f"Must have options of {name} as NAME=VALUE ({', '.join(declared) or 'none'}), we instead got {item!r}"
        f"{suggestion(key, declared)}"
      )
    if key in values:
      raise UserError(f"Must have every option of {name} once, we instead got {key} twice in {text!r}")
    option = declared[key]
    values[key] = fitting(option, value_type((option,)).convert(value, None, None))
    option.check(values[key])
  return cls.name, values


def _widths(text: str) -> tuple[int, ...]:
  try:
    return tuple(int(value) for value in text.split(","))
  except ValueError:
    raise UserError(f"Must have --widths W1,W2,..., we instead got {text!r}") from None
