"""One row of a decode over any `Cloud`: the edge's side of the loop, which speaks in frames.

`EdgeStream` runs `jaxspec.core.loop.draft_round` and `commit_reply` on the row. A codec turns its draft into a frame and the
reply into a verdict. Besides, the edge keeps what a cloud needs to go on with the stream (`Resume`). A `Session` carries the
frames: it numbers the calls, tries them again, and resumes.
"""

from __future__ import annotations

import functools
import secrets
from typing import Any, NamedTuple

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
from jaxspec.core.options import check_length
from jaxspec.core.payloads import PendingTokens
from jaxspec.core.state import DecodeResult, DraftSide, Origin, Waiting, result
from jaxspec.core.types import Cursor, Draft, Drafter, Key, PyTree, Verdict
from jaxspec.serving.edge.reliable_stream import Session
from jaxspec.serving.wire.arrays import on_host
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.cloud import KEY_KIND, STREAM_BYTES, Cloud, Opening, Resume
from jaxspec.serving.wire.edge_condition import sent_condition
from jaxspec.serving.wire.framing import REPLY_BYTES, Frame, Reply, unframe
from jaxspec.serving.wire.handshake import Agreement
from jaxspec.serving.wire.profiles import check_profile
from jaxspec.serving.wire.round_codec import Wire, needs_cloud, verdict_of
from jaxspec.serving.wire.traffic import Traffic, no_traffic

_start_draft = jax.jit(start_draft, static_argnames=("drafter", "max_len", "target_prefix"))
_draft_round = jax.jit(draft_round, static_argnames=("drafter",), donate_argnames=("side",))
_read_round = jax.jit(read_round, static_argnames=("drafter",), donate_argnames=("side",))


@functools.partial(jax.jit, static_argnames=("drafter",), donate_argnames=("side",))
def _commit_reply(
  params: PyTree, side: DraftSide, draft: Draft, trace: PyTree, verdict: Verdict, *, drafter: Drafter
) -> DraftSide:
  """`commit_reply`; of what waits only the side is written in place."""
  return commit_reply(params, Waiting(side, draft, trace), verdict, drafter=drafter)


class Request(NamedTuple):
  """The next call of `Cloud.verify`."""

  seq: int
  part: int
  frame: bytes


class _Call(NamedTuple):
  """What a request of part 0 brought."""

  known: int  # tokens that the cloud knew before
  fed: int  # tokens in the frame
  round: int


