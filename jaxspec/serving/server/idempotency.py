"""The call table makes calls idempotent: it caches the last replies of a stream and returns them on a retry.

A reply is a function of (stream, seq, part). `Open` is call 0. An edge retries its oldest call without a reply until there
is one. It may have sent later calls already, so the table keeps the digests of the newest requests, and their replies.

==========================================  ==========================================================================
request                                     result
==========================================  ==========================================================================
the next call                               `Decision.RUN`; `finish` moves the state and caches the reply
the same bytes while they are in flight     `Decision.JOIN`: one run, one reply
one of the newest answered calls, same      the cached reply, byte for byte
bytes
either of them with other bytes             ``FAILED_PRECONDITION``: two edges share a stream
an older call                               ``OUT_OF_RANGE``: a late duplicate
a later call, an unknown stream, a stream   ``NOT_FOUND`` for all of them: the edge resumes
of another tenant
`Open` of a known stream, same bytes        `Decision.JOIN`, or the first reply
`Open` that resumes a known stream at or    `Decision.RUN`: the stream restarts from there. The edge has the newer state: it
after its next call                         used another server, and this one has an old copy
`Open` of a known stream, other bytes       ``ALREADY_EXISTS``
`Close`, also of an unknown stream          an empty reply
==========================================  ==========================================================================

The table has no clock and no sockets; time is an argument.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import hashlib
from typing import NamedTuple

from jaxspec.serving.wire.cloud import CloudError, Status
from jaxspec.serving.wire.framing import OVERHEAD_BYTES, REQUEST

_KIND_BYTE = 3  # of a frame


class Decision(enum.Enum):
  """How a call without a cached reply is handled."""

  RUN = enum.auto()
  JOIN = enum.auto()


class Position(NamedTuple):
  """The position of a call in its stream; positions are ordered."""

  seq: int
  part: int


OPEN = Position(0, 0)


@dataclasses.dataclass
class _Call:
  """The digest of a request, and its reply once there is one."""

  position: Position
  digest: bytes
  reply: bytes | None = None


@dataclasses.dataclass
class _Stream:
  """The calls of a stream.

  Attributes:
    handshake: digest of its handshake, without the resume part.
    first: the newest `Open`.
    answered: the newest answered calls, the newest last.
    next: the call that runs next.
    running: the call in flight.
    last_used: time of the newest arrival or reply.
  """

  tenant: str
  handshake: bytes
  first: _Call
  answered: collections.deque[_Call]
  next: Position
  running: _Call | None
  last_used: float


class CallTable:
  """The streams of a server.

  Args:
    max_streams: most streams.
    num_replies: cached replies of a stream; as many calls as an edge has in flight.
  """

  def __init__(self, max_streams: int, *, num_replies: int = 1):
    self._max_streams, self._num_replies = max_streams, num_replies
    self._streams: dict[bytes, _Stream] = {}

  def __len__(self) -> int:
    return len(self._streams)

  def __contains__(self, stream: bytes) -> bool:
    return stream in self._streams

  def tenant_of(self, stream: bytes) -> str | None:
    """The owner of a stream; None for an unknown stream."""
    known = self._streams.get(stream)
    return None if known is None else known.tenant

  def streams_of(self, tenant: str) -> int:
    """Number of streams of a tenant."""
    return sum(stream.tenant == tenant for stream in self._streams.values())

  def open(
    self,
    stream: bytes,
    tenant: str,
    handshake: bytes,
    request: bytes,
    next_seq: int | None,
    now: float,
  ) -> Decision | bytes:
    """Handles an `Open`.

    Args:
      handshake: the request without its prefix, the same bytes for every attempt to open or to resume the stream.
      request: the whole request.
      next_seq: the next call of a resumed stream; None for a new stream.
    Raises:
      CloudError: see the table above; ``RESOURCE_EXHAUSTED`` where the table is full.
    """
    digest, handshake = _digest(request), _digest(handshake)
    known = self._streams.get(stream)
    if known is None:
      if len(self._streams) >= self._max_streams:
        raise CloudError(Status.RESOURCE_EXHAUSTED, f"all {self._max_streams} streams are taken")
    else:
      if known.tenant == tenant and known.first.digest == digest:
        known.last_used = now
        return Decision.JOIN if known.first.reply is None else known.first.reply
      self._check_resume(known, tenant, handshake, next_seq)
    call = _Call(OPEN, digest)
    self._streams[stream] = _Stream(
      tenant, handshake, call, collections.deque([call], self._num_replies), Position(next_seq or 1, 0), call, now
    )
    return Decision.RUN

  def verify(self, stream: bytes, tenant: str | None, position: Position, frame: bytes, now: float) -> Decision | bytes:
    """Handles a `Verify`.

    Args:
      tenant: the caller; None where the stream's id alone authorises.
      frame: its digest identifies the call among those of one position.
    Raises:
      CloudError: see the table above.
    """
    known, digest = self._streams.get(stream), _digest(frame)
    if known is None or tenant not in (None, known.tenant):
      raise _not_found()
    running = known.running
    if running is not None and running.position == position:
      return self._again(known, running, digest, now)
    answered = next((call for call in known.answered if call.position == position != OPEN), None)
    if answered is not None:
      return self._again(known, answered, digest, now)
    if position < known.next:
      newest = known.answered[-1].position
      if position.seq == newest.seq and position > newest:
        raise CloudError(Status.FAILED_PRECONDITION, f"the reply to call {position.seq} has no request")
      raise CloudError(Status.OUT_OF_RANGE, f"call {position.seq} is older than call {known.next.seq}, which comes next")
    if position > known.next or running is not None:
      raise _not_found()
    known.running, known.last_used = _Call(position, digest), now
    return Decision.RUN

  def finish(self, stream: bytes, reply: bytes, now: float) -> None:
    """Ends the call in flight: moves the state and caches the reply."""
    known = self._streams[stream]
    call, known.running, known.last_used = known.running, None, now
    assert call is not None, "the stream has a call in flight"
    call.reply = reply
    known.answered.append(call)
    if call.position != OPEN:
      requests = len(reply) >= OVERHEAD_BYTES and reply[_KIND_BYTE] == REQUEST
      seq = call.position.seq
      known.next = Position(seq, 1) if requests else Position(seq + 1, 0)

  def drop(self, stream: bytes) -> None:
    """Drops the call in flight, which was not computed: it changed nothing and may be retried."""
    known = self._streams[stream]
    if known.running is not None and known.running.position == OPEN:
      del self._streams[stream]
    else:
      known.running = None

  def forget(self, stream: bytes, tenant: str | None = None) -> bool:
    """Removes a stream.

    Args:
      tenant: its owner; None for any.
    Returns:
      Whether there was such a stream.
    """
    known = self._streams.get(stream)
    if known is None or tenant not in (None, known.tenant):
      return False
    del self._streams[stream]
    return True

  def idle(self, before: float) -> list[bytes]:
    """Streams without a call in flight whose last use was before a time."""
    return [stream for stream, known in self._streams.items() if known.running is None and known.last_used < before]

  def _check_resume(self, known: _Stream, tenant: str, handshake: bytes, next_seq: int | None) -> None:
    same = known.tenant == tenant and known.handshake == handshake
    if not same or next_seq is None or Position(next_seq, 0) < known.next:
      raise CloudError(Status.ALREADY_EXISTS, "a stream of this id was opened with other bytes")
    if known.running is not None:
      raise CloudError(Status.UNAVAILABLE, "a call of the stream is still running")

  def _again(self, known: _Stream, call: _Call, digest: bytes, now: float) -> Decision | bytes:
    if call.digest != digest:
      raise CloudError(Status.FAILED_PRECONDITION, f"call {call.position.seq} came before, with other bytes")
    known.last_used = now
    return Decision.JOIN if call.reply is None else call.reply


def _digest(data: bytes) -> bytes:
  return hashlib.sha256(data).digest()


def _not_found() -> CloudError:
  return CloudError(Status.NOT_FOUND, "no such stream, or not at this call")
