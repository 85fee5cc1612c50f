"""A cloud behind a network: `GrpcCloud` makes one attempt at one call.

Frames of coding ``lazy`` have 40 bytes, fewer than the headers of a call. Such streams use one streaming call (`Exchange`),
and unary calls after it was interrupted. Calls that are sent ahead use one too, because it keeps their order. The first one
that is sent after an interruption opens another.

The retries of gRPC are off, because they cannot resume a stream; `jaxspec.serving.edge.reliable_stream` can. The client
waits for an unreachable server to return before it reports a failure.
"""

from __future__ import annotations

import os
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # or gRPC logs every failure; errors are reported in one line
try:
  import grpc

  from jaxspec.serving.edge.exchange import Exchange, parsed
  from jaxspec.serving.wire.v1 import encoding
except ImportError as missing:
  raise ImportError("A cloud behind a network needs: pip install 'jaxspec-decoding[serve]'") from missing

import jaxspec
from jaxspec.serving.wire.address import ROUTE_HEADER, SERVICE, Address
from jaxspec.serving.wire.cloud import CloudError, Description, Status
from jaxspec.serving.wire.handshake import PROTOCOL, Handshake, HandshakeReply, Resume

Reply = TypeVar("Reply")
_SERVICE = f"/{SERVICE}/"
_LEAST_KEEPALIVE_S = 0.3
_CONNECT_S = 10.0

# Bytes of HTTP/2 around the messages of a call: headers, frame headers and window updates. Measured without TLS, on a
# connection whose earlier calls have filled the header tables of both ends.
FRAMING = 5 + 9  # of gRPC and of HTTP/2, around each message


class Overhead(NamedTuple):
  """Bytes of the headers of a call."""

  up: int
  down: int


UNARY, EXCHANGE = Overhead(43, 50), Overhead(26, 26)


class Tls(NamedTuple):
  """TLS of a channel; all in PEM.

  Attributes:
    roots: trusted certificates; None for those of the system.
    certificate: the client's own, with its key; None without one.
  """

  roots: bytes | None
  certificate: tuple[bytes, bytes] | None

  def credentials(self) -> grpc.ChannelCredentials:
    """The credentials of gRPC."""
    certificate, key = self.certificate or (None, None)
    return grpc.ssl_channel_credentials(self.roots, key, certificate)


class ClientSettings(NamedTuple):
  """Settings of a client; see `jaxspec.serving.edge.connection.connect`."""

  token: str | None = None
  patience_s: float = 60.0
  route: bool = False
  auth_every_call: bool = False
  server_name: str | None = None


