"""The state of a stream on the host, in plain arrays; its cache can be rebuilt from it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.core.types import Cursor, PyTree, Verdict
from jaxspec.sampling.logit_processing import Sampling
from jaxspec.serving.server.cache_table import RowSettings
from jaxspec.serving.server.chunking import ChunkSpan, fewest_spans, spans_of_call, spans_of_history
from jaxspec.serving.server.sampling_limits import sampling_requirements
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.step_arrays import Row, Settings
from jaxspec.serving.wire.arrays import host_array
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.framing import Frame
from jaxspec.serving.wire.handshake import KEY_BYTES, Agreement, Handshake, Resume
from jaxspec.serving.wire.reply_digest import DIGEST_BYTES, NO_REPLIES, extended
from jaxspec.serving.wire.round_codec import DecodedDraft


class UnfinishedCall(NamedTuple):
  """A call whose drafts are tested, and that waits for a distribution."""

  call: DecodedDraft
  verdict: Verdict  # leaves [1]


@dataclasses.dataclass(eq=False)
class Stream:
  """One row.

  Attributes:
    handshake: its request.
    condition: its condition, padded to a compiled length.
    profile: its compiled profile.
    settings: its settings of a step.
    agreement: limits by which its frames are read.
    cursor: its position, leaves ``[1]``, round ``[]``.
    tokens: committed tokens, ``[max_len]`` int32; the first ``cursor.length`` are valid.
    features: their interval features ``[max_len, D]``, zeros for a token without features; D = 0 if none are sent.
    tenant: its owner.
    used: time of its last call or reply, seconds.
    since: start of its waiting time, seconds.
    skipped: steps of other streams since then.
    has_first: whether token 0 is known.
    history: ``(gained, fed)`` of every finished call after the handshake; void calls are left out.
    replies: digest of the replies that ended rounds (`jaxspec.serving.wire.reply_digest`).
    slot: slot of its cache; None while it is evicted.
    pending: passes that its cache lacks before the next call can be verified; the newest of them belong to the call.
    spans: passes of the newest call, of which the last one is verified.
    call: a call that waits for verification.
    unfinished: a call that waits for a distribution.
    distribution: the distribution of that call, once it has arrived.
    is_opening: whether its first frame is not sent yet.
    has_lost: whether an eviction dropped a call that waited for a distribution.
  """

  handshake: Handshake
  condition: PyTree
  profile: ServedProfile
  settings: Settings
  agreement: Agreement
  cursor: Cursor
  tokens: np.ndarray
  features: np.ndarray
  tenant: str
  used: float = 0.0
  since: float = 0.0
  skipped: int = 0
  has_first: bool = False
  history: list[tuple[int, int]] = dataclasses.field(default_factory=list)
  replies: bytes = NO_REPLIES
  slot: int | None = None
  pending: collections.deque[ChunkSpan] = dataclasses.field(default_factory=collections.deque)
  spans: list[ChunkSpan] = dataclasses.field(default_factory=list)
  call: DecodedDraft | None = None
  unfinished: UnfinishedCall | None = None
  distribution: PyTree = None
  is_opening: bool = True
  has_lost: bool = False

  @property
  def is_waited_for(self) -> bool:
    """Whether a call waits for a reply."""
    return self.is_opening or self.call is not None or self.distribution is not None

  def need_call(self) -> DecodedDraft:
    """The call that waits for verification."""
    assert self.call is not None, "the scheduler verifies streams with a call"
    return self.call

  def need_unfinished(self) -> UnfinishedCall:
    """The call that waits for a distribution."""
    assert self.unfinished is not None, "the scheduler finishes calls that wait for a distribution"
    return self.unfinished

  def start(self, first: int) -> None:
    """Commits token 0, which the target drew when it read the condition."""
    self.tokens[0], self.has_first = first, True
    is_live = self.agreement.max_len > 1 and first not in self.agreement.end_tokens
    self.cursor = cursor_at(first, 1, live=is_live, round_=int(self.cursor.round))

  def is_void(self, frame: bytes | Frame) -> bool:
    """Whether the drafts of a frame assume other replies than those of this stream.

    Raises:
      MessageError: for a frame that does not say what it assumes.
    """
    codec = self.profile.codec
    return not codec.bonus and codec.assumption(frame) != (int(self.cursor.round), self.replies)

  def accept(self, frame: bytes | Frame, widths: Sequence[int]) -> None:
    """Queues a call. Its tokens become known, and its passes follow those that the cache lacks already.

    Raises:
      MessageError: for a frame that is not valid for this stream now; nothing has changed then.
    """
    call = self.profile.codec.decode_draft(frame, self.cursor, self.agreement)
    self.spans = spans_of_call(call.start, len(call.tokens), self.profile.window, widths)
    self.call, end = call, int(call.cursor.length[0])
    self.tokens[call.start : end] = call.tokens[: end - call.start]
    if call.features is not None:
      self.features[call.start : end] = call.features[: end - call.start]
    self.pending.extend(self.spans[:-1])

  def commit(self, call: DecodedDraft, verdict: Verdict, cursor: Cursor, reply: bytes) -> None:
    """Ends a round: stores its tokens and moves the cursor.

    Args:
      verdict: leaves ``[1]``.
      cursor: after the round, leaves ``[1]``.
      reply: the frame that ends the round.
    """
    before, length = int(call.cursor.length[0]), int(cursor.length[0])
    accepted, known = int(verdict.num_accepted[0]), int(self.cursor.length[0])
    self.tokens[before : before + accepted] = call.draft.tokens[0, :accepted]
    if int(verdict.num_next[0]):
      self.tokens[length - 1] = verdict.next_tokens[0, 0]
    if call.features is not None:
      own = call.features[before - call.start :][:accepted]
      self.features[before : before + accepted] = own
      self.features[before + accepted : length] = 0  # the target's own token has none
    self.replies = extended(self.replies, reply)
    self.history.append((length - known, len(call.tokens)))
    self.cursor = Cursor(cursor.last, cursor.length, cursor.live, host_array(np.int32(cursor.round[0])))
    self.call = self.unfinished = self.distribution = None

  def evict(self) -> None:
    """Drops the cache, and with it a call that waits for a distribution."""
    self.slot = None
    self.pending.clear()
    if self.unfinished is not None:
      self.unfinished, self.has_lost = None, True

  def replay(self, widths: Sequence[int], *, in_chunks: bool) -> None:
    """Queues the passes that rebuild the cache from that of the condition, then those of a waiting call."""
    length = int(self.cursor.length[0]) - 1
    spans = fewest_spans(length, widths) if in_chunks else spans_of_history(self.history, self.profile.window, widths)
    self.pending = collections.deque(spans)
    if self.call is not None:
      self.pending.extend(self.spans[:-1])

  def forced_row(self) -> Row:
    """The row of the oldest pass that the cache lacks."""
    span = self.pending[0]
    at = slice(span.start, span.start + span.size)
    features = self.features[at] if self.profile.feature_width else None
    return Row(self._need_slot(), self.settings, self.cursor, span, self.tokens[at], features)

  def verified_row(self, call: DecodedDraft) -> Row:
    """The row of a call that is verified."""
    span = self.spans[-1]
    at = slice(span.start - call.start, None)
    features = None if call.features is None else call.features[at]
    return Row(self._need_slot(), self.settings, call.cursor, span, call.tokens[at], features, call.draft)

  def _need_slot(self) -> int:
    assert self.slot is not None, "the scheduler runs streams with a slot"
    return self.slot


def cursor_at(last: int, length: int, *, live: bool, round_: int) -> Cursor:
  """A cursor of one row on the host, leaves ``[1]``, round ``[]``."""
  lasts, lengths = np.full(1, last, np.int32), np.full(1, length, np.int32)
  return Cursor(host_array(lasts), host_array(lengths), host_array(np.full(1, live)), host_array(np.int32(round_)))


def open_stream(
  handshake: Handshake,
  condition: PyTree,
  resume: Resume | None,
  *,
  profile: ServedProfile,
  prefix_len: int,
  is_guided: bool,
  tenant: str,
) -> Stream:
  """A new stream, without a slot.

  Args:
    condition: of the handshake, as the target reads it.
    prefix_len: positions of the condition.
    is_guided: whether the target reads a guidance scale.
  Raises:
    MessageError: for sampling settings out of range or without effect, or a resume that is impossible with this profile.
    ValueError: for an invalid key or end tokens.
  """
  if len(handshake.key) != KEY_BYTES:
    raise ValueError(f"Must have a key of {KEY_BYTES} bytes, we instead got {len(handshake.key)}")
  for holds, field, limit in sampling_requirements(handshake, guided=is_guided, nucleus=profile.warp.nucleus):
    require(holds, "range", f"{field} must be {limit}")
  agreement = Agreement(handshake.max_len, tuple(handshake.end_ids))
  row = RowSettings(
    keys=host_array(np.frombuffer(handshake.key, ">u4").astype(np.uint32)),
    max_len=host_array(np.int32(handshake.max_len)),
    prefix_len=host_array(np.int32(prefix_len)),
    sampling=Sampling(host_array(np.float32(handshake.temperature)), host_array(np.float32(handshake.top_p))),
    scale=host_array(np.float32(handshake.cfg_scale)),
  )
  cursor = cursor_at(0, 1, live=False, round_=0)
  features = np.zeros((handshake.max_len, profile.feature_width), np.float32)
  tokens = np.zeros(handshake.max_len, np.int32)
  settings = Settings(row, agreement.end_tokens)
  stream = Stream(handshake, condition, profile, settings, agreement, cursor, tokens, features, tenant)
  if resume is not None:
    _set_history(stream, resume)
  return stream


def _set_history(stream: Stream, resume: Resume) -> None:
  """Sets a stream to its state after the resumed calls. The handshake counts as a call that gained token 0."""
  profile, tokens, calls = stream.profile, resume.tokens, resume.next_seq
  has_calls = calls > 1
  require(
    not (profile.feature_width and has_calls), "kind", "a stream with interval features cannot be resumed from its tokens"
  )
  most, ends = stream.agreement.max_len, set(stream.agreement.end_tokens)
  require(1 <= len(tokens) <= most, "range", f"{len(tokens)} tokens, 1 to {most} allowed")
  require(all(0 <= token < profile.vocab for token in tokens), "range", "a token outside of the vocabulary")
  require(not ends & set(tokens[:-1]), "order", "tokens after an end token")
  counts = (len(resume.gained), len(resume.fed))
  rounds = calls if profile.codec.bonus else counts[0]  # void calls are left out
  is_whole = 1 <= rounds <= calls and counts == (rounds, rounds)
  require(is_whole, "length", f"{counts[0]} gains and {counts[1]} sizes of {calls} calls")
  size = 0 if profile.codec.bonus else DIGEST_BYTES
  require(len(resume.replies) == size, "length", f"a digest of {len(resume.replies)} bytes instead of {size}")
  require(sum(resume.gained) == len(tokens), "range", f"{len(tokens)} tokens are not what the calls gained")
  require(resume.gained[0] == 1, "range", f"a handshake that gained {resume.gained[0]}")
  history = list(zip(resume.gained[1:], resume.fed[1:]))
  for gained, fed in history:
    require(1 <= gained <= fed <= gained + profile.window, "range", f"a call of {fed} tokens that gained {gained}")
  require(rounds - 1 <= resume.round <= most, "range", f"round {resume.round} before call {calls}")
  stream.history, stream.has_first, stream.replies = history, True, resume.replies or NO_REPLIES
  stream.tokens[: len(tokens)] = tokens
  is_live = len(tokens) < most and tokens[-1] not in ends
  stream.cursor = cursor_at(tokens[-1], len(tokens), live=is_live, round_=resume.round)
