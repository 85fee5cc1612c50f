"""A gRPC server at a port, with its health."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from jaxspec.serving.server import requests
from jaxspec.serving.server.listen import Listen
from jaxspec.serving.server.servicer import Front
from jaxspec.serving.wire.address import SERVICE
from jaxspec.serving.wire.cloud import Description

_OPTIONS = {
  "grpc.so_reuseport": 0,  # a second server on the same port is an error
  "grpc.http2.min_ping_interval_without_data_ms": 100,
  "grpc.http2.min_recv_ping_interval_without_data_ms": 100,
  "grpc.http2.max_ping_strikes": 2,
  "grpc.http2.bdp_probe": 0,  # frames are small: its pings would cost as much as they do
  "grpc.max_concurrent_streams": 64,
  "grpc.server_handshake_timeout_ms": 5000,
  "grpc.max_connection_idle_ms": 300_000,
  "grpc.max_connection_age_ms": 600_000,  # nothing else ends a call whose body never comes
  "grpc.max_connection_age_grace_ms": 30_000,
  "grpc.max_metadata_size": 4096,
  "grpc.absolute_max_metadata_size": 4096,
}


class Door:
  """Answers at a port what a `Front` answers.

  Args:
    served: what a request may ask for; longer ones are refused.
  """

  def __init__(self, front: Front, listen: Listen, served: Description):
    self._front, self._listen = front, listen
    self._options = _OPTIONS | {"grpc.max_receive_message_length": requests.max_request_bytes(served)} | listen.options
    self._server: grpc.aio.Server | None = None
    self._status = health.aio.HealthServicer()

  async def open(self) -> str:
    """Opens the port; returns the address that a client connects to.

    Raises:
      OSError: in one line, if the port is not to be had.
    """
    self._server = server = grpc.aio.server(options=list(self._options.items()))
    server.add_generic_rpc_handlers((self._front.handlers,))
    health_pb2_grpc.add_HealthServicer_to_server(self._status, server)
    if self._listen.reflection:
      from grpc_reflection.v1alpha import reflection

      reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    address = self._listen.url(self._bind(server))
    await server.start()
    await self._say(health_pb2.HealthCheckResponse.SERVING)
    return address

  async def refuse(self) -> None:
    """Tells whoever asks for the server's health that it is going down."""
    await self._say(health_pb2.HealthCheckResponse.NOT_SERVING)

  async def close(self, grace_s: float) -> None:
    """No new calls; those that run may take ``grace_s``."""
    self._front.is_ending = True
    await self._server.stop(grace_s)

  async def _say(self, value: int) -> None:
    for name in ("", SERVICE):
      await self._status.set(name, value)

  def _bind(self, server: grpc.aio.Server) -> int:
    listen = self._listen
    try:
      if listen.certificate is None:
        return server.add_insecure_port(listen.address)
      pair, asks = ((listen.key, listen.certificate),), listen.client_ca is not None
      return server.add_secure_port(listen.address, grpc.ssl_server_credentials(pair, listen.client_ca, asks))
    except RuntimeError as error:
      raise OSError(listen.why_not()) from error
