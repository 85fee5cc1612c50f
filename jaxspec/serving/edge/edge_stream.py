"""The edge's side of a row whose target is behind a `Cloud`.

1. `Edge` is a value: the draft network, the codec, and the settings of its rows.
2. `Edge.open` makes the handshake of a row, a `StreamStart`. Its `StreamStart.receive` takes the frame of token 0.
3. `EdgeStream` is the open stream. It runs `jaxspec.core.rounds.draft_round` and `commit_reply`; the codec makes a frame of
   each draft and a verdict of each reply.

`Edge.run` decodes a row over a `Cloud`, with `jaxspec.serving.edge.reliable_stream`. For a transport that is not a
function::

    start = edge.open(condition, key, model=model)
    stream = start.receive(first_frame_of(start.handshake))
    while (request := stream.request) is not None:
      stream.receive(reply_to(request))
    result, traffic = stream.outcome()

An edge with ``pipeline`` above 1 does not wait. `EdgeStream.next_request` drafts the next round from the state that the row
has if all drafts so far are accepted. If the reply to one says otherwise, the edge returns to the state of that round: its
cache goes back by the row's length, the rest was kept. Later drafts are void then, and their replies say so. What is drafted
depends on numbers of calls alone, never on time, so a decode has the same frames every time. Its tokens are those of an edge
that waits.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import secrets
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxspec.core import rng
from jaxspec.core.loop import EndTokens, end_array, end_tuple
from jaxspec.core.options import MAX_PIPELINE
from jaxspec.core.rounds import prefix_rounds, reply_to_nothing
from jaxspec.core.state import DecodeResult, DraftSide, Origin, result
from jaxspec.core.types import Draft, Drafter, Key, PyTree, Verdict
from jaxspec.serving.edge import side_programs
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.edge.pending_round import Call, PendingRound, Request, call_of, full_acceptance
from jaxspec.serving.edge.reliable_stream import ReliableStream, RetrySettings
from jaxspec.serving.wire.arrays import host_array, on_host
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.cloud import Cloud
from jaxspec.serving.wire.edge_condition import sent_condition
from jaxspec.serving.wire.framing import REPLY_BYTES, REQUEST, VOID, Frame, Reply, unframe
from jaxspec.serving.wire.handshake import KEY_KIND, STREAM_BYTES, Agreement, Handshake, Resume
from jaxspec.serving.wire.profiles import check_profile, find_profile
from jaxspec.serving.wire.reply_digest import NO_REPLIES, extended
from jaxspec.serving.wire.round_codec import RoundCodec, needs_cloud, verdict_of
from jaxspec.serving.wire.traffic import Traffic, no_traffic


@dataclasses.dataclass(frozen=True, eq=False)
class Edge:
  """The draft side of decodes over a cloud.

  Attributes:
    params: the draft's parameters.
    drafter: source of proposals.
    codec: of the rounds; equal to that of the cloud's profile.
    max_len: tokens N of a row.
    profile: id of the cloud's profile; None finds the first one that goes with the codec and the sampling.
    end_token: as in `jaxspec.speculate`.
    target_prefix: leading tokens that the cloud draws alone. After token 0 each is a call without drafts.
    temperature, top_p, cfg_scale: the target's sampling.
    need_numerics: required digest of the cloud's numerics; empty accepts all.
    pipeline: most drafts that wait for their replies. Above 1 the next drafts are sent ahead, which needs a codec without
      ``bonus`` that requests no distributions.
    agreement: limits of a row, from ``max_len`` and ``end_token``.
    num_prefix_rounds: rounds of the prefix.
  Raises:
    ValueError: for a drafter that does not go with the codec, or settings out of range.
  """

  params: PyTree
  drafter: Drafter
  codec: RoundCodec
  max_len: int
  profile: int | None = None
  end_token: EndTokens = None
  target_prefix: int = 0
  temperature: float = 1.0
  top_p: float = 1.0
  cfg_scale: float = 1.0
  need_numerics: bytes = b""
  pipeline: int = 1
  agreement: Agreement = dataclasses.field(init=False, repr=False)
  num_prefix_rounds: int = dataclasses.field(init=False, repr=False)

  def __post_init__(self):
    self.codec.check_drafter(self.drafter)
    if not 1 <= self.pipeline <= MAX_PIPELINE:
      raise ValueError(f"Must have a pipeline of 1 to {MAX_PIPELINE} drafts, we instead got {self.pipeline}")
    if self.pipeline > 1 and (self.codec.bonus or self.codec.may_request):
      found = "coding 'lazy'" if self.codec.may_request else "a bonus token"
      raise ValueError(f"Must have a codec without bonus tokens and requests to send drafts ahead, we instead got {found}")
    object.__setattr__(self, "agreement", Agreement(self.max_len, end_tuple(self.end_token)))
    object.__setattr__(self, "num_prefix_rounds", prefix_rounds(self.target_prefix, self.max_len))

  def for_cloud(self, cloud: Cloud) -> Edge:
    """The same edge with the id of a profile of this cloud.

    Raises:
      ValueError: if the cloud has no such profile, or another one under the id.
    """
    served, top_p, cfg_scale = cloud.description, self.top_p, self.cfg_scale
    if self.profile is None:
      return dataclasses.replace(self, profile=find_profile(served, self.codec, top_p=top_p, cfg_scale=cfg_scale).id)
    check_profile(served, self.profile, self.codec, max_len=self.max_len, top_p=top_p, cfg_scale=cfg_scale)
    return self

  def open(
    self, condition: PyTree, key: Key, *, model: bytes, stream: bytes | None = None, caption: str | None = None
  ) -> StreamStart:
    """Begins a row.

    Args:
      condition: the family's condition with one row.
      key: a typed threefry key: the row key ``[1]``, or ``[]``, of which row 0 is taken as in `jaxspec.speculate`.
      model: digest of the network that the cloud must have, `Description.model`.
      stream: id of the stream, 16 random bytes by default.
      caption: the text of a `Caption` or a `Prompt`, for a cloud that encodes it.
    Raises:
      ValueError: for more than one row, a key of another kind, or a condition that cannot be sent.
    """
    kind = str(jax.random.key_impl(key))
    if condition.batch_size != 1 or kind != KEY_KIND:
      raise ValueError(f"Must have one row and a {KEY_KIND} key, we instead got {condition.batch_size} rows, {kind}")
    keys = jax.random.clone(rng.row_keys(key, 1))
    handshake = Handshake(
      stream=secrets.token_bytes(STREAM_BYTES) if stream is None else stream,
      model=model,
      profile=self.profile or 0,
      key=np.asarray(jax.random.key_data(keys))[0].astype(">u4").tobytes(),
      max_len=self.max_len,
      condition=sent_condition(condition, caption),
      temperature=self.temperature,
      top_p=self.top_p,
      cfg_scale=self.cfg_scale,
      end_ids=self.agreement.end_tokens,
      need_numerics=self.need_numerics,
    )
    return StreamStart(self, handshake, condition, keys)

  def run(
    self,
    condition: PyTree,
    key: Key,
    cloud: Cloud,
    *,
    stream: bytes | None = None,
    caption: str | None = None,
    settings: RetrySettings | None = None,
    journal: Journal | None = None,
    observer: Observer | None = None,
  ) -> tuple[DecodeResult, Traffic]:
    """Decodes a row, with the tokens that `jaxspec.speculate` draws for the same key.

    The profile is compared with the codec before the first call. A stream that the cloud has lost is resumed from its
    tokens, and the pending call is sent again.

    Args:
      condition, key, stream, caption: as in `open`.
      settings, journal, observer: as in `jaxspec.serving.edge.reliable_stream.ReliableStream`.
    Returns:
      The result with leaves ``[1, ...]``, and the traffic of frames.
    Raises:
      CloudError: for a call that is refused, or has no reply within the limits of the policy.
      MessageError: for an invalid reply.
      ValueError: for a cloud without a profile of the codec.
    """
    edge = self.for_cloud(cloud)
    start = edge.open(condition, key, model=cloud.description.model, stream=stream, caption=caption)
    calls = ReliableStream(cloud, start.handshake, settings=settings, journal=journal, observer=observer)
    opened = start.receive(calls.open())
    while (request := opened.request) is not None:
      while edge.pipeline > 1 and (ahead := opened.next_request()) is not None:
        calls.send_ahead(ahead.frame)
      send = calls.complete if request.part else calls.verify
      opened.receive(send(request.frame, opened.resume))
    calls.close()
    return opened.outcome()


class StreamStart(NamedTuple):
  """A row before its first frame."""

  edge: Edge
  handshake: Handshake
  condition: PyTree
  keys: Key  # [1]

  def receive(self, frame: Frame | bytes) -> EdgeStream:
    """The open stream, from the frame of token 0.

    Raises:
      MessageError: if the frame is invalid.
    """
    return EdgeStream(self, unframe(frame, REPLY_BYTES))


class EdgeStream:
  """An open stream of a row, which draws its next draft as soon as it can.

  Args:
    start: the row.
    first: the frame of token 0.
  Raises:
    MessageError: if the frame is invalid.
  """

  def __init__(self, start: StreamStart, first: Frame):
    edge = self._edge = start.edge
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
    if int(self._side.origin[0, 0]) != Origin.LOCAL:
      self._count(downlink_bytes=len(first.data))
    self._go_on()

  @property
  def request(self) -> Request | None:
    """The oldest call without a reply; None when the row is finished."""
    is_finished = all(each.is_void for each in self._rounds)
    return None if is_finished else self._rounds[0].request

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
      tokens=tuple(np.asarray(self._side.tokens[0, : newest.known]).tolist()),
      gained=gained,
      fed=(self._fed_by_handshake, *(call.fed for call in before)),
      replies=b"" if self._edge.codec.bonus else self._replies,
    )

  def receive(self, frame: Frame | bytes) -> None:
    """Commits the reply to `request`, or sends the distribution that it requests.

    Raises:
      MessageError: if the frame is invalid; the stream has not changed then.
      ValueError: for a row that is finished.
    """
    if self.request is None:
      raise ValueError("Must have an open stream to receive a frame, we instead got a finished row")
    waiting, codec = self._rounds[0], self._edge.codec
    frame = unframe(frame, REPLY_BYTES)
    num_local = waiting.draft.num_local
    reply = codec.decode_reply(frame, waiting.call.round, int(waiting.draft.num_drafted[0]) - int(num_local[0]))
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
      step = side_programs.read if cursor.round < edge.num_prefix_rounds else side_programs.draft
      self._side, draft, trace = step(edge.params, self._side, drafter=edge.drafter)
      if needs_cloud(draft, cursor):
        frame = edge.codec.encode_draft(draft, cursor, edge.max_len, self._assumes)
        self._num_calls += 1
        request, call = self._sent(self._num_calls, 0, *frame), call_of(draft, cursor)
        assumed = full_acceptance(draft, call.round, edge.codec, edge.agreement.end_tokens) if edge.pipeline > 1 else None
        self._rounds.append(PendingRound(draft, trace, call, request, assumed))
        return
      self._commit(draft, trace, reply_to_nothing(draft, nothing))

  def _commit(self, draft: Draft, trace: PyTree, verdict: Verdict) -> None:
    self._side = side_programs.commit(self._edge.params, self._side, draft, trace, verdict, drafter=self._edge.drafter)

  def _sent(self, seq: int, part: int, frame: bytes, bits: int) -> Request:
    self._count(coded_bits=bits, uplink_bytes=len(frame), exchanges=1)
    return Request(seq, part, frame)

  def _count(self, **more: int) -> None:
    self._traffic = self._traffic._replace(**{name: getattr(self._traffic, name) + value for name, value in more.items()})
