"""One streaming call of gRPC, with the messages of many calls and the headers of one."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import grpc

from jaxspec.serving.wire.cloud import CloudError, Status
from jaxspec.serving.wire.v1 import encoding

Message = TypeVar("Message")


class Exchange:
  """A streaming call. Requests are sent as they come, and a thread reads the replies.

  Args:
    method: the method of a channel, `grpc.Channel.stream_stream`.
    metadata: headers of the call.

  Attributes:
    sent: ``(seq, part)`` of requests without a reply, in order.
    is_used: whether a request was sent.
    arrived_s: when the newest reply that `wait` returned arrived, by `time.monotonic`.
  """

  def __init__(self, method: grpc.StreamStreamMultiCallable, metadata: tuple[tuple[str, str], ...]):
    self.is_used, self.arrived_s = False, 0.0
    self.sent: list[tuple[int, int]] = []
    self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    self._replies: queue.SimpleQueue[tuple[float, bytes | grpc.RpcError]] = queue.SimpleQueue()
    self._call = method(iter(self._requests.get, None), metadata=metadata)
    threading.Thread(target=self._read, name="jaxspec-exchange", daemon=True).start()

  def send(self, request: bytes, seq: int, part: int) -> None:
    """Sends a request without waiting for its reply."""
    self._requests.put(request)
    self.sent.append((seq, part))
    self.is_used = True

  def wait(self, seq: int, part: int, timeout_s: float) -> tuple[bytes, bytes]:
    """The frame of the reply to a sent request, and the reply.

    Raises:
      grpc.RpcError: if the streaming call ended.
      CloudError: if there was no reply in time; late replies to earlier calls are skipped.
    """
    deadline = time.monotonic() + timeout_s
    while True:
      try:
        arrived_s, reply = self._replies.get(timeout=max(0.0, deadline - time.monotonic()))
      except queue.Empty:
        raise CloudError(Status.DEADLINE_EXCEEDED, "no reply in time") from None
      if isinstance(reply, grpc.RpcError):
        raise reply
      frame = parsed(lambda data: encoding.reply_to(data, seq, part), reply)
      if frame is not None:
        self.sent.remove((seq, part))
        self.arrived_s = arrived_s
        return frame, reply

  def end(self) -> None:
    """Sends no more requests."""
    self._requests.put(None)

  def _read(self) -> None:
    try:
      for reply in self._call:
        self._replies.put((time.monotonic(), reply))
      ended: grpc.RpcError = _Ended()
    except grpc.RpcError as error:
      ended = error
    self._requests.put(None)  # lets gRPC's own thread end
    self._replies.put((time.monotonic(), ended))


class _Ended(grpc.RpcError):
  """The server ended the streaming call without an error."""

  def code(self) -> grpc.StatusCode:
    return grpc.StatusCode.UNAVAILABLE

  def details(self) -> str:
    return "the server ended the streaming call"

  def trailing_metadata(self) -> tuple:
    return ()


def parsed(read: Callable[[bytes], Message], data: bytes) -> Message:
  """A parsed message of the server.

  Raises:
    CloudError: ``DATA_LOSS`` for bytes that are no message.
  """
  from google.protobuf.message import DecodeError

  try:
    return read(data)
  except DecodeError as error:
    raise CloudError(Status.DATA_LOSS, "the reply is no message of the protocol") from error
