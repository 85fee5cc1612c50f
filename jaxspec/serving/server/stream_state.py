"""The state of a stream on the host, from which its cache can be rebuilt, in plain arrays."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.core.types import Cursor, Draft, PyTree, Verdict
from jaxspec.sampling.logit_processing import Sampling
from jaxspec.serving.server.cache_table import RowSettings
from jaxspec.serving.server.chunking import ChunkSpan, fewest_spans, spans_of_call, spans_of_history
from jaxspec.serving.server.sampling_limits import sampling_conditions
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.step_arrays import Row, Settings
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.cloud import KEY_BYTES, Opening, Resume
from jaxspec.serving.wire.framing import Frame
from jaxspec.serving.wire.handshake import Agreement


class Call(NamedTuple):
  """A round that an edge asks for: its frame as `DecodedDraft`, and how it is cut into passes.

  Only the last pass is verified.
  """

  draft: Draft
  cursor: Cursor
  start: int
  tokens: np.ndarray
  features: np.ndarray | None
  spans: list[ChunkSpan]


class Judgement(NamedTuple):
  """A verified call that waits for a distribution."""

  call: Call
  verdict: Verdict  # leaves [1]


@dataclasses.dataclass(eq=False)
class Stream:
  """One row.

  Attributes:
    opening: its opening.
    condition: its condition, padded to a compiled length.
    profile: its compiled profile.
    settings: its settings of a step.
    agreement: limits by which its frames are read.
    cursor: its position, leaves ``[1]``, round ``[]``.
    tokens: committed tokens, ``[max_len]`` int32; the first ``cursor.length`` are valid.
    features: their interval features ``[max_len, D]``, zeros where a token has none; None where none are sent.
    has_first: whether token 0 is known.
    history: ``(gained, fed)`` of every answered call after the opening.
    slot: slot of its cache; None while it is parked.
    unread: passes that its cache lacks before the next call can be verified; the newest of them belong to the call.
    call: a call that waits for verification.
    judged: a call that waits for a distribution.
    distribution: the distribution of that call, once it has arrived.
    is_opening: whether its first frame was not sent yet.
    has_lost: whether a judgement was dropped when it was parked.
    tenant: its owner.
    used: time of its last call or reply, seconds.
    since: time since which it waits, seconds.
    passed: steps of other streams since then.
  """

  opening: Opening
  condition: PyTree
  profile: ServedProfile
  settings: Settings
  agreement: Agreement
  cursor: Cursor
  tokens: np.ndarray
  features: np.ndarray | None
  tenant: str
  used: float = 0.0
  since: float = 0.0
  passed: int = 0
  has_first: bool = False
  history: list[tuple[int, int]] = dataclasses.field(default_factory=list)
  slot: int | None = None
  unread: collections.deque[ChunkSpan] = dataclasses.field(default_factory=collections.deque)
  call: Call | None = None
  judged: Judgement | None = None
  distribution: PyTree = None
  is_opening: bool = True
  has_lost: bool = False

  @property
  def is_waited_for(self) -> bool:
    """Whether a call waits for a reply."""
    return self.is_opening or self.call is not None or self.distribution is not None

  def start(self, first: int) -> None:
    """Commits token 0, which the target drew when it read the condition."""
    self.tokens[0], self.has_first = first, True
    is_live = self.agreement.max_len > 1 and first not in self.agreement.end_tokens
    self.cursor = self.cursor._replace(last=np.full(1, first, np.int32), live=np.full(1, is_live))

  def accept(self, frame: bytes | Frame, widths: Sequence[int]) -> None:
    """Takes a call in: its tokens become known, and its passes come after those that the cache lacks already.

    Raises:
      MessageError: unless the frame is valid for this stream now; nothing has changed then.
    """
    decoded = self.profile.wire.decode_draft(frame, self.cursor, self.agreement)
    spans = spans_of_call(decoded.start, len(decoded.tokens), self.profile.window, widths)
    call = self.call = Call(*decoded, spans)
    end = int(call.cursor.length[0])
    self.tokens[call.start : end] = call.tokens[: end - call.start]
    if call.features is not None:
      self.features[call.start : end] = call.features[: end - call.start]
    self.unread.extend(spans[:-1])

  def commit(self, call: Call, verdict: Verdict, cursor: Cursor) -> None:
    """Ends a round: stores its tokens and moves the cursor.

    Args:
      verdict: leaves ``[1]``.
      cursor: after the round, leaves ``[1]``.
    """
    before, length = int(call.cursor.length[0]), int(cursor.length[0])
    accepted, known = int(verdict.num_accepted[0]), int(self.cursor.length[0])
    self.tokens[before : before + accepted] = call.draft.tokens[0, :accepted]
    self.tokens[length - 1] = verdict.next_tokens[0, 0]
    if call.features is not None:
      own = call.features[before - call.start :][:accepted]
      self.features[before : before + accepted] = own
      self.features[length - 1] = 0  # the target's own token has none
    self.history.append((length - known, len(call.tokens)))
    self.cursor = Cursor(cursor.last, cursor.length, cursor.live, np.int32(cursor.round[0]))
    self.call = self.judged = self.distribution = None

  def park(self) -> None:
    """Drops the cache, and with it a judgement that waits for a distribution."""
    self.slot = None
    self.unread.clear()
    if self.judged is not None:
      self.judged, self.has_lost = None, True

  def replay(self, widths: Sequence[int], *, in_chunks: bool) -> None:
    """Queues the passes that rebuild the cache from that of the condition, then those of a waiting call."""
    length = int(self.cursor.length[0]) - 1
    spans = fewest_spans(length, widths) if in_chunks else spans_of_history(self.history, self.profile.window, widths)
    self.unread = collections.deque(spans)
    if self.call is not None:
      self.unread.extend(self.call.spans[:-1])

  def forced_row(self) -> Row:
    """The row of the oldest pass that the cache lacks."""
    span = self.unread[0]
    at = slice(span.start, span.start + span.size)
    features = None if self.features is None else self.features[at]
    return Row(self.slot, self.settings, self.cursor, span, self.tokens[at], features)

  def verified_row(self, call: Call) -> Row:
    """The row of a call that is verified."""
    span = call.spans[-1]
    at = slice(span.start - call.start, None)
    features = None if call.features is None else call.features[at]
    return Row(self.slot, self.settings, call.cursor, span, call.tokens[at], features, call.draft)


def open_stream(
  opening: Opening,
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
    condition: that of the opening, as the target reads it.
    prefix_len: positions of the condition.
    is_guided: whether the target reads a guidance scale.
  Raises:
    MessageError: for sampling settings out of range or without effect, or a resume that is impossible with this profile.
    ValueError: for an invalid opening.
  """
  if len(opening.key) != KEY_BYTES:
    raise ValueError(f"Must have a key of {KEY_BYTES} bytes, we instead got {len(opening.key)}")
  for holds, field, limit in sampling_conditions(opening, guided=is_guided, nucleus=profile.warp.nucleus):
    require(holds, "range", f"{field} must be {limit}")
  agreement = Agreement(opening.max_len, tuple(opening.end_ids))
  sampling = Sampling(np.float32(opening.temperature), np.float32(opening.top_p))
  key = np.frombuffer(opening.key, ">u4").astype(np.uint32)
  row = RowSettings(key, np.int32(opening.max_len), np.int32(prefix_len), sampling, np.float32(opening.cfg_scale))
  cursor = Cursor(np.zeros(1, np.int32), np.ones(1, np.int32), np.zeros(1, bool), np.int32(0))
  features = np.zeros((opening.max_len, profile.feature_width), np.float32) if profile.feature_width else None
  tokens = np.zeros(opening.max_len, np.int32)
  settings = Settings(row, agreement.end_tokens)
  stream = Stream(opening, condition, profile, settings, agreement, cursor, tokens, features, tenant)
  if resume is not None:
    _set_history(stream, resume)
  return stream