class EdgeStream:
  """One row, the edge's side.

  `run` decodes over a `Cloud`. The same in steps, for a transport that is not a function::

      opening = edge.open(condition, key, model=model)
      edge.receive(first_frame_of(opening))
      while (request := edge.request) is not None:
        edge.receive(answer_to(request))
      result, traffic = edge.outcome()

  Args:
    params: the draft's parameters.
    drafter: source of proposals.
    wire: the codec of rounds; that of the cloud's profile.
    max_len: tokens N of the row.
    profile: number of the cloud's profile.
    end_token: as in `jaxspec.speculate`.
    target_prefix: leading tokens that the cloud draws alone. After token 0 each is a call without drafts.
    temperature, top_p, cfg_scale: the target's sampling.
    need_numerics: digest that a cloud must have; empty accepts all.
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
    profile: int = 0,
    end_token: EndTokens = None,
    target_prefix: int = 0,
    temperature: float = 1.0,
    top_p: float = 1.0,
    cfg_scale: float = 1.0,
    need_numerics: bytes = b"",
  ):
    wire.check_drafter(drafter)
    self._params, self._drafter, self._wire = params, drafter, wire
    self._agreement = agreed = Agreement(check_length(max_len), end_tuple(end_token))
    self._target_prefix, self._prefix_rounds = target_prefix, prefix_rounds(target_prefix, agreed.max_len)
    self._fields = dict(profile=profile, max_len=agreed.max_len, end_ids=agreed.end_tokens, need_numerics=need_numerics)
    self._fields |= dict(temperature=temperature, top_p=top_p, cfg_scale=cfg_scale)
    self._begin((), None, [])
    self._is_open = False

  def _begin(self, condition: PyTree, keys: Key | None, fed: list[int]) -> None:
    """Forgets the row before; ``fed`` has what the opening makes the cloud read."""
    self._condition, self._keys, self._fed, self._is_open = condition, keys, fed, True
    self._side: DraftSide | None = None
    self._drafted: tuple[Draft, PyTree] | None = None  # the draft of the round that waits for its reply, and its trace
    self._asked: Reply | None = None  # the reply that requests a distribution, while that is out
    self._request: Request | None = None
    self._last: _Call | None = None
    self._traffic = no_traffic(1)
    self._round = 0
    self._gained: list[int] = []

  def open(
    self, condition: PyTree, key: Key, *, model: bytes, stream: bytes | None = None, caption: str | None = None
  ) -> Opening:
    """Begins a row and returns how its stream is opened.

    Args:
      condition: the family's condition with one row.
      key: a typed threefry key: the row key ``[1]``, or ``[]``, of which row 0 is taken as in `jaxspec.speculate`.
      model: digest of the network that the cloud must have, `Description.model`.
      stream: name of the stream, 16 random bytes by default.
      caption: the text that a `Caption` or a `Prompt` was made of, for a cloud that encodes it.
    Raises:
      ValueError: for more than one row, a key of another kind, or a condition that cannot be sent.
    """
    kind = str(jax.random.key_impl(key))
    if condition.batch_size != 1 or kind != KEY_KIND:
      raise ValueError(f"Must have one row and a {KEY_KIND} key, we instead got {condition.batch_size} rows, {kind}")
    sent = sent_condition(condition, caption)
    keys = jax.random.clone(rng.row_keys(key, 1))
    self._begin(condition, keys, [1 if isinstance(sent, int) else len(sent)])
    data = np.asarray(jax.random.key_data(keys))[0]
    stream = secrets.token_bytes(STREAM_BYTES) if stream is None else stream
    return Opening(stream=stream, model=model, key=data.astype(">u4").tobytes(), condition=sent, **self._fields)

  @property
  def request(self) -> Request | None:
    """The next call; None before the first frame, and when the row is finished."""
    return self._request

  @property
  def resume(self) -> Resume | None:
    """What a cloud has read before the newest request, for another one; None before the first frame."""
    if self._last is None:
      return None
    tokens = np.asarray(self._side.tokens[0, : self._last.known]).tolist()
    return Resume(len(self._gained), self._round, tuple(tokens), tuple(self._gained), tuple(self._fed))

  def receive(self, frame: Frame | bytes) -> None:
    """Absorbs the first frame, or the answer to the newest request.

    Raises:
      MessageError: if it is not valid; nothing has changed then.
      ValueError: if no frame is expected.
    """
    if not self._is_open:
      raise ValueError("Must have an open stream to receive a frame, we instead got none")
    frame = unframe(frame, REPLY_BYTES)
    if self._side is None:
      self._receive_first(frame)
    elif self._asked is None:
      self._receive_reply(frame)
    else:
      self._receive_completion(frame)

  def run(
    self,
    condition: PyTree,
    key: Key,
    cloud: Cloud,
    *,
    stream: bytes | None = None,
    caption: str | None = None,
    **options: Any,
  ) -> tuple[DecodeResult, Traffic]:
    """Decodes a row, with the tokens that `jaxspec.speculate` draws for the same key.

    The profile is compared with the wire before the first call.
    A cloud that has forgotten the stream is brought back by the tokens so far; the pending call is then sent again.

    Args:
      condition, key, stream, caption: as in `open`.
      options: of the `Session`: ``policy``, ``journal``, ``budget`` and others.
    Returns:
      The result, and the traffic of frames.
    Raises:
      CloudError: for a call that is refused, or not answered within the limits of the policy.
      MessageError: for an answer that is not valid.
      ValueError: for a cloud whose profile is not that of the wire.
    """
    told = {name: self._fields[name] for name in ("max_len", "top_p", "cfg_scale")}
    check_profile(cloud.description, self._fields["profile"], self._wire, **told)
    session = Session(cloud, **options)
    self.receive(session.open(self.open(condition, key, model=cloud.description.model, stream=stream, caption=caption)))
    while self.request is not None:
      ask = session.complete if self.request.part else session.verify
      self.receive(ask(self.request.frame, lambda next_seq: self.resume))
    session.close()
    return self.outcome()

  def outcome(self) -> tuple[DecodeResult, Traffic]:
    """The result so far, and the traffic of frames; a transport counts its own bytes.

    Raises:
      ValueError: before the first frame.
    """
    if self._side is None:
      raise ValueError("Must have a stream with token 0 to read its result, we instead got none")
    return result(self._side, self._drafter), self._traffic

  def _receive_first(self, frame: Frame) -> None:
    token = np.full(1, self._wire.decode_first(frame), np.int32)
    kwargs = dict(max_len=self._agreement.max_len, end_token=end_array(self._agreement.end_tokens), drafter=self._drafter)
    prefill, keys = Verdict.one(np.zeros(1, np.int32), token), jax.random.clone(self._keys)
    self._side = _start_draft(self._params, keys, self._condition, prefill, target_prefix=self._target_prefix, **kwargs)
    if int(self._side.origin[0, 0]) != Origin.LOCAL:
      self._count(downlink_bytes=len(frame.data))
    self._go_on()

  def _receive_reply(self, frame: Frame) -> None:
    draft, round_ = self._drafted[0], self._last.round
    number = int(draft.num_drafted[0]) - int(draft.num_local[0])
    reply = self._wire.decode_reply(frame, round_, number)
    self._count(downlink_bytes=len(frame.data))
    if reply.next_token is None:
      self._asked = reply
      self._send(1, *self._wire.encode_distribution(draft, reply.num_accepted, round_))
    else:
      self._commit(reply)

  def _receive_completion(self, frame: Frame) -> None:
    number = self._asked.num_accepted
    reply = self._wire.decode_reply(frame, self._last.round, number)
    require(reply.next_token is not None, "kind", "a second request in one round")
    require(reply.num_accepted == number, "range", f"{reply.num_accepted} accepted, the request said {number}")
    self._count(downlink_bytes=len(frame.data))
    self._commit(reply)

  def _commit(self, reply: Reply) -> None:
    draft, trace = self._drafted
    verdict = verdict_of(reply, draft.num_local)
    self._side = _commit_reply(self._params, self._side, draft, trace, verdict, drafter=self._drafter)
    self._drafted = self._asked = None
    self._go_on()

  def _go_on(self) -> None:
    """Runs rounds until one needs the cloud, or the row is finished."""
    nothing = Verdict.one(np.zeros(1, np.int32), np.zeros(1, np.int32))
    while True:
      cursor = on_host(self._side.cursor)
      if not cursor.live[0]:
        self._request, self._is_open = None, False
        return
      step = _read_round if cursor.round < self._prefix_rounds else _draft_round
      self._side, draft, trace = step(self._params, self._side, drafter=self._drafter)
      if needs_cloud(draft, cursor):
        frame, bits = self._wire.encode_draft(draft, cursor, self._agreement.max_len)
        self._drafted = draft, trace
        self._note(cursor, draft)
        self._send(0, frame, bits)
        return
      verdict = reply_to_nothing(draft, nothing)
      self._side = _commit_reply(self._params, self._side, draft, trace, verdict, drafter=self._drafter)

  def _send(self, part: int, frame: bytes, bits: int) -> None:
    self._count(coded_bits=bits, uplink_bytes=len(frame), exchanges=1)
    self._request = Request(len(self._gained), part, frame)

  def _count(self, **more: int) -> None:
    self._traffic = self._traffic._replace(**{name: getattr(self._traffic, name) + value for name, value in more.items()})

  def _note(self, cursor: Cursor, draft: Draft) -> None:
    """Keeps what the new request brings; and what the last one gained, which its answer and the new one show together."""
    length = int(cursor.length[0])
    read = int(draft.payload.read[0]) if isinstance(draft.payload, PendingTokens) else length - 1
    if self._last is None:
      self._gained.append(1)
    else:
      self._gained.append(read + 1 - self._last.known)
      self._fed.append(self._last.fed)
      self._round = self._last.round + 1
    self._last = _Call(read + 1, length + int(draft.num_drafted[0]) - read, int(cursor.round))
