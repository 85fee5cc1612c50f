"""A link in virtual time before a cloud in this process: latency, rates, a pass of the target, and passes of the edge.

Frames, replies, edge and engine are real. A chunk takes what `experiments.server.relay.Link` says.
"""

from __future__ import annotations

import dataclasses

from experiments.server.faulty import Clock
from experiments.server.relay import Link, Shape
from jaxspec.serving.edge.reliable_stream import RetrySettings
from jaxspec.serving.wire.cloud import Cloud
from jaxspec.serving.wire.framing import VOID
from jaxspec.serving.wire.link_model import Network
from jaxspec.serving.wire.sqs_codec import SqsCodec


@dataclasses.dataclass(frozen=True)
class SlowCodec(SqsCodec):
  """A codec that takes the time of a round's draft passes."""

  clock: Clock = dataclasses.field(default_factory=Clock, compare=False)
  draft_s: float = 0.0

  def encode_draft(self, draft, cursor, max_len, *assumes):
    if draft.tokens.shape[1]:
      self.clock.sleep(self.draft_s * (int(draft.num_drafted[0]) + 1))
    return super().encode_draft(draft, cursor, max_len, *assumes)


class VirtualLink:
  """An `AheadCloud`: calls run in the order in which they are sent, one pass each; void ones take no pass.

  Attributes:
    first_s: time of the reply to the handshake; ``last_s`` of the newest reply.
    rounds, full: verified rounds, and those that accepted all drafts.
  """

  def __init__(self, cloud: Cloud, network: Network, verify_s: float, clock: Clock):
    self.description, self.clock = cloud.description, clock
    self._cloud, self._network, self._verify_s = cloud, network, verify_s
    self.seconds, self.rounds, self.full, self.void = 0.0, 0, 0, 0

  @property
  def settings(self) -> RetrySettings:
    return RetrySettings(clock=self.clock, sleep=self.clock.sleep)

  def open(self, handshake, resume=None, *, timeout_s):
    self._up, self._down = Link(Shape.of(self._network)), Link(Shape.of(self._network))
    self._free, self._replies, self._arrived_s = 0.0, {}, 0.0
    self.clock.sleep(self._network.latency_s)
    self._opened_s = self.clock.now
    return self._cloud.open(handshake, resume)

  def send(self, stream, seq, frame):
    reply = self._cloud.verify(stream, seq, 0, frame)
    is_void = reply[3] == VOID
    self._free = max(self._free, self._up.due(len(frame), self.clock.now)) + self._verify_s * (not is_void)
    self._replies[seq] = self._down.due(len(reply), self._free), reply
    self.rounds, self.void = self.rounds + (not is_void), self.void + is_void

  def arrived_s(self, stream):
    return self._arrived_s

  def verify(self, stream, seq, part, frame, *, timeout_s):
    if seq not in self._replies:
      self.send(stream, seq, frame)
    self._arrived_s, reply = self._replies.pop(seq)
    self.clock.now = max(self.clock.now, self._arrived_s)
    self._ended_s = self.clock.now
    return reply

  def close(self, stream, *, timeout_s):
    self.seconds += self._ended_s - self._opened_s
    self._cloud.close(stream, timeout_s=timeout_s)
