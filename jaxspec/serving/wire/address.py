"""Network addresses as every command takes them: ``HOST:PORT``, IPv6 in brackets. Neither gRPC nor JAX."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import NamedTuple

_FORM = re.compile(r"(\[[^\[\]\s/]+\]|[\w.-]+):([0-9]{1,9})")

SERVICE = "jaxspec.link.v1.Verifier"  # of gRPC
ROUTE_HEADER = "jaxspec-stream"  # the stream's id in hex


class Address(NamedTuple):
  """A host and a port; ``str`` is what `parse_address` reads.

  Attributes:
    host: a name or an IP address, IPv6 without brackets.
  """

  host: str
  port: int

  def __str__(self) -> str:
    return f"{self.bracketed}:{self.port}"

  @property
  def bracketed(self) -> str:
    """The host as it stands in an address."""
    return f"[{self.host}]" if ":" in self.host else self.host

  def resolve(self) -> list[tuple]:
    """What `socket.getaddrinfo` returns for TCP.

    Raises:
      OSError: for a host that does not exist.
    """
    try:
      return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a name that no name server can look up
      raise socket.gaierror(socket.EAI_NONAME, "no name of a host") from error

  def on_this_machine(self) -> tuple[str, ...]:
    """The loopback addresses that the host stands for; none if it stands for any other address, or does not exist."""
    try:
      found = dict.fromkeys(where[0] for *_, where in self.resolve())
    except OSError:
      return ()
    return tuple(found) if all(ipaddress.ip_address(each).is_loopback for each in found) else ()


def parse_address(text: str, form: str, *, free: bool = False, scheme: str = "") -> Address:
  """Reads ``HOST:PORT``.

  Args:
    form: what the address should look like, for the message.
    free: whether port 0 is allowed, which stands for any free one.
    scheme: what stood before it, for the message.
  Raises:
    ValueError: in one line with what is wrong.
  """
  match, given = _FORM.fullmatch(text), scheme + text
  if match is None:
    hint = ": an IPv6 address stands in brackets, as in [::1]:8443" if _is_ipv6(text.rpartition(":")[0]) else ""
    raise ValueError(f"Must have {form}, we instead got {given!r}{hint}")
  host, port = match[1].strip("[]"), int(match[2])
  if match[1].startswith("[") and not _is_ipv6(host):
    raise ValueError(f"Must have {form} with an IPv6 address in the brackets, we instead got {given!r}")
  if not (not free) <= port < 1 << 16:
    raise ValueError(f"Must have {form} with a port from {int(not free)} to 65535, we instead got {given!r}")
  return Address(host, port)


def _is_ipv6(host: str) -> bool:
  try:
    return ipaddress.ip_address(host).version == 6
  except ValueError:
    return False
