"""The edge's side of a row whose target is behind a `Cloud`.

1. `Edge` is a value: the draft network, the codec, and the settings of its rows.
2. `Edge.open` makes the handshake of a row, a `StreamStart`. Its `StreamStart.receive` takes the frame of token 0.
3. `jaxspec.serving.edge.open_stream.EdgeStream` is the open stream. It runs `jaxspec.core.rounds.draft_round` and
   `commit_reply`; the codec makes a frame of each draft and a verdict of each reply.

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
import secrets

import jax
import numpy as np

from jaxspec.core import rng
from jaxspec.core.state import DecodeResult
from jaxspec.core.types import Key, PyTree
from jaxspec.serving.edge.edge_settings import EdgeSettings
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.link_times import ROUNDS
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.edge.open_stream import StreamStart
from jaxspec.serving.edge.reliable_stream import ReliableStream, RetrySettings
from jaxspec.serving.wire.cloud import Cloud
from jaxspec.serving.wire.edge_condition import sent_condition
from jaxspec.serving.wire.handshake import KEY_KIND, STREAM_BYTES, Handshake
from jaxspec.serving.wire.profiles import check_profile, find_profile
from jaxspec.serving.wire.traffic import Traffic


@dataclasses.dataclass(frozen=True, eq=False)
class Edge(EdgeSettings):
  """The draft side of decodes over a cloud; fields and errors as in `EdgeSettings`."""

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
    settings = RetrySettings() if settings is None else settings
    calls = ReliableStream(cloud, start.handshake, settings=settings, journal=journal, observer=observer)
    opened = start.receive(calls.open(), clock=settings.clock, earlier=settings.rounds)
    while (request := opened.request) is not None:
      while edge.pipeline > 1 and (ahead := opened.next_request()) is not None:
        calls.send_ahead(ahead.frame)
      if request.part:
        reply = calls.complete(request.frame, opened.resume)
      else:
        reply = calls.verify(request.frame, opened.resume, opened.draft_us)
      opened.receive(reply, calls.timing)
    calls.close()
    settings.rounds[:] = opened.measured[-ROUNDS:]
    return opened.outcome()
