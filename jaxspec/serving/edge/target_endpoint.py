"""The target side of a decode as an object that answers messages: the cloud.

`TargetStream` is the engine: the rows of one stream as arrays, the compiled steps, the target side's own cursor. It knows no
bytes. `TargetEndpoint` is the envelope around it: it reads a message, lets its wire decode the frames, and answers. Neither
knows anything about the draft side but what messages say.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.codecs.sparse_distribution import SparseDistribution
from jaxspec.core import verdicts
from jaxspec.core.loop import end_array, start_target, verify_round
from jaxspec.core.types import Cursor, Draft, Key, PyTree, Verdict, Verifier
from jaxspec.serving.wire.arrays import on_host
from jaxspec.serving.wire.bitstream import require
from jaxspec.serving.wire.envelope import (
  OVERHEAD_BYTES,
  Frames,
  Kind,
  max_frames_bytes,
  read_envelope,
  read_frames,
  stream_of,
  write_envelope,
  write_frames,
)
from jaxspec.serving.wire.handshake import Agreement, ConditionSpec, read_opening
from jaxspec.serving.wire.round_codec import Wire, rows_to_verify
from jaxspec.serving.wire.two_phase import Tested, finish_round, judge_round

_start_target = jax.jit(start_target, static_argnames=("verifier", "max_len", "window"))
_verify_round = jax.jit(verify_round, static_argnames=("verifier",), donate_argnames=("target",))
_judge_round = jax.jit(judge_round, static_argnames=("verifier",), donate_argnames=("target",))
_advance = jax.jit(verdicts.advance)
_finish_round = jax.jit(finish_round, donate_argnames=("target",))


class TargetStream:
  """The rows of one stream on the target side, as arrays.

  Attributes:
    agreement: what both ends agreed on.
    cursor: where the target side stands, on the host.
    prefill: the verdict that brings token 0, on the host.
  """

  def __init__(self, params: PyTree, keys: Key, condition: PyTree, *, verifier: Verifier, window: int, agreement: Agreement):
    """Runs the prefill.

    Args:
      params: the target's parameters.
      keys: ``[B]`` row keys; consumed.
      condition: the family's condition with ``B`` rows.
      window: most drafts that the verifier reads in one round.
    """
    self.agreement = agreement
    self._params, self._verifier = params, verifier
    kwargs = dict(verifier=verifier, window=window, max_len=agreement.max_len, end_token=end_array(agreement.end_tokens))
    self._side, prefill = _start_target(params, jax.random.clone(keys), condition, **kwargs)
    self.prefill, self.cursor = on_host(prefill._replace(feedback=())), on_host(self._side.cursor)
    self._judged: tuple[Draft, Tested] | None = None  # on the host; of a round that waits for distributions

  @property
  def judged(self) -> tuple[Draft, Tested] | None:
    """The draft and the verdict so far of a round that waits for distributions, on the host."""
    return self._judged

  def verify(self, draft: Draft, cursor: Cursor, *, may_request: bool) -> tuple[Verdict, np.ndarray]:
    """Judges a draft.

    Args:
      draft: leaves ``[B, K, ...]``.
      cursor: the stream's own, or what the wire made of it.
      may_request: static; whether the verdict may wait for distributions.
    Returns:
      The verdict, and ``[B]`` bool, rows whose last token waits for the distribution of their rejected draft (`finish`). The
      cursor moves when nothing is waited for. All on the host.
    """
    side = self._side.replace(cursor=jax.tree.map(jnp.asarray, cursor))
    if not may_request or draft.tokens.shape[1] == 0:
      self._side, verdict = _verify_round(self._params, side, draft, verifier=self._verifier)
      self.cursor = on_host(self._side.cursor)
      return on_host(verdict._replace(feedback=())), np.zeros(len(cursor.live), bool)
    side, tested = _judge_round(self._params, side, draft, verifier=self._verifier)
    tested = tested._replace(verdict=on_host(tested.verdict), asks=np.asarray(tested.asks))
    if tested.asks.any():
      self._side, self.cursor, self._judged = side, cursor, (draft, tested)
    else:
      self._side = side.replace(cursor=_advance(side.cursor, draft, tested.verdict, side.max_len))
      self.cursor = on_host(self._side.cursor)
    return tested.verdict, tested.asks

  def finish(self, distribution: SparseDistribution) -> Verdict:
    """Ends a round that waited for ``distribution [B]``; returns its verdict, on the host."""
    draft, tested = self._judged
    self._side, verdict = _finish_round(self._side, draft, tested, distribution)
    self.cursor, self._judged = on_host(self._side.cursor), None
    return on_host(verdict)


class TargetEndpoint:
  """Answers the messages of one draft side, one stream after the other.

  A message that is not valid, or not the one that is waited for, changes nothing: the stream goes on with the right one.

  Args:
    params: the target's parameters, `ModelParams`.
    verifier: the judge; of the kind that the wire's drafts need.
    wire: what rounds look like; the draft side's.
    condition: what a stream may be conditioned on.
    window: most drafts that the verifier reads in one round, which its caches have room for; the wire's by default.
    max_rows: most rows of a stream.
    max_len: most tokens of a row. A new number of rows or tokens compiles new programs.
  """

  def __init__(
    self,
    params: PyTree,
    *,
    verifier: Verifier,
    wire: Wire,
    condition: ConditionSpec,
    window: int | None = None,
    max_rows: int = 256,
    max_len: int = 4096,
  ):
    self._params, self._verifier, self._wire, self._condition = params, verifier, wire, condition
    self._window = wire.limits.max_drafts if window is None else window
    self._max_rows, self._max_len = max_rows, max_len
    self._answers: dict[Kind, Callable[[int, bytes], bytes]] = {
      Kind.OPEN: self._open,
      Kind.DRAFT: self._draft,
      Kind.DISTRIBUTION: self._distribution,
      Kind.CLOSE: self._close,
    }
    self.reset()

  def reset(self) -> None:
    """Forgets the stream, whatever its state, so that another one can be opened."""
    self._number: int | None = None
    self._stream: TargetStream | None = None

  @property
  def is_open(self) -> bool:
    """Whether a stream is open."""
    return self._stream is not None

  def handle(self, message: bytes) -> bytes:
    """Answers one message.

    Raises:
      MessageError: if it is anything but a valid message that the stream waits for; nothing has changed then.
    """
    kind, number, body = read_envelope(message, self._max_bytes())
    require(kind in self._answers, "kind", f"{kind.name} is no message of a draft side")
    return self._answers[kind](number, body)

  def _max_bytes(self) -> int:
    """No valid message is longer, whatever is waited for."""
    opening = OVERHEAD_BYTES + self._condition.max_opening_bytes(self._max_rows)
    if self._stream is None:
      return opening
    agreement = self._stream.agreement
    return max(opening, max_frames_bytes(agreement.num_rows, self._wire.max_frame_bytes(agreement)))

  def _open(self, number: int, body: bytes) -> bytes:
    require(self._stream is None, "order", "a stream is open")
    require(number == stream_of(body), "order", "the stream number is not that of this opening")
    limits = dict(max_rows=self._max_rows, max_len=self._max_len)
    opening = read_opening(body, self._wire.profile, self._condition, **limits)
    kwargs = dict(verifier=self._verifier, window=self._window, agreement=opening.agreement)
    stream = TargetStream(self._params, opening.keys, opening.condition, **kwargs)
    frames = self._wire.encode_first(stream.prefill)
    self._number, self._stream = number, stream
    return write_envelope(Kind.OPENED, number, write_frames(frames))

  def _draft(self, number: int, body: bytes) -> bytes:
    stream = self._current(number)
    require(stream.judged is None, "order", "drafts while distributions are waited for")
    frames = read_frames(body, stream.agreement.num_rows)
    draft, cursor = self._wire.decode_draft(frames, stream.cursor, stream.agreement)
    verdict, requests = stream.verify(draft, cursor, may_request=self._wire.may_request)
    return self._reply(self._wire.encode_reply(verdict, rows_to_verify(draft, cursor), requests, int(cursor.round)))

  def _distribution(self, number: int, body: bytes) -> bytes:
    stream = self._current(number)
    require(stream.judged is not None, "order", "distributions that nobody asked for")
    draft, tested = stream.judged
    frames, round_ = read_frames(body, stream.agreement.num_rows), int(stream.cursor.round)
    distribution = self._wire.decode_distribution(frames, draft, tested.verdict, tested.asks, round_)
    verdict = stream.finish(distribution)
    return self._reply(self._wire.encode_reply(verdict, tested.asks, np.zeros_like(tested.asks), round_))

  def _close(self, number: int, body: bytes) -> bytes:
    require(not body, "length", "a closing with a body")
    if number == self._number:  # closing any other stream is done already
      self.reset()
    return write_envelope(Kind.CLOSED, number)

  def _current(self, number: int) -> TargetStream:
    require(self._stream is not None, "order", "no stream is open")
    require(number == self._number, "order", "a message of another stream")
    return self._stream

  def _reply(self, frames: Frames) -> bytes:
    return write_envelope(Kind.REPLY, self._number, write_frames(frames))
