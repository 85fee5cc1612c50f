"""From an address to a cloud. gRPC is only needed, and imported, once an address is one."""

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
  """Connects to a server and asks what it serves. An address of this machine is reached directly, others through the proxy
  of the environment, if it names one.

  Args:
    address: ``grpcs://HOST:PORT``, or ``grpc://HOST:PORT`` without TLS.
    token: the secret of a bearer token.
    ca: certificates to trust, PEM or a file of them; those of the system by default.
    certificate: the edge's own, PEM, with its key.
    patience_s: how long to wait for a server that went away.
    insecure: without TLS, connect to other machines than this one; a token is not sent to them.
    route: send the stream's id as a header, for proxies that keep a stream at one server.
    auth_every_call: send the token in every call from the first on; otherwise once the server has asked for it.
    server_name: of the server's certificate, where the address is that of a relay.
  Raises:
    ImportError: without the extra ``serve``.
    CloudError: in one plain line, where there is no such server, or it does not let us in.
    ValueError: for an address that is none, or a secret that would go through a network in the open.
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
  settings = dict(token=token, patience_s=patience_s, route=route, auth_every_call=auth_every_call, server_name=server_name)
  return grpc_client.GrpcCloud(target, credentials, here=here, **settings)


def split_url(url: str) -> tuple[str, Address]:
  """Scheme and address of ``grpcs://HOST:PORT`` or ``grpc://HOST:PORT``.

  Raises:
    ValueError: for a URL that is none.
  """
  scheme, sign, rest = url.partition("://")
  if not sign or scheme not in ("grpc", "grpcs"):
    raise ValueError(f"Must have an address grpcs://HOST:PORT or grpc://HOST:PORT, we instead got {url!r}")
  return scheme, parse_address(rest.removesuffix("/"), f"an address {scheme}://HOST:PORT", scheme=f"{scheme}://")
