"""The interface of a cloud for an edge: three calls on bytes, their errors, and the description of the server.

A `Cloud` makes one attempt at one call. The server is behind a network (`jaxspec.serving.edge.grpc_client`), in the same
process (`jaxspec.serving.server.in_process`), or behind injected faults in a test.
`jaxspec.serving.edge.reliable_stream` retries and resumes. Nothing here needs JAX, gRPC or protobuf.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol, runtime_checkable

from jaxspec.errors import LinkError
from jaxspec.serving.wire.handshake import Handshake, HandshakeReply, Resume


class Status(enum.Enum):
  """The reason of a failed call; the names are those of gRPC."""

  INVALID_ARGUMENT = enum.auto()
  DATA_LOSS = enum.auto()
  FAILED_PRECONDITION = enum.auto()
  OUT_OF_RANGE = enum.auto()
  NOT_FOUND = enum.auto()
  ALREADY_EXISTS = enum.auto()
  RESOURCE_EXHAUSTED = enum.auto()
  UNAUTHENTICATED = enum.auto()
  PERMISSION_DENIED = enum.auto()
  UNAVAILABLE = enum.auto()
  DEADLINE_EXCEEDED = enum.auto()
  UNIMPLEMENTED = enum.auto()
  INTERNAL = enum.auto()


class CloudError(LinkError):
  """A call without a reply.

  Attributes:
    status: the reason.
    detail: one plain line.
    pushback_s: seconds after which the server accepts a retry; None where it gave none.
  """

  def __init__(self, status: Status, detail: str, pushback_s: float | None = None):
    super().__init__(f"{detail} ({status.name})")
    self.status, self.detail, self.pushback_s = status, detail, pushback_s


class Profile(NamedTuple):
  """A method with its options that a server has compiled; the handshake names it by its id."""

  id: int
  method: str
  rule: str = ""
  window: int = 0
  coding: str = ""
  ell: int = 0
  max_support: int = 0
  sends_size: bool = False
  top_k: int = 0
  nucleus: bool = False
  guided: bool = False
  feature_width: int = 0
  max_frame: int = 0  # bytes of the longest valid frame of the edge


def shown(profile: Profile) -> str:
  """The fields of a profile that describe its method, in one line."""
  fields = {name: value for name, value in profile._asdict().items() if value and name not in ("id", "max_frame")}
  return " ".join(name if value is True else f"{name}={value}" for name, value in fields.items())


class Description(NamedTuple):
  """The reply of `Describe`: what a server serves."""

  protocol_min: int
  protocol_max: int
  server: str  # its version
  model: bytes  # SHA-256 of family, config and weights
  numerics: bytes  # replies of two servers are byte-identical where this is
  vocab: int
  max_len: int
  max_condition: int  # ids of a prompt, or bytes of a text
  end_ids: tuple[int, ...]
  profiles: tuple[Profile, ...]
  replay_in_chunks: bool = False


class Cloud(Protocol):
  """One attempt at one call, or a `CloudError`. Calls are idempotent: equal arguments give equal replies.

  A cloud that counts the bytes of its transport has the attributes ``uplink_bytes`` and ``downlink_bytes``. One that can
  send calls before the replies to earlier ones has a method `send` (`AheadCloud`).

  Attributes:
    description: of the server.
  """

  @property
  def description(self) -> Description: ...

  def open(self, handshake: Handshake, resume: Resume | None = None, *, timeout_s: float) -> HandshakeReply:
    """Call 0 of a stream: the frame of token 0."""
    ...

  def verify(self, stream: bytes, seq: int, part: int, frame: bytes, *, timeout_s: float) -> bytes:
    """The reply frame of call ``seq``; part 1 brings the distribution that the reply to part 0 requested."""
    ...

  def close(self, stream: bytes, *, timeout_s: float) -> None:
    """Removes a stream from the server; does nothing for an unknown one."""
    ...


@runtime_checkable
class AheadCloud(Protocol):
  """A cloud that can send calls ahead."""

  def send(self, stream: bytes, seq: int, frame: bytes) -> None:
    """Sends part 0 of call ``seq``; `Cloud.verify` with the same arguments then waits for its reply alone.

    Calls of a stream are sent and run in order. A failure is an error of `Cloud.verify`. The calls after the failed one are
    lost then, and have to be sent again after its reply.
    """
    ...

  def arrived_s(self, stream: bytes) -> float | None:
    """When the reply that `Cloud.verify` returned last arrived, by the edge's clock; None: when it was returned.

    An edge that drafts ahead may read a reply later than it came.
    """
    ...
