"""The edge's side of a row whose target is behind a `Cloud`.

1. `Edge` is a value: the draft network, the codec, and the settings of its rows.
2. `Edge.open` makes the handshake of a row, a `StreamStart`. Its `StreamStart.receive` takes the frame of token 0.
3. `EdgeStream` is the open stream. It runs `jaxspec.core.loop.draft_round` and `commit_reply`; the codec makes a frame of
   each draft and a verdict of each reply.

`Edge.run` decodes a row over a `Cloud`, with `jaxspec.serving.edge.reliable_stream`. For a transport that is not a
function::

    start = edge.open(condition, key, model=model)
    stream = start.receive(first_frame_of(start.handshake))
    while (request := stream.request) is not None:
      stream.receive(reply_to(request))
    result, traffic = stream.outcome()
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import secrets
from typing import NamedTuple

import jax
import numpy as np

from jaxspec.core import rng
from jaxspec.core.loop import (
  EndTokens,
  commit_reply,
  draft_round,
  end_array,
  end_tuple,
  prefix_rounds,
  read_round,
  reply_to_nothing,
  start_draft,
)
from jaxspec.core.payloads import PendingTokens
from jaxspec.core.state import DecodeResult, DraftSide, Origin, Waiting, result
from jaxspec.core.types import Cursor, Draft, Drafter, Key, PyTree, Verdict
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.edge.reliable_stream import ReliableStream, RetrySettings
from jaxspec.serving.wire.arrays import host_array, on_host
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.cloud import Cloud
from jaxspec.serving.wire.edge_condition import sent_condition
from jaxspec.serving.wire.framing import REPLY_BYTES, Frame, Reply, unframe
from jaxspec.serving.wire.handshake import KEY_KIND, STREAM_BYTES, Agreement, Handshake, Resume
from jaxspec.serving.wire.profiles import check_profile, find_profile
from jaxspec.serving.wire.round_codec import RoundCodec, needs_cloud, verdict_of
from jaxspec.serving.wire.traffic import Traffic, no_traffic

_start_draft = jax.jit(start_draft, static_argnames=("drafter", "max_len", "target_prefix"))
_draft_round = jax.jit(draft_round, static_argnames=("drafter",), donate_argnames=("side",))
_read_round = jax.jit(read_round, static_argnames=("drafter",), donate_argnames=("side",))


@functools.partial(jax.jit, static_argnames=("drafter",), donate_argnames=("side",))
def _commit_reply(
  params: PyTree, side: DraftSide, draft: Draft, trace: PyTree, verdict: Verdict, *, drafter: Drafter
) -> DraftSide:
  """`commit_reply`, which donates the side alone."""
  return commit_reply(params, Waiting(side, draft, trace), verdict, drafter=drafter)


class Request(NamedTuple):
  """The next call of `Cloud.verify`."""

  seq: int
  part: int
  frame: bytes


class _Call(NamedTuple):
  """The numbers of a call that a `Resume` repeats."""

  known: int  # tokens that the cloud knew before
  fed: int  # tokens in the frame
  round: int


class _Round(NamedTuple):
  """A round that waits for its reply."""

  draft: Draft
  trace: PyTree
  round: int
  num_requested: int | None = None  # accepted drafts of a reply that requests a distribution


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
  agreement: Agreement = dataclasses.field(init=False, repr=False)
  num_prefix_rounds: int = dataclasses.field(init=False, repr=False)

  def __post_init__(self):
    self.codec.check_drafter(self.drafter)
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

  Attributes:
    request: the next call; None when the row is finished.

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
    self._calls: list[_Call] = []
    self._waiting: _Round | None = None
    self.request: Request | None = None
    token = np.full(1, edge.codec.decode_first(first), np.int32)
    prefill, keys = Verdict.one(host_array(np.zeros(1, np.int32)), host_array(token)), jax.random.clone(start.keys)
    settings = dict(max_len=edge.max_len, target_prefix=edge.target_prefix, drafter=edge.drafter)
    end_tokens = end_array(edge.agreement.end_tokens)
    self._side: DraftSide = _start_draft(edge.params, keys, start.condition, prefill, end_token=end_tokens, **settings)
    if int(self._side.origin[0, 0]) != Origin.LOCAL:
      self._count(downlink_bytes=len(first.data))
    self._go_on()

  def resume(self) -> Resume:
    """What a cloud has read before the newest request, for a cloud without the stream.

    Raises:
      ValueError: for a row that was finished without a request.
    """
    if not self._calls:
      raise ValueError("Must have a request to resume a stream, we instead got a row without one")
    newest, before = self._calls[-1], self._calls[:-1]
    gained = (1, *(after.known - call.known for call, after in itertools.pairwise(self._calls)))
    return Resume(
      next_seq=len(self._calls),
      round=before[-1].round + 1 if before else 0,
      tokens=tuple(np.asarray(self._side.tokens[0, : newest.known]).tolist()),
      gained=gained,
      fed=(self._fed_by_handshake, *(call.fed for call in before)),
    )

  def receive(self, frame: Frame | bytes) -> None:
    """Commits the reply to the newest request, or sends the distribution that it requests.

    Raises:
      MessageError: if the frame is invalid; the stream has not changed then.
      ValueError: for a row that is finished.
    """
    waiting = self._waiting
    if waiting is None:
      raise ValueError("Must have an open stream to receive a frame, we instead got a finished row")
    frame = unframe(frame, REPLY_BYTES)
    num_local = waiting.draft.num_local
    if waiting.num_requested is None:
      number = int(waiting.draft.num_drafted[0]) - int(num_local[0])
      reply = self._edge.codec.decode_reply(frame, waiting.round, number)
    else:
      reply = self._edge.codec.decode_reply(frame, waiting.round, waiting.num_requested)
      self._check_second(reply, waiting.num_requested)
    self._count(downlink_bytes=len(frame.data))
    if reply.next_token is None:
      self._waiting = waiting._replace(num_requested=reply.num_accepted)
      self._send(1, *self._edge.codec.encode_distribution(waiting.draft, reply.num_accepted, waiting.round))
      return
    self._commit(waiting.draft, waiting.trace, verdict_of(reply.num_accepted, reply.next_token, num_local))
    self._go_on()

  def outcome(self) -> tuple[DecodeResult, Traffic]:
    """The result so far, leaves ``[1, ...]``, and the traffic of frames; a transport counts its own bytes."""
    return result(self._side, self._edge.drafter), self._traffic

  def _check_second(self, reply: Reply, num_requested: int) -> None:
    """Refuses a second reply of a round that differs from its request."""
    require(reply.next_token is not None, "kind", "a second request in one round")
    accepted = reply.num_accepted
    require(accepted == num_requested, "range", f"{accepted} accepted, the request said {num_requested}")

  def _go_on(self) -> None:
    """Runs rounds until one needs the cloud, or the row is finished."""
    self._waiting = self.request = None
    zero = host_array(np.zeros(1, np.int32))
    edge, nothing = self._edge, Verdict.one(zero, zero)
    while (cursor := on_host(self._side.cursor)).live[0]:
      step = _read_round if cursor.round < edge.num_prefix_rounds else _draft_round
      self._side, draft, trace = step(edge.params, self._side, drafter=edge.drafter)
      if needs_cloud(draft, cursor):
        frame, bits = edge.codec.encode_draft(draft, cursor, edge.max_len)
        self._waiting = _Round(draft, trace, int(cursor.round))
        self._calls.append(_call_of(draft, cursor))
        self._send(0, frame, bits)
        return
      self._commit(draft, trace, reply_to_nothing(draft, nothing))

  def _commit(self, draft: Draft, trace: PyTree, verdict: Verdict) -> None:
    self._side = _commit_reply(self._edge.params, self._side, draft, trace, verdict, drafter=self._edge.drafter)

  def _send(self, part: int, frame: bytes, bits: int) -> None:
    self._count(coded_bits=bits, uplink_bytes=len(frame), exchanges=1)
    self.request = Request(len(self._calls), part, frame)

  def _count(self, **more: int) -> None:
    self._traffic = self._traffic._replace(**{name: getattr(self._traffic, name) + value for name, value in more.items()})


def _call_of(draft: Draft, cursor: Cursor) -> _Call:
  """The numbers of a round's call; ``cursor`` is on the host."""
  length = int(cursor.length[0])
  read = int(draft.payload.read[0]) if isinstance(draft.payload, PendingTokens) else length - 1
  return _Call(read + 1, length + int(draft.num_drafted[0]) - read, int(cursor.round))
