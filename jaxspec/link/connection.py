"""From an address to a cloud. gRPC is only needed, and imported, once an address is one."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from jaxspec.link.client import GrpcCloud

SERVICE = "jaxspec.link.v1.Verifier"  # of gRPC
ROUTE_HEADER = "jaxspec-stream"  # the stream's id in hex
_ADDRESS = re.compile(r"(grpcs?)://(\[[0-9a-fA-F:]+\]|[^/:\[\]\s]+):(\d{1,5})/?")


def connect(
  address: str,
  *,
  token: str | None = None,
  ca: str | os.PathLike | bytes | None = None,
  certificate: tuple[bytes, bytes] | None = None,
  patience_s: float = 60.0,
  insecure: bool = False,
  route: bool = False,
  auth_every_call: bool = False,
  server_name: str | None = None,
) -> GrpcCloud:
  """Connects to a server and asks what it serves.

  Args:
    address: ``grpcs://HOST:PORT``, or ``grpc://HOST:PORT`` without TLS.
    token: the secret of a bearer token.
    ca: certificates to trust, PEM or a file of them; those of the system by default.
    certificate: the edge's own, PEM, with its key.
    patience_s: how long to wait for a server that went away.
    insecure: without TLS, connect to other machines than this one.
    route: send the stream's id as a header, for proxies that keep a stream at one server.
    auth_every_call: send the token in every call from the first on; otherwise once the server has asked for it.
    server_name: of the server's certificate, where the address is that of a relay.
  Raises:
    ImportError: without the extra ``serve``.
    CloudError: in one plain line, where there is no such server, or it does not let us in.
    ValueError: for an address that is none, or a secret that would go through a network in the open.
  """
  scheme, host, port = split_address(address)
  if scheme == "grpc" and not insecure and not is_loopback(host):
    raise ValueError(f"Must have grpcs:// to send prompts and tokens to {host}, we instead got {address!r}")
  if scheme == "grpc" and (ca is not None or certificate is not None):
    raise ValueError(f"Must have grpcs:// with certificates, we instead got {address!r}")
  roots = ca if ca is None or isinstance(ca, bytes) else Path(ca).read_bytes()
  if roots is not None and b"-----BEGIN CERTIFICATE-----" not in roots:
    raise ValueError("Must have certificates in PEM to trust, we instead got none")
  if certificate is not None:
    _check_pem(certificate[0], b"CERTIFICATE-----", "a certificate")
    _check_pem(certificate[1], b"PRIVATE KEY-----", "its private key")
  from jaxspec.link import client

  credentials = client.tls(roots, certificate) if scheme == "grpcs" else None
  settings = dict(token=token, patience_s=patience_s, route=route, auth_every_call=auth_every_call, server_name=server_name)
  return client.GrpcCloud(f"{host}:{port}", credentials, **settings)


def _check_pem(data: bytes, ends: bytes, name: str) -> None:
  if b"-----BEGIN " not in data or ends not in data:
    raise ValueError(f"Must have {name} in PEM to show to the server, we instead got none")


def split_address(address: str) -> tuple[str, str, str]:
  """Scheme, host (IPv6 in brackets) and port of an address.

  Raises:
    ValueError: for an address that is none.
  """
  match = _ADDRESS.fullmatch(address)
  if match is None or not 0 < int(match[3]) < 1 << 16:
    raise ValueError(f"Must have an address grpcs://HOST:PORT or grpc://HOST:PORT, we instead got {address!r}")
  return match.groups()


def is_loopback(host: str) -> bool:
  """Whether a host is this machine alone."""
  try:
    return ipaddress.ip_address(host.strip("[]")).is_loopback
  except ValueError:
    return host == "localhost"
