"""The gRPC server at a port, and its health service."""

from __future__ import annotations

import dataclasses

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from jaxspec.serving.server import requests
from jaxspec.serving.server.listen import Listen
from jaxspec.serving.server.servicer import Servicer
from jaxspec.serving.wire.address import SERVICE
from jaxspec.serving.wire.cloud import Description

_OPTIONS = {
  "grpc.so_reuseport": 0,  # a second server on the same port is an error
  "grpc.http2.min_ping_interval_without_data_ms": 100,
  "grpc.http2.min_recv_ping_interval_without_data_ms": 100,
  "grpc.http2.max_ping_strikes": 2,
  "grpc.http2.bdp_probe": 0,  # its pings would be as large as the frames
  "grpc.max_concurrent_streams": 64,
  "grpc.server_handshake_timeout_ms": 5000,
  "grpc.max_connection_idle_ms": 300_000,
  "grpc.max_connection_age_ms": 600_000,  # nothing else ends a call whose body never arrives
  "grpc.max_connection_age_grace_ms": 30_000,
  "grpc.max_metadata_size": 4096,
  "grpc.absolute_max_metadata_size": 4096,
}


@dataclasses.dataclass(frozen=True)
class OpenPort:
  """An open port.

  Attributes:
    address: URL for clients.
  """

  address: str
  _server: grpc.aio.Server
  _servicer: Servicer
  _health: health.aio.HealthServicer  # pyright: ignore[reportAttributeAccessIssue]

  async def refuse(self) -> None:
    """Sets the health to ``NOT_SERVING``."""
    await self.set_health(health_pb2.HealthCheckResponse.NOT_SERVING)

  async def close(self, grace_s: float) -> None:
    """Closes the port; running calls may take ``grace_s`` seconds."""
    self._servicer.is_ending = True
    await self._server.stop(grace_s)

  async def set_health(self, value: int) -> None:
    """Sets the health of the server and of its service."""
    for name in ("", SERVICE):
      await self._health.set(name, value)


class GrpcServer:
  """Serves a `Servicer` at a port.

  Args:
    served: description of the server, which bounds the size of requests.
  """

  def __init__(self, servicer: Servicer, listen: Listen, served: Description):
    self._servicer, self._listen = servicer, listen
    self._options = _OPTIONS | {"grpc.max_receive_message_length": requests.max_request_bytes(served)} | listen.options
    self._health = health.aio.HealthServicer()  # pyright: ignore[reportAttributeAccessIssue]

  async def open(self) -> OpenPort:
    """Opens the port.

    Raises:
      OSError: in one line, if the port cannot be opened.
    """
    server = grpc.aio.server(options=list(self._options.items()))
    server.add_generic_rpc_handlers((self._servicer.handlers,))
    health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
    if self._listen.reflection:
      from grpc_reflection.v1alpha import reflection

      reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    address = self._listen.url(self._bind(server))
    await server.start()
    port = OpenPort(address, server, self._servicer, self._health)
    await port.set_health(health_pb2.HealthCheckResponse.SERVING)
    return port

  def _bind(self, server: grpc.aio.Server) -> int:
    listen = self._listen
    try:
      if listen.certificate is None or listen.key is None:
        return server.add_insecure_port(listen.address)
      pairs, requires_certificate = [(listen.key, listen.certificate)], listen.client_ca is not None
      return server.add_secure_port(
        listen.address, grpc.ssl_server_credentials(pairs, listen.client_ca, requires_certificate)
      )
    except RuntimeError as error:
      raise OSError(listen.reason()) from error
