"""Where a server listens. Neither gRPC nor JAX."""

from __future__ import annotations

import dataclasses
import errno
import socket

from jaxspec.link.connection import is_loopback

_WORDS = {errno.EADDRINUSE: "the port is taken", errno.EADDRNOTAVAIL: "this machine does not have the address"}


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

  def cannot(self, error: OSError) -> str:
    """What to say when the port is not to be had."""
    return f"Cannot listen on {self.address}: {_WORDS.get(error.errno, error.strerror)}; --listen HOST:PORT takes another"

  def why_not(self) -> str:
    """What to say when gRPC did not open the port, which does not say why: the port is tried without it."""
    try:
      family, kind, _, _, where = _resolved(self)
      with socket.socket(family, kind) as alone:
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        alone.bind(where)
    except OSError as error:
      return self.cannot(error)
    if self.certificate is None:
      return f"Cannot listen on {self.address}: gRPC does not open the port"
    return f"Cannot listen on {self.address}: the certificate (--tls-cert) or its key (--tls-key) is not one, in PEM"


def reserve(listen: Listen) -> tuple[socket.socket, int]:
  """Takes a port that several processes are going to listen on.

  Returns:
    A socket that takes part in the port without listening, so that the system gives it to nobody else; and the port.
  Raises:
    OSError: if somebody else listens there.
  """
  try:
    family, kind, _, _, where = _resolved(listen)
    with socket.socket(family, kind) as alone:  # ports that are shared are not refused to their sharers
      alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      alone.bind(where)
      where = alone.getsockname()
    shared = socket.socket(family, kind)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared.bind(where)
  except OSError as error:
    raise OSError(listen.cannot(error)) from error
  return shared, where[1]


def _resolved(listen: Listen) -> tuple:
  port = int(listen.address.rpartition(":")[2])
  return socket.getaddrinfo(listen.host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
