"""An edge for the toy engine: it drafts with its own chain, and stores its state for a resume."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator

from jaxspec.serving.edge.reliable_stream import ReliableStream
from jaxspec.serving.wire.ciar_message import write_ciar
from jaxspec.serving.wire.framing import DISTRIBUTION, REQUEST, Frame, frame
from jaxspec.serving.wire.handshake import Handshake, Resume
from tests.serving.edge.toy_engine import LAZY, LIMITS, MODEL, PLAIN, VOCAB, WINDOW, drawn, token_of

CALLS = 50  # besides handshake and closing


def handshake(number: int = 0, *, lazy: bool = False, **fields) -> Handshake:
  """What opens the toy's stream of this number."""
  values = dict(
    stream=hashlib.sha256(b"stream %d" % number).digest()[:16],
    model=MODEL,
    profile=LAZY.id if lazy else PLAIN.id,
    key=number.to_bytes(8),
    max_len=400,
    condition=(1, 2, number % VOCAB),
  )
  return Handshake(**(values | fields))


@dataclasses.dataclass
class ToyEdge:
  """Decodes one row.

  Attributes:
    replies: every frame that it was answered, in order.
    sent: bytes of frames that it sent, each once.
  """

  reliable: ReliableStream
  calls: int = CALLS
  tokens: tuple[int, ...] = ()
  replies: list[bytes] = dataclasses.field(default_factory=list)
  gained: list[int] = dataclasses.field(default_factory=list)
  fed: list[int] = dataclasses.field(default_factory=list)
  sent: int = 0

  @property
  def handshake(self) -> Handshake:
    """The handshake of the stream."""
    return self.reliable.handshake

  def run(self) -> None:
    """Decodes the whole row."""
    for _ in self.steps():
      pass

  def steps(self) -> Iterator[None]:
    """Decodes; others may have their turn after each call."""
    first = self.reliable.open()
    self._commit(first, (token_of(first.payload),), len(self.handshake.condition))
    for round_ in range(1, self.calls + 1):
      yield
      drafts = self._guesses()
      data, _ = write_ciar(round_, len(self.tokens) - 1, self.tokens[-1:], drafts, LIMITS)
      self.sent += len(data)
      reply = self.reliable.verify(data, self._prefix)
      if reply.kind == REQUEST:
        self.replies.append(reply.data)
        distribution = frame(DISTRIBUTION, round_, 1, reply.number, b"law!")
        self.sent += len(distribution)
        reply = self.reliable.complete(distribution, self._prefix)
      self._commit(reply, (*drafts[: reply.number], token_of(reply.payload)), 1 + len(drafts))
    self.reliable.close()

  def _guesses(self) -> tuple[int, ...]:
    """Drafts that are correct two times out of three."""
    tokens = self.tokens
    for _ in range(WINDOW):
      right = drawn(self.handshake.key, self.handshake.condition, tokens)
      wrong = hashlib.sha256(repr(tokens).encode()).digest()[0] % 3 == 0
      tokens += ((right + wrong) % VOCAB,)
    return tokens[len(self.tokens) :]

  def _commit(self, reply: Frame, tokens: tuple[int, ...], fed: int) -> None:
    self.replies.append(reply.data)
    self.tokens += tokens
    self.gained.append(len(tokens))
    self.fed.append(fed)

  def _prefix(self) -> Resume:
    next_seq = len(self.gained)
    return Resume(next_seq, next_seq, self.tokens, tuple(self.gained), tuple(self.fed))
