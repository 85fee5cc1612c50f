"""An open stream of a row whose target is behind a cloud; `jaxspec.serving.edge.edge_stream` opens it.

An edge with ``pipeline`` above 1 does not wait. `EdgeStream.next_request` drafts the next round from the state that the row
has if all drafts so far are accepted. If the reply to one says otherwise, the edge returns to the state of that round: its
cache goes back by the row's length, the rest was kept. Later drafts are void then, and their replies say so. What is drafted
depends on numbers of calls alone, never on time, so a decode has the same frames every time. Its tokens are those of an edge
that waits.

An edge with a ``table_of`` gives a drafter that chooses lengths the times of rounds, from what it has measured
(`jaxspec.serving.edge.link_times`). Its tokens then depend on these times; their distribution does not.
"""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxspec.core.loop import end_array
from jaxspec.core.rounds import reply_to_nothing
from jaxspec.core.state import DecodeResult, DraftSide, Origin, result
from jaxspec.core.types import Draft, Key, PyTree, Verdict
from jaxspec.serving.edge import side_programs
from jaxspec.serving.edge.edge_settings import EdgeSettings
from jaxspec.serving.edge.link_times import Past, full_acceptance
from jaxspec.serving.edge.pending_round import Call, PendingRound, Request, all_accepted, call_of
from jaxspec.serving.edge.round_timing import TimedRound, Timing, microseconds
from jaxspec.serving.wire.arrays import host_array, on_host, scalar
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.framing import REPLY_BYTES, REQUEST, VOID, Frame, Reply, unframe
from jaxspec.serving.wire.handshake import Handshake, Resume
from jaxspec.serving.wire.reply_digest import NO_REPLIES, extended
from jaxspec.serving.wire.round_codec import needs_cloud, verdict_of
from jaxspec.serving.wire.traffic import Traffic, no_traffic


class StreamStart(NamedTuple):
  """A row before its first frame."""

  edge: EdgeSettings
  handshake: Handshake
  condition: PyTree
  keys: Key  # [1]

  def receive(
    self, frame: Frame | bytes, *, clock: Callable[[], float] = time.monotonic, earlier: Sequence[TimedRound] = ()
  ) -> EdgeStream:
    """The open stream, from the frame of token 0.

    Args:
      clock: seconds, growing.
      earlier: measured rounds of earlier rows.
    Raises:
      MessageError: if the frame is invalid.
    """
    return EdgeStream(self, unframe(frame, REPLY_BYTES), clock, earlier)


