"""A cloud as the edge sees it: what opens a stream, three functions on bytes, and how they fail.

`Cloud` is one attempt at one call, wherever the server is: behind a network (`jaxspec.serving.edge.grpc_client`), in the
same process, or behind planted faults in a test. `jaxspec.serving.edge.reliable_stream` tries again and resumes. Nothing
here needs JAX, gRPC or protobuf.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol

STREAM_BYTES, KEY_BYTES, DIGEST_BYTES = 16, 8, 32
KEY_KIND = "threefry2x32"  # of row keys
PROTOCOL = 1
MAX_END_TOKENS = 8  # of a stream: rows of a step have room for so many


class Status(enum.Enum):
  """Why a call failed; the names are those of gRPC."""

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


class CloudError(Exception):
  """A call that was not answered.

  Attributes:
    status: why.
    detail: one plain line.
    pushback_s: when a refusing server wants to be asked again; None where it did not say.
  """

  def __init__(self, status: Status, detail: str, pushback_s: float | None = None):
    super().__init__(f"{detail} ({status.name})")
    self.status, self.detail, self.pushback_s = status, detail, pushback_s


class Profile(NamedTuple):
  """One way of decoding that a server has compiled; agreed on by its id."""

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
  """What a profile says about the way of decoding, in words."""
  fields = {name: value for name, value in profile._asdict().items() if value and name not in ("id", "max_frame")}
  return " ".join(name if value is True else f"{name}={value}" for name, value in fields.items())


class Description(NamedTuple):
  """What a server serves."""

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


class Opening(NamedTuple):
  """What opens a stream of one row. ``condition`` is ids of a prompt, a class label, or a text that the cloud encodes."""

  stream: bytes  # 16 random bytes, chosen by the edge
  model: bytes
  profile: int
  key: bytes  # the row key, two big-endian words of threefry2x32
  max_len: int
  condition: tuple[int, ...] | int | str
  temperature: float = 1.0
  top_p: float = 1.0
  cfg_scale: float = 1.0
  end_ids: tuple[int, ...] = ()
  need_numerics: bytes = b""  # refuse a server of other numerics; empty accepts all
  protocol: int = PROTOCOL


class Resume(NamedTuple):
  """What the edge has of a stream that its server lost; the calls before ``next_seq`` are not asked again.

  Attributes:
    round: the first round that may come.
    tokens: committed ones that a server knew after the last of these calls, without the condition; its own newest included.
    gained: how many of them each call brought it to know. Call 0, the opening, gained token 0.
    fed: tokens that each call made the server read, drafts included; of call 0 the condition.
  """

  next_seq: int
  round: int
  tokens: tuple[int, ...]
  gained: tuple[int, ...]
  fed: tuple[int, ...]


class Opened(NamedTuple):
  """The answer to an opening."""

  frame: bytes  # of kind FIRST
  next_seq: int
  numerics: bytes


class Cloud(Protocol):
  """One attempt at one call, or a `CloudError`. A call is a function of its arguments: asked twice, it answers the same.

  One that counts what goes through its transport has ``uplink_bytes`` and ``downlink_bytes`` besides.

  Attributes:
    description: what the server serves.
  """

  description: Description

  def open(self, opening: Opening, resume: Resume | None = None, *, timeout_s: float) -> Opened:
    """Call 0 of a stream: the frame of token 0."""
    ...

  def verify(self, stream: bytes, seq: int, part: int, frame: bytes, *, timeout_s: float) -> bytes:
    """The reply frame of call ``seq``; part 1 brings the distribution that the reply to part 0 requested."""
    ...

  def close(self, stream: bytes, *, timeout_s: float) -> None:
    """Lets the server forget a stream; an unknown one too."""
    ...
