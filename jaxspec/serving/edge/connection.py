"""Connects to a server. gRPC is imported for a valid address only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jaxspec.serving.wire.address import Address, parse_address

if TYPE_CHECKING:
  from jaxspec.serving.edge.grpc_client import GrpcCloud


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
  """Connects to a server and reads its description.

  An address of this machine is reached directly. Other addresses are reached through the proxy of the environment, if there
  is one.

  Args:
    address: ``grpcs://HOST:PORT``, or ``grpc://HOST:PORT`` without TLS.
    token: the secret of a bearer token.
    ca: trusted certificates, PEM or a file of them; those of the system by default.
    certificate: the edge's own, PEM, with its key.
    patience_s: seconds to wait for an unreachable server.
    insecure: allow other machines than this one without TLS; a token is not sent to them.
    route: send the stream's id as a header, for proxies that route a stream to one server.
    auth_every_call: send the token in every call; by default only in those for which the server requires it.
    server_name: name in the server's certificate, where the address is that of a relay.
  Raises:
    ImportError: without the extra ``serve``.
    CloudError: in one plain line, for a server that cannot be reached or refuses the edge.
    ValueError: for an invalid address, or a secret that would be sent over a network without TLS.
  """
  scheme, target = split_url(address)
  here = target.on_this_machine()
  if scheme == "grpc" and not here and (token is not None or not insecure):
    what = "a token" if insecure else "prompts and tokens"
    raise ValueError(f"Must have grpcs:// to send {what} to {target.host}, we instead got {address!r}")
  if scheme == "grpc" and (ca is not None or certificate is not None):
    raise ValueError(f"Must have grpcs:// with certificates, we instead got {address!r}")
  roots = ca if ca is None or isinstance(ca, bytes) else Path(ca).read_bytes()
  if roots is not None or certificate is not None:
    from jaxspec.serving.wire import pem

    if roots is not None:
      pem.check_authorities(roots, "--ca (ca=)")
    if certificate is not None:
      pem.check_pair(*certificate, "--cert (certificate=)", "--key (certificate=)")
  from jaxspec.serving.edge import grpc_client

  credentials = grpc_client.Tls(roots, certificate) if scheme == "grpcs" else None
  settings = grpc_client.ClientSettings(token, patience_s, route, auth_every_call, server_name)
  return grpc_client.GrpcCloud(target, credentials, here=here, settings=settings)


def split_url(url: str) -> tuple[str, Address]:
  """Scheme and address of ``grpcs://HOST:PORT`` or ``grpc://HOST:PORT``.

  Raises:
    ValueError: for an invalid URL.
  """
  scheme, sign, rest = url.partition("://")
  if not sign or scheme not in ("grpc", "grpcs"):
    raise ValueError(f"Must have an address grpcs://HOST:PORT or grpc://HOST:PORT, we instead got {url!r}")
  return scheme, parse_address(rest.removesuffix("/"), f"an address {scheme}://HOST:PORT", scheme=f"{scheme}://")