class EdgeStream:
  """An open stream of a row, which draws its next draft as soon as it can.

  Args:
    start: the row.
    first: the frame of token 0.
    clock, earlier: as in `StreamStart.receive`.
  Raises:
    MessageError: if the frame is invalid.
  """

  def __init__(self, start: StreamStart, first: Frame, clock: Callable[[], float], earlier: Sequence[TimedRound]):
    edge = self._edge = start.edge
    self._clock, self._earlier = clock, tuple(earlier)
    self._timed: list[TimedRound] = []  # one for each of `_answered`
    condition = start.handshake.condition
    self._fed_by_handshake = 1 if isinstance(condition, int) else len(condition)
    self._traffic = no_traffic(1)
    self._num_calls = self._num_sent = 0
    self._answered: list[Call] = []
    self._rounds: collections.deque[PendingRound] = collections.deque()
    self._replies = self._assumes = NO_REPLIES  # digests of the replies that came, and of those that the side assumes
    token = np.full(1, edge.codec.decode_first(first), np.int32)
    prefill, keys = Verdict.one(host_array(np.zeros(1, np.int32)), host_array(token)), jax.random.clone(start.keys)
    settings: dict[str, Any] = dict(max_len=edge.max_len, target_prefix=edge.target_prefix, drafter=edge.drafter)
    end_tokens = end_array(edge.agreement.end_tokens)
    self._side: DraftSide = side_programs.start(
      edge.params, keys, start.condition, prefill, end_token=end_tokens, **settings
    )
    if np.asarray(self._side.origin)[0, 0] != Origin.LOCAL:
      self._count(downlink_bytes=len(first.data))
    self._go_on()

  @property
  def request(self) -> Request | None:
    """The oldest call without a reply; None when the row is finished."""
    is_finished = all(each.is_void for each in self._rounds)
    return None if is_finished else self._rounds[0].request

  @property
  def draft_us(self) -> int:
    """Microseconds that the drafts of `request` took."""
    return self._rounds[0].draft_us

  @property
  def measured(self) -> list[TimedRound]:
    """All measured rounds, those of earlier rows first."""
    return [*self._earlier, *self._timed]

  def next_request(self) -> Request | None:
    """The next call to send, which is drafted now if it has to be; None while ``pipeline`` drafts wait for their replies, or
    if the next draft needs a reply."""
    unsent = (each.request for each in self._rounds if each.request.seq > self._num_sent)
    request = next(unsent, None) or self._draft_ahead()
    self._num_sent = self._num_sent if request is None else request.seq
    return request

  def resume(self) -> Resume:
    """What a cloud has read before `request`, for a cloud without the stream.

    Raises:
      ValueError: for a row without a request.
    """
    request = self.request
    if request is None:
      raise ValueError("Must have a request to resume a stream, we instead got a row without one")
    before, newest = self._answered, next(each.call for each in self._rounds if not each.is_void)
    gained = (1, *(after.known - call.known for call, after in itertools.pairwise([*before, newest])))
    return Resume(
      next_seq=request.seq,
      round=before[-1].round + 1 if before else 0,
      tokens=tuple(np.asarray(self._side.tokens)[0, : newest.known].tolist()),
      gained=gained,
      fed=(self._fed_by_handshake, *(call.fed for call in before)),
      replies=b"" if self._edge.codec.bonus else self._replies,
    )

  def receive(self, frame: Frame | bytes, timing: Timing = Timing(0, 0, 0)) -> None:
    """Commits the reply to `request`, or sends the distribution that it requests.

    Args:
      timing: measured times of the round, for ``table_of``.
    Raises:
      MessageError: if the frame is invalid; the stream has not changed then.
      ValueError: for a row that is finished.
    """
    if self.request is None:
      raise ValueError("Must have an open stream to receive a frame, we instead got a finished row")
    waiting, codec = self._rounds[0], self._edge.codec
    frame = unframe(frame, REPLY_BYTES)
    num_local, num_drafted = waiting.draft.num_local, scalar(waiting.draft.num_drafted)
    reply = codec.decode_reply(frame, waiting.call.round, num_drafted - scalar(num_local))
    if waiting.num_requested is not None:
      self._check_second(reply, waiting.num_requested)
    require((reply.kind == VOID) == waiting.is_void, "order", "a draft that assumes other replies than those that came")
    self._count(downlink_bytes=len(frame.data))
    if reply.kind == REQUEST:
      request, bits = waiting.request, codec.encode_distribution(waiting.draft, reply.num_accepted, waiting.call.round)
      self._rounds[0] = waiting._replace(num_requested=reply.num_accepted, request=self._sent(request.seq, 1, *bits))
      return
    self._rounds.popleft()
    if reply.kind == VOID:
      return
    self._answered.append(waiting.call)
    self._timed.append(TimedRound(num_drafted, timing))
    self._replies = extended(self._replies, frame.data)
    if waiting.kept is not None and waiting.assumed is not None and frame.data == waiting.assumed[0]:
      return self._go_on() if not self._rounds else None
    if waiting.kept is not None:
      self._side = side_programs.with_cache(waiting.kept, self._side.drafter.cache)
      self._rounds = collections.deque(each._replace(is_void=True) for each in self._rounds)
    self._assumes = self._replies
    self._commit(waiting.draft, waiting.trace, verdict_of(reply.num_accepted, reply.next_token, num_local))
    self._go_on()

  def outcome(self) -> tuple[DecodeResult, Traffic]:
    """The result so far, leaves ``[1, ...]``, and the traffic of frames; a transport counts its own bytes."""
    return result(self._side, self._edge.drafter), self._traffic

  def _check_second(self, reply: Reply, num_requested: int) -> None:
    """Refuses a second reply of a round that differs from its request."""
    require(reply.kind != REQUEST, "kind", "a second request in one round")
    accepted = reply.num_accepted
    require(accepted == num_requested, "range", f"{accepted} accepted, the request said {num_requested}")

  def _draft_ahead(self) -> Request | None:
    """Drafts the next round as if all drafts were accepted, if there is room for it in the pipeline."""
    valid = sum(not each.is_void for each in self._rounds)
    newest = self._rounds[-1] if self._rounds else None
    if newest is None or newest.assumed is None or newest.kept is not None or not valid < self._edge.pipeline:
      return None
    reply, verdict = newest.assumed
    self._rounds[-1] = newest._replace(kept=side_programs.copied(side_programs.with_cache(self._side, ())))
    self._assumes = extended(self._assumes, reply)
    self._commit(newest.draft, newest.trace, verdict)
    self._go_on()
    return self._rounds[-1].request if self._rounds[-1].request.seq > self._num_sent else None

  def _go_on(self) -> None:
    """Runs rounds until one needs the cloud, or the row is finished."""
    zero = host_array(np.zeros(1, np.int32))
    edge, nothing = self._edge, Verdict.one(zero, zero)
    while (cursor := on_host(self._side.cursor)).live[0]:
      began_s, is_read = self._clock(), cursor.round < edge.num_prefix_rounds
      step, params = (side_programs.read, edge.params) if is_read else (side_programs.draft, self._params())
      self._side, draft, trace = step(params, self._side, drafter=edge.drafter)
      if needs_cloud(draft, cursor):
        frame = edge.codec.encode_draft(draft, cursor, edge.max_len, self._assumes)
        draft_us = microseconds(self._clock() - began_s)
        self._num_calls += 1
        request, call = self._sent(self._num_calls, 0, *frame), call_of(draft, cursor)
        assumed = all_accepted(draft, call.round, edge.codec, edge.agreement.end_tokens) if edge.pipeline > 1 else None
        self._rounds.append(PendingRound(draft, trace, call, request, assumed, draft_us=draft_us))
        return
      self._commit(draft, trace, reply_to_nothing(draft, nothing))

  def _params(self) -> PyTree:
    """The parameters of the next draft, with the times of rounds as they are known."""
    edge = self._edge
    if edge.table_of is None:
      return edge.params
    number, most = len(self._answered) + sum(not each.is_void for each in self._rounds), edge.drafter.window
    rounds = [*self._earlier, *self._timed[: max(0, number - edge.pipeline + 1)]]
    full = full_acceptance(self._side.drafter.choice) if edge.pipeline > 1 else ()
    table = edge.table_of(Past(number, rounds, full, edge.pipeline, most))
    return edge.params if table is None else edge.params._replace(times=host_array(table))

  def _commit(self, draft: Draft, trace: PyTree, verdict: Verdict) -> None:
    self._side = side_programs.commit(self._edge.params, self._side, draft, trace, verdict, drafter=self._edge.drafter)

  def _sent(self, seq: int, part: int, frame: bytes, bits: int) -> Request:
    self._count(coded_bits=bits, uplink_bytes=len(frame), exchanges=1)
    return Request(seq, part, frame)

  def _count(self, **more: int) -> None:
    self._traffic = self._traffic._replace(**{name: getattr(self._traffic, name) + value for name, value in more.items()})
