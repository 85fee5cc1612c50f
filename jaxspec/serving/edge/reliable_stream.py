"""A stream over any cloud: calls are numbered and retried, a lost stream is resumed, and replies are journalled.

The edge owns the stream. It can rebuild everything that a server lost from the handshake and the committed tokens:

1. On ``NOT_FOUND`` it opens the stream again, with the same id and its tokens, and sends the pending call again.
2. If the server was lost after it requested a distribution, the drafts are sent again before the distribution.
3. Calls may be sent before the replies to earlier ones (`ReliableStream.send_ahead`). Replies are awaited in order. After a
   failed attempt, the oldest call is retried alone, and the later ones are sent again after its reply.
4. With a journal, every reply is on file before it is used, behind a digest of its request. A restarted process runs its
   rounds from the file, without the network, and continues where the file ends. A request that differs from the journalled
   one (another draft, another threshold) is refused, because replies to other drafts would change the distribution of the
   tokens. The times of a round are kept too, because lengths of later drafts may depend on them.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.edge.retries import Attempts, Budget, CallTimes, Policy
from jaxspec.serving.edge.round_timing import TIMING_BYTES, TimedRound, Timing, microseconds
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.cloud import AheadCloud, Cloud, CloudError, Status
from jaxspec.serving.wire.framing import REPLY_BYTES, Frame, unframe
from jaxspec.serving.wire.handshake import Handshake, HandshakeReply, Resume

_DIGEST_BYTES = 16
Reply = TypeVar("Reply")
_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class RetrySettings:
  """How calls are retried. The streams of an edge share one object, and with it the budget and the call times.

  Attributes:
    policy: limits of the attempts at one call.
    budget: share of calls that may fail before retries stop.
    times: smoothed time of a call, for deadlines.
    rounds: measured rounds of finished rows, for drafts whose length follows the delay.
    clock: seconds, growing.
    sleep: waits for a number of seconds.
    uniform: returns random numbers in [0, 1).
  """

  policy: Policy = Policy()
  budget: Budget = dataclasses.field(default_factory=Budget)
  times: CallTimes = dataclasses.field(default_factory=CallTimes)
  rounds: list[TimedRound] = dataclasses.field(default_factory=list)
  clock: Callable[[], float] = time.monotonic
  sleep: Callable[[float], None] = time.sleep
  uniform: Callable[[], float] = random.random


class ReliableStream:
  """A stream of one row, from the edge.

  Args:
    cloud: makes one attempt at one call.
    handshake: of a stream with a new id. A journal with records keeps the id that is in it.
    settings: of retries, by default those of `RetrySettings`.
    journal: file of the replies; its records are replayed first.
    observer: of the calls.
  Raises:
    ValueError: for a journal of another stream.

  Attributes:
    handshake: of the stream.
    retries: attempts after the first ones.
    resumes: number of times that a server had lost the stream.
    timing: times of the newest round, for an edge that adds its own.
  """

  def __init__(
    self,
    cloud: Cloud,
    handshake: Handshake,
    *,
    settings: RetrySettings | None = None,
    journal: Journal | None = None,
    observer: Observer | None = None,
  ):
    self._cloud, self._journal = cloud, journal
    self._settings = RetrySettings() if settings is None else settings
    self._observer = Observer() if observer is None else observer
    self._recorded = collections.deque([] if journal is None else journal.records)
    self.handshake = handshake if journal is None else self._journalled(handshake, journal)
    self._numerics, self._seq, self._drafts = b"", 0, b""
    self._ahead: collections.deque[bytes] = collections.deque()  # frames of calls that were sent ahead, the oldest first
    self._is_cut = False  # an attempt at the oldest of them failed
    self._sent_s: dict[int, float] = {}  # times of calls that were sent ahead
    self._arrived_s = self._settings.clock()  # time of the newest reply
    self.timing = Timing(0, 0, 0)
    self._reply_to_drafts: Frame | None = None
    self.retries = self.resumes = 0

  def open(self) -> Frame:
    """Opens the stream.

    Returns:
      The frame of token 0, checked.
    Raises:
      CloudError: if no server opens it.
      ValueError: for a journal of another decode.
    """
    recorded = self._recorded_reply(b"")
    if recorded is not None:
      return recorded
    self._observer.begins()
    opened, first = self._call(lambda timeout_s: self._open(None, timeout_s))
    self._observer.opened(self.handshake, opened)
    self._numerics = opened.numerics
    return self._record(b"", first)

  def send_ahead(self, frame: bytes) -> None:
    """Sends the drafts of a round before the replies to earlier ones; `verify` with the same frames waits for the replies.

    A cloud that cannot send ahead gets them one after the other.
    """
    self._ahead.append(frame)
    if len(self._ahead) > len(self._recorded) and not self._is_cut:
      self._send_ahead(self._seq + len(self._ahead), frame)

  def verify(self, frame: bytes, resume: Callable[[], Resume], draft_us: int = 0) -> Frame:
    """Sends the drafts of a round, unless they were sent ahead, and waits for the reply.

    Args:
      resume: returns the state of the stream before this call, for a server that lost it.
    Returns:
      The reply frame, checked; it may request a distribution, see `complete`.
    Raises:
      CloudError: if no server replies.
      ValueError: for a journal of an edge that sent other drafts.
    """
    self._seq, self._drafts = self._seq + 1, frame
    self.timing = self.timing._replace(draft_us=draft_us)
    self._reply_to_drafts = self._exchange(0, frame, resume)
    if self._ahead:
      self._ahead.popleft()
    if self._is_cut:
      self._is_cut = False
      for number, later in enumerate(self._ahead, 1):
        self._send_ahead(self._seq + number, later)
    return self._reply_to_drafts

  def complete(self, frame: bytes, resume: Callable[[], Resume]) -> Frame:
    """Sends the distribution that the reply to the newest drafts requested; arguments as in `verify`."""
    return self._exchange(1, frame, resume)

  def close(self) -> None:
    """Removes the stream from the server. A server that cannot be reached removes it by itself later."""
    try:
      self._cloud.close(self.handshake.stream, timeout_s=self._settings.policy.min_timeout_s)
    except CloudError as error:
      _LOG.debug("The stream was not closed: %s", error)

  def _send_ahead(self, seq: int, frame: bytes) -> None:
    if isinstance(self._cloud, AheadCloud):
      self._sent_s[seq] = self._settings.clock()
      self._cloud.send(self.handshake.stream, seq, frame)

  def _exchange(self, part: int, frame: bytes, resume: Callable[[], Resume]) -> Frame:
    recorded = self._recorded_reply(frame)
    if recorded is not None:
      return recorded
    self._observer.begins()
    reply = self._call(lambda timeout_s: self._verify(part, frame, timeout_s), lambda: self._resume(part, resume))
    self._observer.answered(self._seq, part, frame, reply.data, resume)
    return self._record(frame, reply)

  def _call(self, attempt: Callable[[float], Reply], resume: Callable[[], None] | None = None) -> Reply:
    """Tries until there is a reply.

    Args:
      attempt: one attempt with its deadline.
      resume: resumes the stream at a server that lost it; None for the handshake.
    """
    how = self._settings
    attempts = Attempts(how.policy, how.budget, how.times, how.clock())
    while True:
      began = how.clock()
      try:
        reply = attempt(attempts.timeout_s())
      except CloudError as error:
        self._is_cut = bool(self._ahead)
        if error.status is Status.NOT_FOUND and resume is not None:
          attempts.resumed(error)
          resume()
        else:
          how.sleep(attempts.failed(error, how.clock(), how.uniform()))
          self.retries += 1
          self._observer.retried()
      else:
        attempts.succeeded(how.clock() - began)
        return reply

  def _verify(self, part: int, frame: bytes, timeout_s: float) -> Frame:
    clock, stream = self._settings.clock, self.handshake.stream
    began_s = clock()
    sent_s = self._sent_s.pop(self._seq, began_s)  # a call that failed is sent again
    reply = _checked(self._cloud.verify(stream, self._seq, part, frame, timeout_s=timeout_s))
    if part == 0:
      arrived_s = self._cloud.arrived_s(stream) if isinstance(self._cloud, AheadCloud) else None
      arrived_s = clock() if arrived_s is None or arrived_s < sent_s else arrived_s
      exchange_us, spacing_us = microseconds(arrived_s - sent_s), microseconds(arrived_s - self._arrived_s)
      self.timing, self._arrived_s = Timing(self.timing.draft_us, exchange_us, spacing_us), arrived_s
    return reply

  def _open(self, resume: Resume | None, timeout_s: float) -> tuple[HandshakeReply, Frame]:
    opened = self._cloud.open(self.handshake, resume, timeout_s=timeout_s)
    return opened, _checked(opened.frame)

  def _resume(self, part: int, resume: Callable[[], Resume]) -> None:
    self.resumes += 1
    state = resume()
    opened, _ = self._call(lambda timeout_s: self._open(state, timeout_s))
    self._observer.resumed()
    if self._numerics and opened.numerics != self._numerics:
      _LOG.warning("The stream is resumed at a server of other numerics: same distribution, other tokens are possible")
    self._numerics = opened.numerics
    if part:
      try:
        reply = self._call(lambda timeout_s: self._verify(0, self._drafts, timeout_s))
      except CloudError as error:
        if error.status is Status.NOT_FOUND:
          return  # lost again: the pending call fails with NOT_FOUND too, and resumes the stream
        raise
      if reply != self._reply_to_drafts:
        raise CloudError(Status.FAILED_PRECONDITION, "a server of other numerics verified the same drafts differently")

  def _journalled(self, handshake: Handshake, journal: Journal) -> Handshake:
    """The handshake with the id of the journal, or as the first record of an empty journal."""
    from jaxspec.serving.wire.v1 import encoding  # without a network, protobuf is needed for a journal alone

    recorded = self._recorded.popleft() if self._recorded else None
    if recorded is None:
      journal.append(encoding.open_request(handshake))
      return handshake
    try:
      handshake = handshake._replace(stream=encoding.stream_of(recorded))
    except ValueError:
      raise ValueError("Must have the journal of a decode over a cloud, we instead got one of something else") from None
    if encoding.open_request(handshake) != recorded:
      raise ValueError("Must have the journal of the same decode, we instead got one with another prompt, seed or method")
    return handshake

  def _recorded_reply(self, request: bytes) -> Frame | None:
    """The next reply of the journal, which must be to this request; None at the end of the journal."""
    recorded = self._recorded.popleft() if self._recorded else None
    if recorded is None:
      return None
    if recorded[:_DIGEST_BYTES] != _digest(request):
      raise ValueError("Must have the journal of the same decode, we instead got one with another draft or option")
    self.timing = Timing.unpack(recorded[_DIGEST_BYTES:][:TIMING_BYTES])
    return unframe(recorded[_DIGEST_BYTES + TIMING_BYTES :], REPLY_BYTES)

  def _record(self, request: bytes, reply: Frame) -> Frame:
    if self._journal is not None:
      self._journal.append(_digest(request) + self.timing.pack() + reply.data)
    return reply


def _digest(request: bytes) -> bytes:
  return hashlib.sha256(request).digest()[:_DIGEST_BYTES]


def _checked(frame: bytes) -> Frame:
  """A frame of the server with a valid checksum; a damaged one is a reason for a retry."""
  try:
    return unframe(frame, REPLY_BYTES)
  except MessageError as error:
    raise CloudError(Status.DATA_LOSS, f"a damaged reply, {error}") from error
