"""The draft side of a decode as an object that sends messages and absorbs replies: the edge, which owns the result.

`DraftEndpoint.run` exchanges messages through any function from bytes to bytes: a `TargetEndpoint.handle` in the same
process, a pipe (`jaxspec.serving.edge.pipe`), a network. The same exchange in steps, for a transport that is not a
function::

    message = endpoint.open(condition, key)
    while message is not None:
      message = endpoint.receive(send_and_wait(message))
    result, traffic = endpoint.outcome()
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import numpy as np

from jaxspec.core import rng, verdicts
from jaxspec.core.loop import (
  EndTokens,
  commit_reply,
  draft_round,
  end_array,
  end_tuple,
  read_round,
  reply_to_nothing,
  start_draft,
)
from jaxspec.core.options import check_length
from jaxspec.core.state import DecodeResult, DraftSide, Origin, Waiting, result
from jaxspec.core.types import Cursor, Draft, Drafter, Key, PyTree, Verdict
from jaxspec.serving.wire.arrays import on_host
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.envelope import (
  Frames,
  Kind,
  max_frames_bytes,
  read_envelope,
  read_frames,
  stream_of,
  write_envelope,
  write_frames,
)
from jaxspec.serving.wire.framing import REPLY_BYTES
from jaxspec.serving.wire.handshake import Agreement, write_opening
from jaxspec.serving.wire.round_codec import Replies, Wire, rows_to_verify, verdict_of
from jaxspec.serving.wire.traffic import Traffic, no_traffic

Transport = Callable[[bytes], bytes]

_start_draft = jax.jit(start_draft, static_argnames=("drafter", "max_len", "target_prefix"))
_draft_round = jax.jit(draft_round, static_argnames=("drafter",), donate_argnames=("side",))
_read_round = jax.jit(read_round, static_argnames=("drafter",), donate_argnames=("side",))


@functools.partial(jax.jit, static_argnames=("drafter",), donate_argnames=("side",))
def _commit_reply(
  params: PyTree, side: DraftSide, draft: Draft, trace: PyTree, verdict: Verdict, *, drafter: Drafter
) -> DraftSide:
  """`commit_reply`; of what waits only the side is written in place."""
  return commit_reply(params, Waiting(side, draft, trace), verdict, drafter=drafter)


REPLY_TO = {Kind.OPEN: Kind.OPENED, Kind.DRAFT: Kind.REPLY, Kind.DISTRIBUTION: Kind.REPLY, Kind.CLOSE: Kind.CLOSED}


class DraftEndpoint:
  """Decodes by messages to a target side, one stream after the other.

  A reply that is not valid, or not the one that is waited for, changes nothing: `receive` takes the right one afterwards.

  Args:
    params: the draft's parameters.
    drafter: source of proposals.
    wire: what rounds look like; the target side's.
    max_len: tokens N of every row.
    end_token: as in `jaxspec.speculate`.
    target_prefix: leading tokens of every row that the target side draws alone. After token 0 each is an exchange without
      drafts.
  Raises:
    ValueError: for a drafter that does not go with the wire.
  """

  def __init__(
    self,
    params: PyTree,
    *,
    drafter: Drafter,
    wire: Wire,
    max_len: int,
    end_token: EndTokens = None,
    target_prefix: int = 0,
  ):
    wire.check_drafter(drafter)
    self._params, self._drafter, self._wire = params, drafter, wire
    self._sizes = dict(max_len=check_length(max_len), end_tokens=end_tuple(end_token), target_prefix=target_prefix)
    self._message: bytes | None = None
    self._side: DraftSide | None = None
    self._waiting: Waiting | None = None

  @property
  def message(self) -> bytes | None:
    """The newest message, whose reply is waited for; None where nothing is."""
    return self._message

  @property
  def row_keys(self) -> Key:
    """The row keys ``[B]`` of the newest stream."""
    return jax.random.clone(self._keys)

  @property
  def waiting(self) -> tuple[Cursor, Draft] | None:
    """The cursor and the draft of the round whose reply is waited for; None where no round is."""
    return None if self._waiting is None else (self._waiting.side.cursor, self._waiting.draft)

  def run(self, condition: PyTree, key: Key, transport: Transport) -> tuple[DecodeResult, Traffic]:
    """Decodes like `jaxspec.speculate`, with the same tokens for the same key.

    Args:
      condition: the family's condition with ``B`` rows, a named tuple of arrays; it is sent.
      key: one typed key or ``[B]`` row keys, as in `jaxspec.speculate`.
      transport: sends a message to the target side and returns its reply.
    Returns:
      The result, and the traffic.
    Raises:
      MessageError: for a reply that is not valid.
    """
    message = self.open(condition, key)
    while message is not None:
      message = self.receive(transport(message))
    return self.outcome()

  def open(self, condition: PyTree, key: Key) -> bytes:
    """Begins a stream and returns its first message. A stream that was not closed is forgotten."""
    rows = condition.batch_size
    self._agreement = Agreement(rows, **self._sizes)
    self._keys, self._condition = jax.random.clone(rng.row_keys(key, rows)), condition
    body = write_opening(self._wire.profile, self._agreement, self._keys, condition)
    self._number, self._traffic = stream_of(body), no_traffic(rows)
    self._side = self._waiting = None
    self._requests: Replies | None = None  # the replies to drafts, some of them requests, while distributions are out
    self._kind, self._message = Kind.OPEN, write_envelope(Kind.OPEN, self._number, body)
    self._sent: Frames = []
    self._sent_bits = np.zeros(rows, np.int64)
    return self._message

  def receive(self, reply: bytes) -> bytes | None:
    """Absorbs the reply to the newest message.

    Returns:
      The next message; None after the last.
    Raises:
      MessageError: if it is not a valid reply to that message; nothing has changed then.
      ValueError: if no reply is waited for.
    """
    if self._message is None:
      raise ValueError("Must have a message without its reply to receive one, we instead got no open stream")
    rows = self._agreement.num_rows
    kind, number, body = read_envelope(reply, max_frames_bytes(rows, REPLY_BYTES))
    require(kind == REPLY_TO[self._kind], "kind", f"{kind.name} instead of {REPLY_TO[self._kind].name}")
    require(number == self._number, "order", "a reply of another stream")
    frames = read_frames(body, rows)
    absorb = {
      Kind.OPEN: self._opened,
      Kind.DRAFT: self._replied,
      Kind.DISTRIBUTION: self._completed,
      Kind.CLOSE: self._closed,
    }
    absorb[self._kind](frames, len(reply))
    return self._message

  def outcome(self) -> tuple[DecodeResult, Traffic]:
    """The result of the newest stream, so far as it came, and its traffic.

    Raises:
      ValueError: before the first reply.
    """
    side = self._side if self._waiting is None else self._waiting.side
    if side is None:
      raise ValueError("Must have a stream with token 0 to read its result, we instead got none")
    return result(side, self._drafter), self._traffic

  def _opened(self, frames: Frames, size: int) -> None:
    prefill = self._wire.decode_first(frames)
    agreement = self._agreement
    kwargs = dict(max_len=agreement.max_len, end_token=end_array(agreement.end_tokens), drafter=self._drafter)
    kwargs |= dict(target_prefix=agreement.target_prefix)
    side = _start_draft(self._params, self._keys, self._condition, prefill, **kwargs)
    is_local = np.asarray(side.origin[:, 0]) == Origin.LOCAL
    self._count([None if own else data for own, data in zip(is_local, frames)], size)
    self._side = side
    self._go_on()

  def _replied(self, frames: Frames, size: int) -> None:
    draft, rows, round_ = self._newest()
    number = on_host(draft.num_drafted) - np.asarray(verdicts.num_local(draft))
    replies = self._wire.decode_reply(frames, rows, number, round_)
    self._count(frames, size)
    if any(reply is not None and reply.next_token is None for reply in replies):
      self._requests = replies
      self._send(Kind.DISTRIBUTION, *self._wire.encode_distribution(draft, replies, round_))
    else:
      self._commit(replies)

  def _completed(self, frames: Frames, size: int) -> None:
    requested = np.array([reply is not None and reply.next_token is None for reply in self._requests])
    number = np.array([0 if reply is None else reply.num_accepted for reply in self._requests])
    replies = self._wire.decode_reply(frames, requested, number, self._newest()[2])
    for row in np.flatnonzero(requested):
      reply = replies[row]
      require(reply.next_token is not None, "kind", f"row {row} asks again")
      require(reply.num_accepted == number[row], "range", f"row {row} has {reply.num_accepted} accepted, not {number[row]}")
    self._count(frames, size)
    self._commit([new if asks else old for asks, new, old in zip(requested, replies, self._requests)])

  def _closed(self, frames: Frames, size: int) -> None:
    require(not any(frames), "length", "a closing with frames")
    self._count(frames, size)
    self._message = None

  def _newest(self) -> tuple[Draft, np.ndarray, int]:
    """The draft that waits, ``[B]`` the rows that need verification, and its round."""
    cursor = self._waiting.side.cursor
    return self._waiting.draft, rows_to_verify(self._waiting.draft, cursor), int(cursor.round)

  def _commit(self, replies: Replies) -> None:
    verdict = verdict_of(replies, np.asarray(verdicts.num_local(self._waiting.draft)))
    self._side = _commit_reply(self._params, *self._waiting, verdict, drafter=self._drafter)
    self._waiting = self._requests = None
    self._go_on()

  def _go_on(self) -> None:
    """Runs rounds until one needs the target side, or every row is finished, and writes the next message."""
    rows = self._agreement.num_rows
    nothing = Verdict(np.zeros(rows, np.int32), np.zeros(rows, np.int32))
    while True:
      cursor = on_host(self._side.cursor)
      if not cursor.live.any():
        return self._send(Kind.CLOSE, [], np.zeros(rows, np.int64))
      step = _read_round if self._agreement.target_draws_alone(int(cursor.round)) else _draft_round
      waiting = step(self._params, self._side, drafter=self._drafter)
      if rows_to_verify(waiting.draft, cursor).any():
        self._waiting = waiting
        return self._send(Kind.DRAFT, *self._wire.encode_draft(waiting.draft, cursor, self._agreement))
      verdict = reply_to_nothing(waiting.draft, nothing)
      self._side = _commit_reply(self._params, *waiting, verdict, drafter=self._drafter)

  def _send(self, kind: Kind, frames: Frames, bits: np.ndarray) -> None:
    self._kind, self._sent, self._sent_bits = kind, frames, bits
    self._message = write_envelope(kind, self._number, write_frames(frames))

  def _count(self, replies: Frames, reply_size: int) -> None:
    """Counts the newest message and its valid reply; ``replies`` are the frames that count for their rows."""
    rows, traffic = self._agreement.num_rows, self._traffic
    sizes = lambda frames: np.array([0 if data is None else len(data) for data in frames or [None] * rows], np.int64)
    up, down = sizes(self._sent), sizes(replies)
    is_opening = self._kind == Kind.OPEN
    rest = reply_size - down.sum() + (0 if is_opening else len(self._message) - up.sum())
    self._traffic = Traffic(
      traffic.coded_bits + self._sent_bits,
      traffic.uplink_bytes + up,
      traffic.downlink_bytes + down,
      traffic.exchanges + (up > 0),
      traffic.opening_bytes + (len(self._message) if is_opening else 0),
      traffic.envelope_bytes + rest,
      traffic.transport_bytes,
    )
