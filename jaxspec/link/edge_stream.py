"""One row of a decode over any `Cloud`: the edge as frames, without envelopes.

`EdgeStream` runs a `DraftEndpoint` of one row. It takes the frame out of every message, and puts every frame that comes back
into the reply that the endpoint waits for. Besides, it keeps what a cloud needs to go on with the stream (`Resume`).
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxspec import rng
from jaxspec.decode.loop import EndTokens
from jaxspec.decode.state import DecodeResult
from jaxspec.drafters.interval import Unread
from jaxspec.link.cloud import KEY_KIND, Cloud, OpenCall, Resume, UnknownStream
from jaxspec.link.draft_endpoint import REPLY_TO, DraftEndpoint
from jaxspec.link.envelope import Envelope, Kind, read_envelope, read_frames, write_envelope, write_frames
from jaxspec.link.opening import condition_arrays, end_tuple
from jaxspec.link.traffic import Traffic, join_traffic
from jaxspec.link.wires import Wire
from jaxspec.types import Drafter, Key, PyTree

_MOST_RESUMES = 8  # in a row, without an answer between them


class Request(NamedTuple):
  """What `Cloud.verify` is asked."""

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

      opening = edge.open(condition, key)
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
  ):
    ends = dict(end_token=end_token, target_prefix=target_prefix)
    self._endpoint = DraftEndpoint(params, drafter=drafter, wire=wire, max_len=max_len, **ends)
    self._call = dict(profile=profile, max_len=max_len, end_tokens=end_tuple(end_token))
    self._call |= dict(temperature=temperature, top_p=top_p, cfg_scale=cfg_scale)
    self._request: Request | None = None

  def open(self, condition: PyTree, key: Key) -> OpenCall:
    """Begins a row and returns how its stream is opened.

    Args:
      condition: the family's condition with one row.
      key: a typed threefry key: the row key ``[1]``, or ``[]``, of which row 0 is taken as in `jaxspec.speculate`.
    Raises:
      ValueError: for more than one row, or a key of another kind.
    """
    kind = str(jax.random.key_impl(key))
    if condition.batch_size != 1 or kind != KEY_KIND:
      raise ValueError(f"Must have one row and a {KEY_KIND} key, we instead got {condition.batch_size} rows, {kind}")
    host = type(condition)(**condition_arrays(condition))
    self._endpoint.open(condition, key)
    data = np.asarray(jax.random.key_data(self._endpoint.row_keys))[0]
    self._request, self._drafted, self._last = None, None, None
    self._gained: list[int] = []
    self._fed: list[int] = []
    return OpenCall(key=data.astype(">u4").tobytes(), condition=host, **self._call)

  @property
  def request(self) -> Request | None:
    """What to ask next; None before the first frame, and when the row is finished."""
    return self._request

  @property
  def resume(self) -> Resume | None:
    """What the cloud has read, for another one; None while an opening alone brings a cloud there."""
    if not self._gained:
      return None
    tokens = np.asarray(self._endpoint.outcome()[0].tokens[0, : self._last.known]).tolist()
    return Resume(self._round, tuple(tokens), tuple(self._gained), tuple(self._fed))

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
    self._request = Request(int(kind == Kind.DISTRIBUTION), read_frames(body, 1)[0])
    if self._request.part == 0:
      self._drafted = self._request

  def run(self, condition: PyTree, key: Key, cloud: Cloud, *, stream: bytes | None = None) -> tuple[DecodeResult, Traffic]:
    """Decodes a row, with the tokens that `jaxspec.speculate` draws for the same key.

    A cloud that has forgotten the stream is brought back by the tokens so far; the pending call is then asked again.

    Args:
      condition, key: as in `open`.
      stream: name of the stream, 16 random bytes by default.
    Returns:
      The result, and the traffic of frames.
    Raises:
      MessageError: for an answer that is not valid.
      UnknownStream: if the cloud forgets the stream again and again.
    """
    stream = secrets.token_bytes(16) if stream is None else stream
    opening = self.open(condition, key)
    self.receive(cloud.open(stream, opening))
    while self.request is not None:
      self.receive(self._ask(cloud, stream, opening))
    cloud.close(stream)
    return self.outcome()

  def _ask(self, cloud: Cloud, stream: bytes, opening: OpenCall) -> bytes:
    """The answer to the newest request, of a cloud that may have forgotten the stream."""
    for resumes in range(_MOST_RESUMES + 1):
      try:
        if resumes:
          cloud.open(stream, opening, self.resume)
          if self.request.part == 1:  # first the drafts again; the cloud answers with the same request
            cloud.verify(stream, *self._drafted)
        return cloud.verify(stream, *self.request)
      except UnknownStream:
        if resumes == _MOST_RESUMES:
          raise
    raise AssertionError("the last attempt returns or raises")

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
    read = int(draft.payload.read[0]) if isinstance(draft.payload, Unread) else length - 1
    if self._last is not None:
      self._gained.append(read + 1 - self._last.known)
      self._fed.append(self._last.fed)
      self._round = self._last.round + 1
    self._last = _Call(read + 1, length + int(draft.num_drafted[0]) - read, int(cursor.round))


def decode_over_cloud(
  params: PyTree, key: Key, condition: PyTree, *, cloud: Cloud, drafter: Drafter, wire: Wire, max_len: int, **options: Any
) -> tuple[DecodeResult, Traffic]:
  """Decodes like `jaxspec.speculate`, with the target behind a cloud; rows one after the other.

  Args:
    params: the draft's parameters.
    key: one typed key or ``[B]`` row keys.
    condition: the family's condition with ``B`` rows.
    cloud: where the target is.
    drafter, wire, max_len: as in `EdgeStream`, also its other options.
  Returns:
    The result, and the traffic of frames.
  Raises:
    MessageError: for an answer that is not valid.
  """
  edge = EdgeStream(params, drafter=drafter, wire=wire, max_len=max_len, **options)
  keys, number = rng.row_keys(key, condition.batch_size), condition.batch_size
  row_of = lambda tree, row: jax.tree.map(lambda leaf: leaf[row : row + 1], tree)
  found = [edge.run(row_of(condition, row), keys[row : row + 1], cloud) for row in range(number)]
  results = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(result for result, _ in found))
  return results, join_traffic([traffic for _, traffic in found])