def _set_history(stream: Stream, resume: Resume) -> None:
  """Sets a stream to the state after its calls. The opening counts as a call that gained token 0 alone."""
  profile, tokens, calls = stream.profile, resume.tokens, resume.next_seq
  has_calls = calls > 1
  require(
    not (profile.feature_width and has_calls), "kind", "a stream with interval features cannot be resumed from tokens alone"
  )
  most, ends = stream.agreement.max_len, set(stream.agreement.end_tokens)
  require(1 <= len(tokens) <= most, "range", f"{len(tokens)} tokens, 1 to {most} allowed")
  require(all(0 <= token < profile.vocab for token in tokens), "range", "a token outside of the vocabulary")
  require(not ends & set(tokens[:-1]), "order", "the row goes on after an end token")
  counts = (len(resume.gained), len(resume.fed))
  require(1 <= calls and counts == (calls, calls), "length", f"{counts[0]} gains and {counts[1]} sizes of {calls} calls")
  require(sum(resume.gained) == len(tokens), "range", f"{len(tokens)} tokens are not what the calls gained")
  require(resume.gained[0] == 1, "range", f"an opening that gained {resume.gained[0]}")
  history = list(zip(resume.gained[1:], resume.fed[1:]))
  for gained, fed in history:
    require(1 <= gained <= fed <= gained + profile.window, "range", f"a call of {fed} tokens that gained {gained}")
  require(calls - 1 <= resume.round <= most, "range", f"round {resume.round} before call {calls}")
  stream.history, stream.has_first = history, True
  stream.tokens[: len(tokens)] = tokens
  is_live = len(tokens) < most and tokens[-1] not in ends
  last, length = np.asarray(tokens[-1:], np.int32), np.full(1, len(tokens), np.int32)
  stream.cursor = Cursor(last, length, np.full(1, is_live), np.int32(resume.round))
