"""The handshake of a stream: how it is opened or resumed, and what both ends agree on besides their codec."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from jaxspec.core.options import check_length

STREAM_BYTES, KEY_BYTES, DIGEST_BYTES = 16, 8, 32
KEY_KIND = "threefry2x32"  # of row keys
PROTOCOL = 1
MAX_END_TOKENS = 8  # of a stream; the arrays of a step have this width

Condition = tuple[int, ...] | int | str  # ids of a prompt, a class label, or a text that the cloud encodes


class Handshake(NamedTuple):
  """The request that opens a stream of one row."""

  stream: bytes  # 16 random bytes, chosen by the edge
  model: bytes  # digest of the target network
  profile: int  # id of a profile of the server
  key: bytes  # the row key, two big-endian words of threefry2x32
  max_len: int
  condition: Condition
  temperature: float = 1.0
  top_p: float = 1.0
  cfg_scale: float = 1.0
  end_ids: tuple[int, ...] = ()
  need_numerics: bytes = b""  # required digest of the server's numerics; empty accepts all
  protocol: int = PROTOCOL


class Resume(NamedTuple):
  """The state of a stream that its server lost. The calls before ``next_seq`` are not repeated.

  Attributes:
    next_seq: number of the next call.
    round: the first round that may come.
    tokens: committed tokens that a server knew after the last of these calls, its own newest one included, without the
      condition.
    gained: number of tokens by which each call extended them. Call 0, the handshake, gained token 0. Void calls are left
      out.
    fed: number of tokens that the server read for each of these calls, drafts included; for call 0 those of the condition.
    replies: digest of the replies to these calls (`jaxspec.serving.wire.reply_digest`), for drafts that assume some; else
      empty.
  """

  next_seq: int
  round: int
  tokens: tuple[int, ...]
  gained: tuple[int, ...]
  fed: tuple[int, ...]
  replies: bytes = b""


class HandshakeReply(NamedTuple):
  """The reply to a `Handshake`."""

  frame: bytes  # of kind FIRST
  next_seq: int
  numerics: bytes  # digest of the server's numerics


@dataclasses.dataclass(frozen=True)
class Agreement:
  """The limits of a row by which its frames are read.

  Attributes:
    max_len: tokens N of the row.
    end_tokens: tokens that end it.
  Raises:
    ValueError: for a length below 1, or more than `MAX_END_TOKENS` end tokens.
  """

  max_len: int
  end_tokens: tuple[int, ...] = ()

  def __post_init__(self):
    check_length(self.max_len)
    if len(self.end_tokens) > MAX_END_TOKENS:
      raise ValueError(f"Must have at most {MAX_END_TOKENS} end tokens, we instead got {self.end_tokens}")
