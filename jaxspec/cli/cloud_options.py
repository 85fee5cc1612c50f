"""Options of the server's address and the edge's authentication; network errors are one line. No JAX."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxspec.cli.guards import interruptible
from jaxspec.core.command_line import UserError
from jaxspec.serving.edge.connection import connect
from jaxspec.serving.wire.cloud import CloudError

if TYPE_CHECKING:
  from jaxspec.serving.edge.grpc_client import GrpcCloud


@contextlib.contextmanager
def connected(options: dict[str, Any]) -> Iterator[GrpcCloud]:
  """The server of ``--cloud``.

  Raises:
    UserError: in one line, for a file that cannot be read, or has no secret, for a certificate without its key, and for
      every error of the network while the server is used.
  """
  secret = None if options["token_file"] is None else read_file(options["token_file"]).decode("latin-1").strip()
  if secret is not None and not (secret.isascii() and secret.isprintable() and secret and " " not in secret):
    raise UserError(f"Must have one secret in {options['token_file']}, as `jaxspec serve --new-token` prints it")
  ca = None if options["ca"] is None else read_file(options["ca"])
  kwargs = dict(token=secret, ca=ca, certificate=_own_certificate(options), insecure=options["insecure"])
  kwargs |= dict(patience_s=options["give_up"], route=options["route"])
  try:
    cloud = interruptible(connect, options["cloud"], **kwargs)
    try:
      yield cloud
    finally:
      cloud.hang_up()
  except (CloudError, ImportError) as error:
    raise UserError(str(error)) from error


def _own_certificate(options: dict[str, Any]) -> tuple[bytes, bytes] | None:
  """The certificate and key of ``--cert`` and ``--key``, for a server that requires them."""
  cert, key = options["cert"], options["key"]
  if cert is None and key is None:
    return None
  if cert is None or key is None:
    raise UserError(f"Must have both --cert and --key, we instead got --{'key' if cert is None else 'cert'} alone")
  return read_file(cert), read_file(key)


def read_file(path: Path) -> bytes:
  """The content of a file; a UserError if it cannot be read."""
  try:
    return path.read_bytes()
  except OSError as error:
    raise UserError(f"Cannot read {path}: {error.strerror}") from error
