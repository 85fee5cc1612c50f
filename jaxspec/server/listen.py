"""Where a server listens. Neither gRPC nor JAX."""

from __future__ import annotations

import dataclasses
import socket

from jaxspec.link.connection import is_loopback


@dataclasses.dataclass(frozen=True)
class Listen:
  """Where a server listens, and who may connect.

  Attributes:
    address: ``HOST:PORT``; port 0 takes a free one.
    certificate: PEM, with ``key``; without them there is no TLS.
    client_ca: PEM; clients must have a certificate of it.
    insecure: without TLS, listen on other addresses than those of this machine.
    reflection: whether tools may ask for the protocol.
    options: gRPC's, over those of `jaxspec.server.door`.
  """

  address: str = "127.0.0.1:0"
  certificate: bytes | None = None
  key: bytes | None = None
  client_ca: bytes | None = None
  insecure: bool = False
  reflection: bool = False
  options: dict[str, int] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    if not (self.host and self.address.rpartition(":")[2].isdigit()):
      raise ValueError(f"Must have an address HOST:PORT to listen on, we instead got {self.address!r}")
    if (self.certificate is None) != (self.key is None):
      raise ValueError("Must have a certificate and its key, we instead got one of them")
    if self.certificate is None and self.client_ca is not None:
      raise ValueError("Must have a certificate and its key to ask clients for theirs, we instead got none")
    if self.certificate is None and not self.insecure and not is_loopback(self.host):
      raise ValueError(
        f"Must have TLS (a certificate and its key) or --insecure to listen on {self.host}, we instead got neither"
      )

  @property
  def host(self) -> str:
    """The address without its port."""
    return self.address.rpartition(":")[0]

  def url(self, port: int) -> str:
    """What clients connect to."""
    return f"{'grpc' if self.certificate is None else 'grpcs'}://{self.host}:{port}"

  def cannot(self) -> str:
    """What to say when the port is not to be had."""
    return f"Cannot listen on {self.address}: the port is taken, or the certificate is not one"


def reserve(listen: Listen) -> tuple[socket.socket, int]:
  """Takes a port that several processes are going to listen on.

  Returns:
    A socket that takes part in the port without listening, so that the system gives it to nobody else; and the port.
  Raises:
    OSError: if somebody else listens there.
  """
  port = int(listen.address.rpartition(":")[2])
  try:
    family, kind, _, _, where = socket.getaddrinfo(listen.host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as alone:  # ports that are shared are not refused to their sharers
      alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      alone.bind(where)
      where = alone.getsockname()
    shared = socket.socket(family, kind)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared.bind(where)
  except OSError as error:
    raise OSError(listen.cannot()) from error
  return shared, where[1]
