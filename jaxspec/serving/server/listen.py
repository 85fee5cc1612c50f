"""The address, certificates and options of a server. Neither gRPC nor JAX."""

from __future__ import annotations

import dataclasses
import errno
import socket

from jaxspec.serving.wire.address import Address, parse_address

_WORDS = {
  errno.EADDRINUSE: "the port is taken",
  errno.EADDRNOTAVAIL: "this machine does not have the address",
  errno.EACCES: "this user may not open the port",
  socket.EAI_NONAME: "there is no host of this name",
}


@dataclasses.dataclass(frozen=True)
class Listen:
  """Address and TLS settings of a server.

  Attributes:
    address: ``HOST:PORT``; port 0 is a free one.
    certificate: PEM, with ``key``; without them there is no TLS.
    client_ca: PEM; clients must have a certificate of this authority.
    insecure: allow addresses of other machines without TLS.
    reflection: whether the reflection service of gRPC is on.
    options: of gRPC, over those of `jaxspec.serving.server.grpc_server`.
  """

  address: str = "127.0.0.1:0"
  certificate: bytes | None = None
  key: bytes | None = None
  client_ca: bytes | None = None
  insecure: bool = False
  reflection: bool = False
  options: dict[str, int] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    parse_address(self.address, "an address HOST:PORT to listen on", free=True)
    if (self.certificate is None) != (self.key is None):
      given, other = ("--tls-cert", "--tls-key")[:: 1 if self.key is None else -1]
      raise ValueError(f"Must have a certificate and its key, we instead got one of them: {given} goes with {other}")
    if self.certificate is None and self.client_ca is not None:
      raise ValueError("Must have a certificate and its key to ask clients for theirs, we instead got none")
    if self.certificate is None and not self.insecure and not self.where.on_this_machine():
      raise ValueError(
        f"Must have TLS (a certificate and its key) or --insecure to listen on {self.host}, we instead got neither"
      )

  @property
  def where(self) -> Address:
    """The address as host and port."""
    return parse_address(self.address, "HOST:PORT", free=True)

  @property
  def host(self) -> str:
    """The address without its port, IPv6 in brackets."""
    return self.where.bracketed

  def url(self, port: int) -> str:
    """The URL for clients."""
    return f"{'grpc' if self.certificate is None else 'grpcs'}://{self.host}:{port}"

  def message(self, error: OSError) -> str:
    """The message for a port that cannot be opened."""
    return f"Cannot listen on {self.address}: {reason_of(error)}; --listen HOST:PORT sets another"

  def bind(self) -> socket.socket:
    """A socket that is bound to the address.

    Raises:
      OSError: in one line, if the port cannot be opened.
    """
    try:
      return bound(self.where)
    except OSError as error:
      raise OSError(self.message(error)) from error

  def check(self) -> None:
    """Checks certificates and port before anything is loaded.

    Raises:
      ValueError: for invalid certificates or keys, or a pair that does not match.
      OSError: if the port cannot be opened.
    """
    if self.certificate is not None:
      from jaxspec.serving.wire import pem

      assert self.key is not None, "a certificate has its key"
      pem.check_pair(self.certificate, self.key, "--tls-cert", "--tls-key")
      if self.client_ca is not None:
        pem.check_authorities(self.client_ca, "--tls-client-ca")
    self.bind().close()

  def reason(self) -> str:
    """The message for a port that gRPC did not open. gRPC gives no reason, so the port is opened without it."""
    try:
      self.check()
    except (OSError, ValueError) as error:
      return str(error)
    return f"Cannot listen on {self.address}: gRPC does not open the port"


def reason_of(error: OSError) -> str:
  """Why a port cannot be opened, in plain words."""
  known = None if error.errno is None else _WORDS.get(error.errno)
  return known or error.strerror or str(error)


def bound(address: Address) -> socket.socket:
  """A socket that is bound to an address, without listening."""
  family, kind, _, _, where = address.resolve()[0]
  found = socket.socket(family, kind)
  try:
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(where)
  except BaseException:
    found.close()
    raise
  return found
