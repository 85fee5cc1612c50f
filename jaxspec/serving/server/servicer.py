"""The servicer: gRPC handlers on raw bytes.

Generated handlers reply ``INTERNAL`` to an invalid message; these parse messages themselves and report the invalid field.
The server is the asyncio one: a few connections with incomplete bodies would block all workers of a synchronous one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import grpc.aio

from jaxspec.serving.server import requests
from jaxspec.serving.server.bearer_tokens import AuthBackoff, TokenFile
from jaxspec.serving.server.dispatcher import OpenCall, VerifyCall
from jaxspec.serving.server.engine_thread import EngineThread
from jaxspec.serving.server.failure_log import log_failure
from jaxspec.serving.server.metrics_hooks import MetricsHooks
from jaxspec.serving.server.quotas import Tenant
from jaxspec.serving.wire.address import SERVICE
from jaxspec.serving.wire.cloud import CloudError, Description, Status
from jaxspec.serving.wire.handshake import HandshakeReply
from jaxspec.serving.wire.v1 import encoding

_LOG = logging.getLogger(__name__)
_CODES = {status: getattr(grpc.StatusCode, status.name) for status in Status}
_ANONYMOUS = Tenant("")
_BEARER = "Bearer "
Run = Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]
_DELAYED = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED)


class Servicer:
  """The methods of the protocol.

  Args:
    engine_thread: computes valid calls.
    served: reply of `Describe`; requests are checked against it.
    tokens: bearer tokens that may open streams; None disables authentication.
    auth_every_call: require the token in `Verify` and `Close` too. Otherwise the stream's id authorises them: 128 random
      bits under TLS, while a token is longer than a small frame.
    metrics: hooks of every call.

  Attributes:
    is_ending: streaming calls end after their next reply.
  """

  def __init__(
    self,
    engine_thread: EngineThread,
    served: Description,
    *,
    tokens: TokenFile | None = None,
    auth_every_call: bool = False,
    metrics: MetricsHooks | None = None,
  ):
    self._engine_thread, self._served, self._tokens = engine_thread, served, tokens
    self._auth_every_call = auth_every_call
    self._metrics = MetricsHooks() if metrics is None else metrics
    self._auth_backoff = AuthBackoff()
    self.is_ending = False

  @property
  def handlers(self) -> grpc.GenericRpcHandler:
    """The handlers for a gRPC server."""
    unary = {"Describe": self._describe, "Open": self._open, "Verify": self._verify, "Close": self._close}
    methods = {name: grpc.unary_unary_rpc_method_handler(self._unary(name, run)) for name, run in unary.items()}
    methods["Exchange"] = grpc.stream_stream_rpc_method_handler(self._exchange)
    return grpc.method_handlers_generic_handler(SERVICE, methods)

  def _unary(self, name: str, run: Run) -> Run:
    async def handler(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
      return await self._reply(name, run, data, context)

    return handler

  async def _exchange(self, messages: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
    """`Verify` calls in one streaming call. A refused one ends it; the edge continues with unary calls."""
    newest = b""

    async def run(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
      nonlocal newest
      call = requests.read_verify(data, self._served, stream=newest)
      newest = call.stream
      return await self._run(call, context)

    async for data in messages:
      yield await self._reply("Exchange", run, data, context)
      if self.is_ending:
        return

  async def _reply(self, name: str, run: Run, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
    began, status = self._engine_thread.clock(), "OK"
    try:
      return await run(data, context)
    except CloudError as error:
      status = error.status.name
      refused = error
    except asyncio.CancelledError:
      status = "CANCELLED"
      raise
    except Exception as error:
      log_failure(_LOG, f"A call of {name} failed", error)
      status = Status.INTERNAL.name
      refused = CloudError(Status.INTERNAL, "the server has an error")
    finally:
      self._metrics.called(name, status, self._engine_thread.clock() - began)
    if refused.status in _DELAYED:
      await asyncio.sleep(self._auth_backoff.delay_s(_host_of(context.peer()), self._engine_thread.clock()))
    metadata = ()
    if refused.pushback_s is not None:
      metadata = (("grpc-retry-pushback-ms", str(math.ceil(1000 * refused.pushback_s))),)
    await context.abort(_CODES[refused.status], refused.detail, metadata)

  async def _describe(self, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
    self._tenant(context)
    requests.read_describe(data)
    return encoding.describe_reply(self._served)

  async def _open(self, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
    tenant = self._tenant(context)
    handshake, resume = requests.read_open(data, self._served)
    plain, deadline = encoding.open_request(handshake), self._deadline(context)
    frame = await self._engine_thread.open(OpenCall(tenant, handshake, resume, plain, data, deadline))
    if resume is not None:
      self._metrics.resumed()
    return encoding.open_reply(HandshakeReply(frame, 1 if resume is None else resume.next_seq, self._served.numerics))

  async def _verify(self, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
    return await self._run(requests.read_verify(data, self._served), context)

  async def _run(self, call: VerifyCall, context: grpc.aio.ServicerContext) -> bytes:
    tenant = self._tenant(context) if self._auth_every_call else None
    call = call._replace(tenant=tenant, deadline=self._deadline(context))
    frame = await self._engine_thread.verify(call)
    self._metrics.frames(len(call.frame.data), len(frame))
    return encoding.verify_reply(*call.position, frame)

  async def _close(self, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
    tenant = self._tenant(context) if self._auth_every_call else None
    self._engine_thread.close(tenant, requests.read_close(data))
    return b""

  def _tenant(self, context: grpc.aio.ServicerContext) -> Tenant:
    """The owner of a call's token.

    Raises:
      CloudError: without a valid token.
    """
    if self._tokens is None:
      return _ANONYMOUS
    header = next((str(value) for key, value in context.invocation_metadata() or () if key == "authorization"), "")
    secret = header.removeprefix(_BEARER) if header.startswith(_BEARER) else None
    return self._tokens.tenant_of(secret)

  def _deadline(self, context: grpc.aio.ServicerContext) -> float:
    """End of the caller's timeout, on the clock of the engine thread; infinite for a streaming call."""
    remaining = context.time_remaining()
    return math.inf if remaining is None else self._engine_thread.clock() + remaining


def _host_of(peer: str) -> str:
  """The address of a peer without its port, which changes with every connection."""
  return peer.rpartition(":")[0]
