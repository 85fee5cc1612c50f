"""One row of a decode over any `Cloud`: the edge as frames, without envelopes.

`EdgeStream` runs a `DraftEndpoint` of one row. It takes the frame out of every message, and puts every frame that comes back
into the reply that the endpoint waits for. Besides, it keeps what a cloud needs to go on with the stream (`Resume`). A
`Session` carries the frames: it numbers the calls, tries them again, and resumes.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxspec.core.loop import EndTokens, end_tuple
from jaxspec.core.options import check_length
from jaxspec.core.payloads import PendingTokens
from jaxspec.core.state import DecodeResult
from jaxspec.core.types import Drafter, Key, PyTree
from jaxspec.serving.edge.draft_endpoint import REPLY_TO, DraftEndpoint
from jaxspec.serving.edge.reliable_stream import Session
from jaxspec.serving.wire.cloud import KEY_KIND, STREAM_BYTES, Cloud, Opening, Resume
from jaxspec.serving.wire.edge_condition import sent_condition
from jaxspec.serving.wire.envelope import Envelope, Kind, read_envelope, read_frames, write_envelope, write_frames
from jaxspec.serving.wire.profiles import check_profile
from jaxspec.serving.wire.round_codec import Wire
from jaxspec.serving.wire.traffic import Traffic


class Request(NamedTuple):
  """What `Cloud.verify` is asked next."""

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
    wire: what rounds look like; that of the cloud's profile.
    max_len: tokens N of the row.
    profile: number of the cloud's profile.
    end_token: as in `jaxspec.speculate`.
    target_prefix: leading tokens that the cloud draws alone.
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
    max_len, ends = check_length(max_len), dict(end_token=end_token, target_prefix=target_prefix)
    self._endpoint = DraftEndpoint(params, drafter=drafter, wire=wire, max_len=max_len, **ends)
    self._fields = dict(profile=profile, max_len=max_len, end_ids=end_tuple(end_token), need_numerics=need_numerics)
    self._fields |= dict(temperature=temperature, top_p=top_p, cfg_scale=cfg_scale)
    self._wire = wire
    self._request: Request | None = None
    self._last: _Call | None = None

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
    self._endpoint.open(condition, key)
    data = np.asarray(jax.random.key_data(self._endpoint.row_keys))[0]
    self._request = self._last = None
    self._round = 0
    self._gained: list[int] = []
    self._fed = [1 if isinstance(sent, int) else len(sent)]
    stream = secrets.token_bytes(STREAM_BYTES) if stream is None else stream
    return Opening(stream=stream, model=model, key=data.astype(">u4").tobytes(), condition=sent, **self._fields)

  @property
  def request(self) -> Request | None:
    """What to ask next; None before the first frame, and when the row is finished."""
    return self._request

  @property
  def resume(self) -> Resume | None:
    """What a cloud has read before the newest request, for another one; None before the first frame."""
    if self._last is None:
      return None
    tokens = np.asarray(self._endpoint.outcome()[0].tokens[0, : self._last.known]).tolist()
    return Resume(len(self._gained), self._round, tuple(tokens), tuple(self._gained), tuple(self._fed))

  def receive(self, frame: bytes) -> None:
    """Absorbs the first frame, or the answer to the newest request.

    Raises:
      MessageError: if it is not valid; nothing has changed then.
    """
    kind, number, _ = self._message()
    self._endpoint.receive(write_envelope(REPLY_TO[kind], number, write_frames([frame])))
    kind, number, body = self._message()
    if kind == Kind.CLOSE:  # a stream is closed without a frame
      self._endpoint.receive(write_envelope(Kind.CLOSED, number))
      self._request = None
      return
    if kind == Kind.DRAFT:
      self._count()
    self._request = Request(len(self._gained), int(kind == Kind.DISTRIBUTION), read_frames(body, 1)[0])

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
    A cloud that has forgotten the stream is brought back by the tokens so far; the pending call is then asked again.

    Args:
      condition, key, stream, caption: as in `open`.
      options: of the `Session`: ``policy``, ``journal``, ``budget`` and others.
    Returns:
      The result, and the traffic of frames.
    Raises:
      CloudError: for a call that is refused, or not answered however often it is tried.
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
    result, traffic = self._endpoint.outcome()
    return result, traffic._replace(opening_bytes=np.int64(0), envelope_bytes=np.int64(0))

  def _message(self) -> Envelope:
    """The message that the endpoint waits with."""
    message = self._endpoint.message
    if message is None:
      raise ValueError("Must have an open stream to receive a frame, we instead got none")
    return read_envelope(message, len(message))

  def _count(self) -> None:
    """Notes what the new request brings; and what the last one gained, which its answer and the new one show together."""
    cursor, draft = self._endpoint.waiting
    length = int(cursor.length[0])
    read = int(draft.payload.read[0]) if isinstance(draft.payload, PendingTokens) else length - 1
    if self._last is None:
      self._gained.append(1)
    else:
      self._gained.append(read + 1 - self._last.known)
      self._fed.append(self._last.fed)
      self._round = self._last.round + 1
    self._last = _Call(read + 1, length + int(draft.num_drafted[0]) - read, int(cursor.round))