class GrpcCloud:
  """A `Cloud` at an address; threads may share it.

  The token is sent in `Describe` and `Open`. After a refusal for a missing token it is sent in every call.

  Args:
    target: host and port.
    tls: None for a channel without TLS.
    here: the addresses of the target if all of them are of this machine, see `Address.on_this_machine`. They are reached
      without a proxy. Without TLS the name is not resolved again, because a second lookup may give other addresses.

  Attributes:
    description: of the server.
    uplink_bytes: sent bytes, with the headers of HTTP/2 and without TLS; computed, not measured.
    downlink_bytes: received bytes, likewise.
  """

  def __init__(
    self,
    target: Address,
    tls: Tls | None,
    *,
    here: tuple[str, ...],
    settings: ClientSettings = ClientSettings(),
  ):
    token, patience_s, self._route, self._auth_every_call, server_name = settings
    self._target, self._tls = target, tls
    self._dialled = _numeric(here, target.port) if here and tls is None else str(target)
    self._options = () if server_name is None else (("grpc.ssl_target_name_override", server_name),)
    self._options += (("grpc.default_authority", str(target)),) if tls is None else ()
    self._options += (("grpc.enable_http_proxy", 0), ("grpc.address_http_proxy_enabled_addresses", "")) if here else ()
    self._proxy = None if here else _proxy_to(target)
    self._patience_s = 0.0  # a wrong address is reported at once
    self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    self.uplink_bytes = self.downlink_bytes = 0
    self._lock = threading.Lock()
    self._exchanges: dict[bytes, Exchange | None] = {}  # None: it was interrupted, calls are unary from then on
    self._lazy: set[bytes] = set()
    self._dial(_LEAST_KEEPALIVE_S)
    try:
      self.description = self._describe()
      began = time.monotonic()
      self._describe()
      round_trip_s = time.monotonic() - began
    except BaseException:
      self._channel.close()
      raise
    if 4 * round_trip_s > _LEAST_KEEPALIVE_S:
      self._channel.close()
      self._dial(4 * round_trip_s)
    self._patience_s = patience_s

  @property
  def transport_bytes(self) -> int:
    """Sum of both directions."""
    return self.uplink_bytes + self.downlink_bytes

  def check_model(self, model: bytes) -> None:
    """Raises a ValueError unless the server has the target network of this digest."""
    if self.description.model != model:
      theirs = self.description.model.hex()[:16]
      raise ValueError(
        f"Must have the networks of one bundle, {self._target} serves {theirs} and the edge has {model.hex()[:16]}"
      )

  def open(self, handshake: Handshake, resume: Resume | None = None, *, timeout_s: float) -> HandshakeReply:
    if any(each.id == handshake.profile and each.coding == "lazy" for each in self.description.profiles):
      self._lazy.add(handshake.stream)
    reply = self._unary("Open", encoding.open_request(handshake, resume), timeout_s, handshake.stream)
    return parsed(encoding.handshake_reply_of, reply)

  def verify(self, stream: bytes, seq: int, part: int, frame: bytes, *, timeout_s: float) -> bytes:
    return self._with_token(stream, lambda: self._verify(stream, seq, part, frame, timeout_s))

  def send(self, stream: bytes, seq: int, frame: bytes) -> None:
    """See `jaxspec.serving.wire.cloud.AheadCloud`."""
    exchange = self._exchanges.get(stream)
    if exchange is None:
      exchange = self._exchanges[stream] = Exchange(self._exchange, self._headers("Exchange", stream))
    self._send(exchange, stream, seq, 0, frame)

  def arrived_s(self, stream: bytes) -> float | None:
    """See `jaxspec.serving.wire.cloud.AheadCloud`; None for a unary call."""
    exchange = self._exchanges.get(stream)
    return None if exchange is None else exchange.arrived_s

  def close(self, stream: bytes, *, timeout_s: float) -> None:
    self._lazy.discard(stream)
    exchange = self._exchanges.pop(stream, None)
    if exchange is not None:
      exchange.end()
    self._with_token(stream, lambda: self._unary("Close", encoding.close_request(stream), timeout_s, stream))

  def hang_up(self) -> None:
    """Closes the connection."""
    self._channel.close()

  def _dial(self, keepalive_s: float) -> None:
    keepalive_ms = round(1000 * max(_LEAST_KEEPALIVE_S, keepalive_s))
    options = (
      ("grpc.enable_retries", 0),
      ("grpc.keepalive_time_ms", keepalive_ms),
      ("grpc.keepalive_timeout_ms", keepalive_ms),
      ("grpc.http2.ping_timeout_ms", keepalive_ms),  # a minute by default, during which the timeout above does not apply
      ("grpc.keepalive_permit_without_calls", 0),
      ("grpc.http2.max_pings_without_data", 0),  # a streaming call is silent while the edge drafts
      ("grpc.http2.bdp_probe", 0),  # its pings would be as large as the frames
      ("grpc.initial_reconnect_backoff_ms", 100),
      ("grpc.min_reconnect_backoff_ms", 1000),
      ("grpc.max_reconnect_backoff_ms", 2000),
      ("grpc.use_local_subchannel_pool", 1),  # clouds share neither connections nor failures
      *self._options,
    )
    if self._tls is None:
      self._channel = grpc.insecure_channel(self._dialled, options)
    else:
      self._channel = grpc.secure_channel(self._dialled, self._tls.credentials(), options)
    self._methods = {name: self._channel.unary_unary(_SERVICE + name) for name in ("Describe", "Open", "Verify", "Close")}
    self._exchange = self._channel.stream_stream(_SERVICE + "Exchange")

  def _wait(self) -> None:
    """Waits until the server can be reached, at most ``patience_s`` seconds."""
    ready = grpc.channel_ready_future(self._channel)
    try:
      ready.result(timeout=self._patience_s)
    except grpc.FutureTimeoutError:
      ready.cancel()  # the next attempt reports the error

  def _describe(self) -> Description:
    client = f"jaxspec {jaxspec.__version__}"
    reply = self._unary("Describe", encoding.describe_request(PROTOCOL, client), _CONNECT_S)
    description = parsed(encoding.description_of, reply)
    if not description.protocol_min <= PROTOCOL <= description.protocol_max:
      theirs = f"{description.protocol_min} to {description.protocol_max}"
      raise CloudError(Status.FAILED_PRECONDITION, f"{self._target} speaks protocol {theirs}, this is {PROTOCOL}")
    return description

  def _verify(self, stream: bytes, seq: int, part: int, frame: bytes, timeout_s: float) -> bytes:
    exchange = self._exchange_of(stream, seq, part)
    if exchange is not None:
      if (seq, part) not in exchange.sent:
        self._send(exchange, stream, seq, part, frame)
      try:
        frame, reply = exchange.wait(seq, part, timeout_s)
      except CloudError:  # no reply in time: the connection may be lost without an error
        self._exchanges[stream] = None
        exchange.end()
        raise
      except grpc.RpcError as error:
        self._exchanges[stream] = None
        raise self._error(error) from error
      self._count_down(reply, EXCHANGE)
      return frame
    reply = self._unary("Verify", encoding.verify_request(stream, seq, part, frame), timeout_s, stream)
    replied = parsed(lambda data: encoding.reply_to(data, seq, part), reply)
    if replied is None:
      raise CloudError(Status.DATA_LOSS, "the reply to another call")
    return replied

  def _unary(self, name: str, request: bytes, timeout_s: float, stream: bytes | None = None) -> bytes:
    try:
      reply = self._methods[name](request, timeout=timeout_s, metadata=self._headers(name, stream))
    except grpc.RpcError as error:
      raise self._error(error) from error
    self._count_up(request, UNARY)
    self._count_down(reply, UNARY)
    return reply

  def _with_token(self, stream: bytes, call: Callable[[], Reply]) -> Reply:
    """Makes a call of a stream, and repeats it with the token if the server requires one that was not sent."""
    was_sent = self._auth_every_call or not self._metadata
    try:
      return call()
    except CloudError as error:
      if error.status is not Status.UNAUTHENTICATED or was_sent:
        raise
    self._auth_every_call = True
    had_exchange = stream in self._exchanges
    self._exchanges.pop(stream, None)  # the streaming call was refused: a new one has the token
    if had_exchange and stream not in self._lazy:
      raise CloudError(Status.UNAVAILABLE, "calls that were sent ahead need the token too")  # they are sent again
    return call()

  def _send(self, exchange: Exchange, stream: bytes, seq: int, part: int, frame: bytes) -> None:
    # The first message has the id of the stream for all.
    request = encoding.verify_request(b"" if exchange.is_used else stream, seq, part, frame)
    exchange.send(request, seq, part)
    self._count_up(request, EXCHANGE)

  def _exchange_of(self, stream: bytes, seq: int, part: int) -> Exchange | None:
    """The streaming call of a call of a stream; None for a unary one."""
    if stream not in self._lazy:
      exchange = self._exchanges.get(stream)
      return exchange if exchange is not None and (seq, part) in exchange.sent else None
    if stream not in self._exchanges:
      self._exchanges[stream] = Exchange(self._exchange, self._headers("Exchange", stream))
    return self._exchanges[stream]

  def _headers(self, name: str, stream: bytes | None) -> tuple[tuple[str, str], ...]:
    """The headers of a call; each costs bytes."""
    headers = self._metadata if name in ("Describe", "Open") or self._auth_every_call else ()
    return headers + (((ROUTE_HEADER, stream.hex()),) if self._route and stream is not None else ())

  def _count_up(self, request: bytes, overhead: Overhead) -> None:
    with self._lock:
      self.uplink_bytes += len(request) + FRAMING + overhead.up

  def _count_down(self, reply: bytes, overhead: Overhead) -> None:
    with self._lock:
      self.downlink_bytes += len(reply) + FRAMING + overhead.down

  def _error(self, error: grpc.RpcError) -> CloudError:
    """The error in plain words, where the user can correct it. Waits for an unreachable server first."""
    status = Status.__members__.get(error.code().name, Status.UNAVAILABLE)
    if status is Status.UNAVAILABLE and self._patience_s > 0:
      self._wait()
    metadata = (error.trailing_metadata() or ()) if isinstance(error, grpc.Call) else ()
    pushback = next((str(item.value) for item in metadata if item.key == "grpc-retry-pushback-ms"), None)
    seconds = int(pushback) / 1000 if pushback is not None and pushback.isdigit() else None
    return CloudError(status, _plain(status, error.details() or "", self._target, self._tls, self._proxy), seconds)


