"""An engine without a network: a Markov chain in which a reply depends on the row key, the round and the committed tokens.

Drafts are tokens of a gated frame without distributions. One is accepted where the chain's own draw is the same. So the
engine is deterministic, and a device that guesses with another chain has some drafts accepted and some not.
"""

from __future__ import annotations

import hashlib
import threading
import time

from jaxspec.serving.server.engine_interface import NotFinite, StreamLost
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.ciar_message import CiarLimits, read_ciar
from jaxspec.serving.wire.cloud import Profile
from jaxspec.serving.wire.framing import DISTRIBUTION, FIRST, REPLY, REQUEST, Frame, frame
from jaxspec.serving.wire.handshake import Handshake, Resume

VOCAB, MAX_LEN, MAX_CONDITION, WINDOW = 11, 400, 16, 3
NUMERICS, MODEL = b"n" * 32, b"m" * 32
LIMITS = CiarLimits.of(None, vocab=VOCAB, window=WINDOW, max_len=MAX_LEN)
PLAIN = Profile(1, "ciar", window=WINDOW, max_frame=LIMITS.max_bytes)
LAZY = Profile(2, "toy", window=WINDOW, coding="lazy", ell=100, max_support=4, max_frame=LIMITS.max_bytes)
BAD_NUMBERS = 7  # a label whose rows are not finite
LAW_BYTES = 4


def drawn(key: bytes, condition: object, tokens: tuple[int, ...]) -> int:
  """What the target draws after these tokens: the chain sees the newest one, the key and the position."""
  newest = tokens[-1:] if tokens else ("condition", condition)
  return hashlib.sha256(repr((key, len(tokens), newest)).encode()).digest()[0] % VOCAB


def token_of(payload: bytes) -> int:
  """The token of a reply."""
  return int.from_bytes(payload)


class _Row:
  """A stream: what opened it, its committed tokens, its round, and the reply that waits for part 1."""

  def __init__(self, handshake: Handshake, resume: Resume | None):
    self.key, self.condition, self.max_len = handshake.key, handshake.condition, handshake.max_len
    self.is_lazy = handshake.profile == LAZY.id
    self.first = drawn(self.key, self.condition, ())
    self.tokens = (self.first,) if resume is None else resume.tokens
    self.round = 1 if resume is None else resume.round
    self.half: tuple[int, tuple[int, ...]] | None = None  # of a call whose distribution was requested

  def judge(self, data: Frame) -> bytes:
    """Part 0: accepts drafts as long as they are what the chain draws."""
    got = read_ciar(data, LIMITS)
    require(got.read == len(self.tokens) - 1, "order", f"tokens from position {got.read} on")
    require(got.round == self.round, "order", f"round {got.round} instead of {self.round}")
    require(got.pending == self.tokens[-1:], "order", "another newest token than the committed one")
    tokens = self.tokens
    for draft in got.tokens:
      if drawn(self.key, self.condition, tokens) != draft:
        break
      tokens += (draft,)
    accepted = len(tokens) - len(self.tokens)
    if self.is_lazy and accepted < len(got.tokens):
      self.half = (accepted, tokens)
      return frame(REQUEST, self.round, 1, accepted, b"")
    return self._commit(accepted, tokens)

  def finish(self, data: Frame) -> bytes:
    """Part 1: the requested distribution is present."""
    if self.half is None:
      raise StreamLost
    at = data.kind, data.round, data.number
    require(at == (DISTRIBUTION, self.round, self.half[0]), "order", "another distribution")
    accepted, tokens = self.half
    return self._commit(accepted, tokens)

  def _commit(self, accepted: int, tokens: tuple[int, ...]) -> bytes:
    token = drawn(self.key, self.condition, tokens)
    reply = frame(REPLY, self.round, 1, accepted, token.to_bytes(4))
    self.tokens, self.round, self.half = (*tokens, token)[: self.max_len], self.round + 1, None
    return reply


class ToyEngine:
  """The chain as an `Engine`.

  Args:
    rows: results of a step at most.
    step_s: seconds that a step really takes.

  Attributes:
    runs: how often each (stream, call) was computed; a call is the round and the part, round 0 opens.
    resumes: streams that were opened with a prefix, in order.
    bad_threads: calls from another thread than the first one's.
  """

  profiles, model, numerics = (PLAIN, LAZY), MODEL, NUMERICS
  vocab, max_len, max_condition, end_ids = VOCAB, MAX_LEN, MAX_CONDITION, ()
  max_known, replay_in_chunks = 4096, False

  def __init__(self, *, rows: int = 4, step_s: float = 0.0, numerics: bytes = NUMERICS):
    self.numerics, self._rows_of_a_step, self._step_s = numerics, rows, step_s
    self.streams: dict[bytes, _Row] = {}
    self._queue: list[tuple[bytes, object]] = []
    self.runs: dict[tuple[bytes, int, int], int] = {}
    self.resumes: list[bytes] = []
    self.fails = False
    self._thread: int | None = None
    self.bad_threads = self.rows_of_step = 0

  def open(self, stream: bytes, handshake: Handshake, resume: Resume | None = None, *, tenant: str = "") -> None:
    self._seen()

    def run() -> bytes:
      if handshake.condition == BAD_NUMBERS:
        raise NotFinite
      row = self.streams[stream] = _Row(handshake, resume)
      self._count(stream, 0, 0)
      if resume is not None:
        self.resumes.append(stream)
      return frame(FIRST, 0, 1, 0, row.first.to_bytes(4))

    self._queue.append((stream, run))

  def submit(self, stream: bytes, part: int, frame: Frame) -> None:
    self._seen()

    def run() -> bytes:
      row = self.streams.get(stream)
      if row is None:
        raise StreamLost
      round_ = row.round
      reply = row.finish(frame) if part else row.judge(frame)
      self._count(stream, round_, part)
      return reply

    self._queue.append((stream, run))

  def step(self, now: float) -> list[tuple[bytes, bytes | Exception]]:
    self._seen()
    if self.fails:
      raise RuntimeError("the device is gone")
    if self._step_s and self._queue:
      time.sleep(self._step_s)
    results: list[tuple[bytes, bytes | Exception]] = []
    batch, self._queue = self._queue[: self._rows_of_a_step], self._queue[self._rows_of_a_step :]
    self.rows_of_step = len(batch)
    for stream, run in batch:
      try:
        results.append((stream, run()))
      except Exception as error:
        results.append((stream, error))
    return results

  def close(self, stream: bytes) -> None:
    self._seen()
    self.streams.pop(stream, None)
    self._queue = [item for item in self._queue if item[0] != stream]

  def _count(self, stream: bytes, round_: int, part: int) -> None:
    call = (stream, round_, part)
    self.runs[call] = self.runs.get(call, 0) + 1

  def _seen(self) -> None:
    here = threading.get_ident()
    self._thread = self._thread or here
    self.bad_threads += here != self._thread
