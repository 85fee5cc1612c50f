"""What a server holds of a stream on the host: all that its cache can be made from, in plain arrays."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxspec.core.types import Cursor, Draft, PyTree, Verdict
from jaxspec.sampling.logit_processing import Sampling
from jaxspec.serving.server.cache_table import RowSettings
from jaxspec.serving.server.chunking import Cut, cuts_in_chunks, cuts_of_call, cuts_of_history
from jaxspec.serving.server.sampling_limits import wanted_sampling
from jaxspec.serving.server.served_profile import StreamKind
from jaxspec.serving.server.step_arrays import Row, Settings
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.cloud import KEY_BYTES, Opening, Resume
from jaxspec.serving.wire.framing import Frame
from jaxspec.serving.wire.handshake import Agreement


class Call(NamedTuple):
  """A round that an edge asks for: its frame as `DecodedDraft`, and how it is cut into passes.

  Only the last pass is judged.
  """

  draft: Draft
  cursor: Cursor
  start: int
  tokens: np.ndarray
  features: np.ndarray | None
  cuts: list[Cut]


class Judgement(NamedTuple):
  """A call that was judged and waits for a distribution."""

  call: Call
  verdict: Verdict  # leaves [1]


@dataclasses.dataclass(eq=False)
class Stream:
  """One row.

  Attributes:
    opening: how it was opened.
    condition: what it is conditioned on, of a length that is compiled.
    kind: its profile, as it is compiled.
    settings: what a step needs of it.
    agreement: what its frames are read by.
    cursor: where it stands, leaves ``[1]``, round ``[]``.
    tokens: committed tokens that are known, ``[max_len]`` int32; the first ``cursor.length`` are valid.
    features: their interval features ``[max_len, D]``, zeros where a token has none; None where none are sent.
    has_first: whether token 0 is known.
    history: ``(gained, fed)`` of every answered call after the opening.
    slot: where its cache is; None while it is parked.
    unread: passes that its cache lacks before the next call can be judged; the newest of them belong to the call.
    call: a call that waits to be judged.
    judged: a call that waits for a distribution.
    distribution: the distribution that came.
    is_opening: whether its first frame was not sent yet.
    has_lost: whether a judgement was dropped when it was parked.
    tenant: whom it belongs to.
    used: when it was heard of last, seconds.
    since: since when it waits for what it waits for now.
    passed: steps that were run since.
  """

  opening: Opening
  condition: PyTree
  kind: StreamKind
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
  unread: collections.deque[Cut] = dataclasses.field(default_factory=collections.deque)
  call: Call | None = None
  judged: Judgement | None = None
  distribution: PyTree = None
  is_opening: bool = True
  has_lost: bool = False

  @property
  def is_waited_for(self) -> bool:
    """Whether the edge waits for an answer."""
    return self.is_opening or self.call is not None or self.distribution is not None

  def start(self, first: int) -> None:
    """Commits token 0, which the target drew when it read the condition."""
    self.tokens[0], self.has_first = first, True
    is_live = self.agreement.max_len > 1 and first not in self.agreement.end_tokens
    self.cursor = self.cursor._replace(last=np.full(1, first, np.int32), live=np.full(1, is_live))

  def accept(self, frame: bytes | Frame, widths: Sequence[int]) -> None:
    """Takes a call in: its tokens become known, and its passes come after those that the cache lacks already.

    Raises:
      MessageError: unless the frame is a valid one for this stream now; nothing has changed then.
    """
    decoded = self.kind.wire.decode_draft(frame, self.cursor, self.agreement)
    cuts = cuts_of_call(decoded.start, len(decoded.tokens), self.kind.window, widths)
    call = self.call = Call(*decoded, cuts)
    end = int(call.cursor.length[0])
    self.tokens[call.start : end] = call.tokens[: end - call.start]
    if call.features is not None:
      self.features[call.start : end] = call.features[: end - call.start]
    self.unread.extend(cuts[:-1])

  def commit(self, call: Call, verdict: Verdict, cursor: Cursor) -> None:
    """Ends a round: its tokens become known, the cursor moves.

    Args:
      verdict: leaves ``[1]``.
      cursor: after the round, leaves ``[1]``.
    """
    before, length = int(call.cursor.length[0]), int(cursor.length[0])
    accepted, known = int(verdict.num_accepted[0]), int(self.cursor.length[0])
    self.tokens[before : before + accepted] = call.draft.tokens[0, :accepted]
    self.tokens[length - 1] = verdict.next_token[0]
    if call.features is not None:
      own = call.features[before - call.start :][:accepted]
      self.features[before : before + accepted] = own
      self.features[length - 1] = 0  # the target's own token has none
    self.history.append((length - known, len(call.tokens)))
    self.cursor = Cursor(cursor.last, cursor.length, cursor.live, np.int32(cursor.round[0]))
    self.call = self.judged = self.distribution = None

  def park(self) -> None:
    """Gives the cache up; a judgement that waits for a distribution goes with it."""
    self.slot = None
    self.unread.clear()
    if self.judged is not None:
      self.judged, self.has_lost = None, True

  def replay(self, widths: Sequence[int], *, in_chunks: bool) -> None:
    """Queues the passes that bring a cache of the condition alone where calls brought it, then those of a waiting call."""
    length = int(self.cursor.length[0]) - 1
    cuts = cuts_in_chunks(length, widths) if in_chunks else cuts_of_history(self.history, self.kind.window, widths)
    self.unread = collections.deque(cuts)
    if self.call is not None:
      self.unread.extend(self.call.cuts[:-1])

  def forced_row(self) -> Row:
    """The oldest pass that the cache lacks."""
    cut = self.unread[0]
    at = slice(cut.start, cut.start + cut.size)
    features = None if self.features is None else self.features[at]
    return Row(self.slot, self.settings, self.cursor, cut, self.tokens[at], features)

  def asked_row(self, call: Call) -> Row:
    """The row of a call that is judged."""
    cut = call.cuts[-1]
    at = slice(cut.start - call.start, None)
    features = None if call.features is None else call.features[at]
    return Row(self.slot, self.settings, call.cursor, cut, call.tokens[at], features, call.draft)


def open_stream(
  opening: Opening,
  condition: PyTree,
  resume: Resume | None,
  *,
  kind: StreamKind,
  prefix_len: int,
  is_guided: bool,
  tenant: str,
) -> Stream:
  """A stream that is not placed yet.

  Args:
    condition: that of the opening, as the target reads it.
    prefix_len: positions of the condition.
    is_guided: whether the target reads a guidance scale.
  Raises:
    MessageError: for sampling out of range or that nothing would read, or a resume that no stream of this kind can have
      come to.
    ValueError: for an opening that is not valid.
  """
  if len(opening.key) != KEY_BYTES:
    raise ValueError(f"Must have a key of {KEY_BYTES} bytes, we instead got {len(opening.key)}")
  for holds, field, limit in wanted_sampling(opening, guided=is_guided, nucleus=kind.warp.nucleus):
    require(holds, "range", f"{field} must be {limit}")
  agreement = Agreement(opening.max_len, tuple(opening.end_ids))
  sampling = Sampling(np.float32(opening.temperature), np.float32(opening.top_p))
  key = np.frombuffer(opening.key, ">u4").astype(np.uint32)
  row = RowSettings(key, np.int32(opening.max_len), np.int32(prefix_len), sampling, np.float32(opening.cfg_scale))
  cursor = Cursor(np.zeros(1, np.int32), np.ones(1, np.int32), np.zeros(1, bool), np.int32(0))
  features = np.zeros((opening.max_len, kind.feature_width), np.float32) if kind.feature_width else None
  tokens = np.zeros(opening.max_len, np.int32)
  settings = Settings(row, agreement.end_tokens)
  stream = Stream(opening, condition, kind, settings, agreement, cursor, tokens, features, tenant)
  if resume is not None:
    _set_history(stream, resume)
  return stream


def _set_history(stream: Stream, resume: Resume) -> None:
  """Brings a stream where its calls brought it. Those are counted from the opening on; it gained token 0 alone."""
  kind, tokens, calls = stream.kind, resume.tokens, resume.next_seq
  has_calls = calls > 1
  require(
    not (kind.feature_width and has_calls), "kind", "a stream with interval features cannot be resumed from tokens alone"
  )
  most, ends = stream.agreement.max_len, set(stream.agreement.end_tokens)
  require(1 <= len(tokens) <= most, "range", f"{len(tokens)} tokens, 1 to {most} allowed")
  require(all(0 <= token < kind.vocab for token in tokens), "range", "a token outside of the vocabulary")
  require(not ends & set(tokens[:-1]), "order", "the row goes on after an end token")
  counts = (len(resume.gained), len(resume.fed))
  require(1 <= calls and counts == (calls, calls), "length", f"{counts[0]} gains and {counts[1]} sizes of {calls} calls")
  require(sum(resume.gained) == len(tokens), "range", f"{len(tokens)} tokens are not what the calls gained")
  require(resume.gained[0] == 1, "range", f"an opening that gained {resume.gained[0]}")
  history = list(zip(resume.gained[1:], resume.fed[1:]))
  for gained, fed in history:
    require(1 <= gained <= fed <= gained + kind.window, "range", f"a call of {fed} tokens that gained {gained}")
  require(calls - 1 <= resume.round <= most, "range", f"round {resume.round} before call {calls}")
  stream.history, stream.has_first = history, True
  stream.tokens[: len(tokens)] = tokens
  is_live = len(tokens) < most and tokens[-1] not in ends
  last, length = np.asarray(tokens[-1:], np.int32), np.full(1, len(tokens), np.int32)
  stream.cursor = Cursor(last, length, np.full(1, is_live), np.int32(resume.round))
