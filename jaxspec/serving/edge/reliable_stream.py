"""One stream over any cloud: calls are numbered, tried again, resumed where the server lost the stream, and written down.

The edge owns the stream. Whatever a server lost, the edge makes again from the opening and what it committed:

1. On ``NOT_FOUND`` it opens the stream again, with the same id and its prefix, and sends the pending call again.
2. A distribution that a lost server had requested is sent after the drafts were sent again.
3. With a journal every reply is on file before it is used, behind a digest of what was asked. A process that starts again
   runs its own rounds from the file, without the network, and goes on where the file ends. An edge that asks something else
   (another draft, another threshold) is told so: replies to other drafts would give it tokens of nobody's distribution.
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.observer import Watch
from jaxspec.serving.edge.retries import Attempts, Budget, CallTimes, Policy
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.cloud import Cloud, CloudError, Opened, Opening, Resume, Status
from jaxspec.serving.wire.framing import REPLY_BYTES, Frame, unframe

_DIGEST_BYTES = 16
Reply = TypeVar("Reply")
_LOG = logging.getLogger(__name__)


class Session:
  """A stream of one row, from the edge.

  Args:
    cloud: one attempt at one call.
    policy: how often a call is tried, and for how long.
    budget: shared by the sessions of an edge; its own by default. ``times`` likewise.
    journal: where replies are kept; with records in it, the stream that they are of goes on.
    watch: told about calls.
    clock: seconds, growing.
    sleep: waits so many seconds.
    uniform: random numbers in [0, 1).

  Attributes:
    retries: attempts after the first ones.
    resumes: how often a server had lost the stream.
  """

  def __init__(
    self,
    cloud: Cloud,
    *,
    policy: Policy = Policy(),
    budget: Budget | None = None,
    times: CallTimes | None = None,
    journal: Journal | None = None,
    watch: Watch | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    uniform: Callable[[], float] = random.random,
  ):
    self._cloud, self._policy, self._journal = cloud, policy, journal
    self._watch = Watch() if watch is None else watch
    self._budget = Budget() if budget is None else budget
    self._times = CallTimes() if times is None else times
    self._clock, self._sleep, self._uniform = clock, sleep, uniform
    self._recorded = iter(() if journal is None else list(journal.records))
    self._opening: Opening | None = None
    self._numerics, self._seq, self._drafts = b"", 0, b""
    self._asked: Frame | None = None
    self.retries = self.resumes = 0

  def open(self, opening: Opening) -> Frame:
    """Opens the stream.

    Args:
      opening: of a stream with a new id. A journal with records keeps the id that is in it.
    Returns:
      The frame of token 0, checked.
    Raises:
      CloudError: where no server opens it.
      ValueError: for a journal of another stream.
    """
    self._opening = self._written(opening)
    recorded = self._read(b"")
    if recorded is not None:
      return recorded
    self._watch.begins()
    opened, first = self._call(lambda timeout_s: self._open(self._opening, None, timeout_s))
    self._watch.opened(self._opening, opened)
    self._numerics = opened.numerics
    return self._kept(b"", first)

  def verify(self, frame: bytes, prefix: Callable[[int], Resume]) -> Frame:
    """Sends the drafts of a round.

    Args:
      prefix: what the edge has, for a server that lost the stream, given the number of the next call.
    Returns:
      The reply frame, checked; it may request a distribution, see `complete`.
    Raises:
      CloudError: where no server answers.
      ValueError: for a journal of an edge that sent other drafts.
    """
    self._seq, self._drafts = self._seq + 1, frame
    self._asked = self._exchange(0, frame, prefix)
    return self._asked

  def complete(self, frame: bytes, prefix: Callable[[int], Resume]) -> Frame:
    """Sends the distribution that the reply to the newest drafts requested; arguments as in `verify`."""
    return self._exchange(1, frame, prefix)

  def close(self) -> None:
    """Lets the server forget the stream. One that cannot be reached forgets it by itself."""
    try:
      self._cloud.close(self._opening.stream, timeout_s=self._policy.min_timeout_s)
    except CloudError as error:
      _LOG.debug("The stream was not closed: %s", error)

  def _exchange(self, part: int, frame: bytes, prefix: Callable[[int], Resume]) -> Frame:
    recorded = self._read(frame)
    if recorded is not None:
      return recorded
    self._watch.begins()
    again = lambda: self._resume(part, prefix)
    reply = self._call(lambda timeout_s: self._verify(part, frame, timeout_s), again)
    self._watch.answered(self._seq, part, frame, reply.data, lambda: prefix(self._seq))
    return self._kept(frame, reply)

  def _call(self, attempt: Callable[[float], Reply], resume: Callable[[], None] | None = None) -> Reply:
    """Tries until there is a reply.

    Args:
      attempt: one attempt with its deadline.
      resume: brings the stream back where a server lost it; None where there is nothing to bring back.
    """
    attempts = Attempts(self._policy, self._budget, self._times, self._clock())
    while True:
      began = self._clock()
      try:
        reply = attempt(attempts.timeout_s())
      except CloudError as error:
        if error.status is Status.NOT_FOUND and resume is not None:
          attempts.resumed(error)
          resume()
        else:
          self._sleep(attempts.failed(error, self._clock(), self._uniform()))
          self.retries += 1
          self._watch.retried()
      else:
        attempts.succeeded(self._clock() - began)
        return reply

  def _verify(self, part: int, frame: bytes, timeout_s: float) -> Frame:
    return _whole(self._cloud.verify(self._opening.stream, self._seq, part, frame, timeout_s=timeout_s))

  def _open(self, opening: Opening, resume: Resume | None, timeout_s: float) -> tuple[Opened, Frame]:
    opened = self._cloud.open(opening, resume, timeout_s=timeout_s)
    return opened, _whole(opened.frame)

  def _resume(self, part: int, prefix: Callable[[int], Resume]) -> None:
    self.resumes += 1
    resume = prefix(self._seq)
    opened, _ = self._call(lambda timeout_s: self._open(self._opening, resume, timeout_s))
    self._watch.resumed()
    if self._numerics and opened.numerics != self._numerics:
      _LOG.warning("The stream goes on at a server of other numerics: same distribution, other tokens are possible")
    self._numerics = opened.numerics
    if part:
      try:
        asked = self._call(lambda timeout_s: self._verify(0, self._drafts, timeout_s))
      except CloudError as error:
        if error.status is Status.NOT_FOUND:
          return  # lost once more: the pending call finds that out, and comes here again
        raise
      if asked != self._asked:
        raise CloudError(Status.FAILED_PRECONDITION, "a server of other numerics judged the same drafts in another way")

  def _written(self, opening: Opening) -> Opening:
    """The opening, which becomes the first record of the journal or is the one that is there."""
    if self._journal is None:
      return opening
    from jaxspec.serving.wire.v1 import encoding  # only those who keep a journal need protobuf without a network

    recorded = next(self._recorded, None)
    if recorded is None:
      self._journal.append(encoding.open_request(opening))
      return opening
    try:
      opening = opening._replace(stream=encoding.stream_of(recorded))
    except ValueError:
      raise ValueError("Must have the journal of a decode over a cloud, we instead got one of something else") from None
    if encoding.open_request(opening) != recorded:
      raise ValueError("Must have the journal of the same decode, we instead got one with another prompt, seed or method")
    return opening

  def _read(self, asked: bytes) -> Frame | None:
    """The next reply of the journal, to what is asked now; None where the journal ends."""
    recorded = next(self._recorded, None)
    if recorded is None:
      return None
    if recorded[:_DIGEST_BYTES] != _digest(asked):
      raise ValueError("Must have the journal of the same decode, we instead got one with another draft or option")
    return unframe(recorded[_DIGEST_BYTES:], REPLY_BYTES)

  def _kept(self, asked: bytes, reply: Frame) -> Frame:
    if self._journal is not None:
      self._journal.append(_digest(asked) + reply.data)
    return reply


def _digest(asked: bytes) -> bytes:
  return hashlib.sha256(asked).digest()[:_DIGEST_BYTES]


def _whole(frame: bytes) -> Frame:
  """A frame of the server that arrived whole; another one is a reason for a retry."""
  try:
    return unframe(frame, REPLY_BYTES)
  except MessageError as error:
    raise CloudError(Status.DATA_LOSS, f"a damaged reply, {error}") from error
