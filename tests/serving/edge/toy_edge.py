"""An edge for the toy engine: it guesses with a chain of its own, and keeps what it would need to resume."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator

from jaxspec.serving.edge.reliable_stream import Session
from jaxspec.serving.wire.ciar_message import write_gated
from jaxspec.serving.wire.cloud import Opening, Resume
from jaxspec.serving.wire.framing import DISTRIBUTION, REQUEST, Frame, frame
from tests.serving.edge.toy_engine import LAZY, MODEL, PLAIN, VOCAB, WINDOW, WIRE, drawn, token_of

CALLS = 50  # besides opening and closing


def opening(number: int = 0, *, lazy: bool = False, **fields) -> Opening:
  """What opens the toy's stream of this number."""
  values = dict(
    stream=hashlib.sha256(b"stream %d" % number).digest()[:16],
    model=MODEL,
    profile=LAZY.id if lazy else PLAIN.id,
    key=number.to_bytes(8),
    max_len=400,
    condition=(1, 2, number % VOCAB),
  )
  return Opening(**(values | fields))


@dataclasses.dataclass
class ToyEdge:
  """Decodes one row.

  Attributes:
    replies: every frame that it was answered, in order.
    sent: bytes of frames that it sent, each once.
  """

  session: Session
  opening: Opening
  calls: int = CALLS
  tokens: tuple[int, ...] = ()
  replies: list[bytes] = dataclasses.field(default_factory=list)
  gained: list[int] = dataclasses.field(default_factory=list)
  fed: list[int] = dataclasses.field(default_factory=list)
  sent: int = 0

  def run(self) -> None:
    """Decodes the whole row."""
    for _ in self.steps():
      pass

  def steps(self) -> Iterator[None]:
    """Decodes; others may have their turn after each call."""
    first = self.session.open(self.opening)
    self._commit(first, (token_of(first.payload),), len(self.opening.condition))
    for round_ in range(1, self.calls + 1):
      yield
      drafts = self._guesses()
      data, _ = write_gated(round_, len(self.tokens) - 1, self.tokens[-1:], drafts, WIRE)
      self.sent += len(data)
      reply = self.session.verify(data, self._prefix)
      if reply.kind == REQUEST:
        self.replies.append(reply.data)
        distribution = frame(DISTRIBUTION, round_, 1, reply.number, b"law!")
        self.sent += len(distribution)
        reply = self.session.complete(distribution, self._prefix)
      self._commit(reply, (*drafts[: reply.number], token_of(reply.payload)), 1 + len(drafts))
    self.session.close()

  def _guesses(self) -> tuple[int, ...]:
    """Drafts that are right two times out of three."""
    tokens = self.tokens
    for _ in range(WINDOW):
      right = drawn(self.opening.key, self.opening.condition, tokens)
      wrong = hashlib.sha256(repr(tokens).encode()).digest()[0] % 3 == 0
      tokens += ((right + wrong) % VOCAB,)
    return tokens[len(self.tokens) :]

  def _commit(self, reply: Frame, tokens: tuple[int, ...], fed: int) -> None:
    self.replies.append(reply.data)
    self.tokens += tokens
    self.gained.append(len(tokens))
    self.fed.append(fed)

  def _prefix(self, next_seq: int) -> Resume:
    assert next_seq == len(self.gained)
    return Resume(next_seq, next_seq, self.tokens, tuple(self.gained), tuple(self.fed))
