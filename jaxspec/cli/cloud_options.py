"""The options that name a server and say who we are; what goes wrong on the network is one line. No JAX."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxspec.cli.errors import UserError, interruptible
from jaxspec.serving.edge.connection import connect
from jaxspec.serving.wire.cloud import CloudError

if TYPE_CHECKING:
  from jaxspec.serving.edge.grpc_client import GrpcCloud


def connecting(options: dict[str, Any], address: str) -> Callable[..., GrpcCloud]:
  """A function that connects to a server, with the options of `jaxspec.serving.edge.connection.connect` that the user gave.

  Raises:
    UserError: for a file that cannot be read, or has no secret, and for a certificate without its key.
  """
  secret = None if options["token_file"] is None else read_file(options["token_file"]).decode("latin-1").strip()
  if secret is not None and not (secret.isascii() and secret.isprintable() and secret and " " not in secret):
    raise UserError(f"Must have one secret in {options['token_file']}, as `jaxspec serve --new-token` prints it")
  ca = None if options["ca"] is None else read_file(options["ca"])
  kwargs = dict(token=secret, ca=ca, certificate=_own_certificate(options), insecure=options["insecure"])
  kwargs |= dict(patience_s=options["give_up"], route=options["route"])
  return functools.partial(interruptible, connect, address, **kwargs)


@contextlib.contextmanager
def network_errors() -> Iterator[None]:
  """Turns whatever goes wrong on the network into one line."""
  try:
    yield
  except (CloudError, ImportError) as error:
    raise UserError(str(error)) from error


@contextlib.contextmanager
def connected(options: dict[str, Any]) -> Iterator[GrpcCloud]:
  """The server of ``--cloud``.

  Raises:
    UserError: in one line, for whatever goes wrong on the network while it is used.
  """
  with network_errors():
    cloud = connecting(options, options["cloud"])()
    try:
      yield cloud
    finally:
      cloud.hang_up()


def _own_certificate(options: dict[str, Any]) -> tuple[bytes, bytes] | None:
  """What ``--cert`` and ``--key`` name, for a server that asks edges for a certificate."""
  cert, key = options["cert"], options["key"]
  if cert is None and key is None:
    return None
  if cert is None or key is None:
    raise UserError(f"Must have both --cert and --key, we instead got --{'key' if cert is None else 'cert'} alone")
  return read_file(cert), read_file(key)


def read_file(path: Path) -> bytes:
  """What a file holds; UserError where it cannot be read."""
  try:
    return path.read_bytes()
  except OSError as error:
    raise UserError(f"Cannot read {path}: {error.strerror}") from error
