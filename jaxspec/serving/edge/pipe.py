"""Two ends in two processes that share a pair of byte streams: pipes, or what a socket's ``makefile`` returns.

A request is its length, 4 bytes big-endian, and the message. A reply is a status byte, its length, and the reply; with
status 1 it is the text of the `MessageError` that the target side raised. A pipe neither loses nor repeats bytes, so nothing
is tried again.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from jaxspec.serving.edge.draft_endpoint import Transport
from jaxspec.serving.edge.target_endpoint import TargetEndpoint
from jaxspec.serving.wire.bitstream import MessageError, require

_LENGTH = struct.Struct(">I")
_OK, _REFUSED = b"\0", b"\1"
_MAX_ERROR = 1000


def serve(
  endpoint: TargetEndpoint,
  requests: BinaryIO,
  replies: BinaryIO,
  *,
  max_streams: int | None = None,
  max_bytes: int = 1 << 28,
) -> None:
  """Answers requests until they end, or until ``max_streams`` streams were closed.

  Args:
    max_bytes: a longer request ends the service with a `MessageError`; nothing after it could be found.
  """
  closed = 0
  while max_streams is None or closed < max_streams:
    message = _read_block(requests, max_bytes)
    if message is None:
      return
    was_open = endpoint.is_open
    try:
      status, answer = _OK, endpoint.handle(message)
    except MessageError as error:
      status, answer = _REFUSED, str(error).encode(errors="replace")[:_MAX_ERROR]
    closed += was_open and not endpoint.is_open
    replies.write(status + _LENGTH.pack(len(answer)) + answer)
    replies.flush()


def pipe_transport(requests: BinaryIO, replies: BinaryIO, *, max_bytes: int = 1 << 28) -> Transport:
  """The draft side's transport to an endpoint that is served at the other end.

  The transport raises a `MessageError` with the reason that the target side gave, or ``length`` where the pipe ended.
  """

  def transport(message: bytes) -> bytes:
    try:
      requests.write(_LENGTH.pack(len(message)) + message)
      requests.flush()
    except OSError as error:
      raise MessageError("length", f"the pipe does not take the message ({error})") from error
    status = replies.read(1)
    answer = _read_block(replies, max_bytes) if status else None
    require(answer is not None, "length", "no message arrived")
    if status == _OK:
      return answer
    reason, _, detail = answer.decode(errors="replace").partition(": ")
    raise MessageError(reason, detail)

  return transport


def _read_block(source: BinaryIO, max_bytes: int) -> bytes | None:
  """The next block of bytes with its length before it; None where the stream ends."""
  header = source.read(_LENGTH.size)
  if not header:
    return None
  require(len(header) == _LENGTH.size, "truncated", "half a length")
  (size,) = _LENGTH.unpack(header)
  require(size <= max_bytes, "length", f"{size} bytes")
  data = source.read(size)
  require(len(data) == size, "truncated", f"{len(data)} of {size} bytes")
  return data