def _proxy_to(target: Address) -> str | None:
  """The environment variable with the proxy of connections to this target; None without a proxy."""
  named = [name for name in ("grpc_proxy", "https_proxy", "http_proxy") if os.environ.get(name)]
  return named[0] if named and not urllib.request.proxy_bypass(target.host) else None


def _numeric(addresses: Sequence[str], port: int) -> str:
  """A target of gRPC with all of these addresses. Its addresses are of one kind, so IPv4 addresses are written as IPv6."""
  forms = [each if ":" in each else f"::ffff:{each}" for each in addresses]
  return "ipv6:" + ",".join(f"[{each}]:{port}" for each in forms)


# Messages of gRPC for a failed connection, and their causes in plain words.
_CAUSES = (
  ("certificate has expired", "the certificate of {target} has expired"),
  ("not yet valid", "the certificate of {target} is not valid yet, by the clock of this machine"),
  ("hostname verification", "the certificate of {target} has another name than {target.host}"),
  ("wrong_version_number", "{target} does not use TLS: grpc:// connects without it"),
  ("certificate_verify_failed", "the certificate of {target} is not trusted: --ca FILE (ca=) adds its authority"),
  ("alpn", "{target} is another kind of server: its TLS offers no HTTP/2"),
  ("security handshaker", "the given certificates (--ca, --cert, --key) are damaged"),
  ("failed parsing http/2", "{target} is another kind of server, or requires TLS: grpcs://"),
  ("handshake read failed", "{target} does not reply to the TLS handshake"),
  ("handshak", "the TLS handshake with {target} failed"),
  ("dns resolution", "there is no host named {target.host}"),
  ("resolving", "there is no host named {target.host}"),
  ("network is unreachable", "there is no route to {target}"),
  ("no route to host", "there is no route to {target}"),
)


def _plain(status: Status, details: str, target: Address, tls: Tls | None, proxy: str | None) -> str:
  """One line about a failure; the message of gRPC where it is about the call."""
  line = " ".join(details.split())
  text = line.lower()
  if status is Status.UNIMPLEMENTED:
    return f"{target} is another kind of server: it has no {_SERVICE.strip('/')}"
  if status is Status.DEADLINE_EXCEEDED and text == "deadline exceeded":
    return f"{target} did not reply in time"
  if status is not Status.UNAVAILABLE:
    return line or f"{target} gives no reason"
  causes = [cause.format(target=target) for words, cause in _CAUSES if words in text]
  if proxy is not None and not any("certificate" in cause for cause in causes):
    return f"the proxy in {proxy} does not connect to {target}"
  if causes:
    return causes[0]
  if "failed to connect" in text and "socket closed" in text:
    cause = "it may require TLS: grpcs://" if tls is None else "it may require a certificate of the edge (--cert, --key)"
    cause = cause if tls is None or tls.certificate is None else "it may not trust the certificate of the edge (--cert)"
    return f"{target} closes the connection: {cause}"
  if "refused" in text or "failed to connect" in text or "timed out" in text:
    return f"no server replies at {target}"
  return line or f"no server replies at {target}"
