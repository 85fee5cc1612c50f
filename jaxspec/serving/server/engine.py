"""The engine of a verifying server: streams in, frames out, one thread, no sockets.

1. `Engine.open` and `Engine.submit` read what arrives and queue it. What is not valid is refused and changes nothing.
2. `Engine.step` asks the scheduler what is next, reads a condition or runs one step, and returns the frames of every stream
   that was answered.
3. A stream that was not heard of for a while loses its slot (it is parked) and comes back at its next call. Later it is
   forgotten; its edge then opens it again.

A reply depends on the stream's own calls alone: rows of other streams, slots, parking and resuming change no bit of it, as
far as the probe shows (`jaxspec.serving.server.determinism_check`). An error while the device runs leaves no table behind:
the engine is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from jax.sharding import Mesh

from jaxspec.core.mesh import DATA
from jaxspec.core.precision import precision_context
from jaxspec.core.types import Cache, ModelFns, PyTree, Verdict
from jaxspec.sampling.logit_processing import ModelParams
from jaxspec.serving.server.determinism_check import probe
from jaxspec.serving.server.digests import weights_digest
from jaxspec.serving.server.engine_interface import NotFinite, StreamExists, StreamLost
from jaxspec.serving.server.scheduler import Plan, Policy, plan
from jaxspec.serving.server.served_profile import StreamKind
from jaxspec.serving.server.server_programs import Programs
from jaxspec.serving.server.step_arrays import Sizes, row_of
from jaxspec.serving.server.stream_condition import ReadCondition, reader_like
from jaxspec.serving.server.stream_state import Judgement, Stream, open_stream
from jaxspec.serving.server.stream_table import FINISH, HeldStreams
from jaxspec.serving.wire.bitstream import MessageError, require
from jaxspec.serving.wire.cloud import Opening, Profile, Resume
from jaxspec.serving.wire.framing import Frame

_SIZES = Sizes()
Answers = list[tuple[bytes, bytes | Exception]]


class EngineFailed(RuntimeError):
  """The device failed in a step; the engine answers nothing any more."""


class Engine:
  """Verifies for many streams; a `jaxspec.serving.server.engine_interface.Engine`.

  Attributes:
    profiles: what edges are told about each kind of stream; its id is its place.
    programs: the compiled programs and their sizes.
    model: the digest of the network.
    table: what the device holds of all streams.
    numerics: digest of the probe; engines of equal digests answer with equal bytes.
    replay_in_chunks: whether replays are cut anew; else as the calls were.
    max_condition: most ids of a prompt, or bytes of a text.
    end_ids: tokens that end a row where an edge has no others in mind.
    rows_of_step: rows that the program of the newest step computed, asked and forced ones; 0 where none ran.
    wake_at: when the next step has something to do, if the last one found that calls wait for others; else None.

  Args:
    params: the target's parameters. Every stream brings temperature, top-p and guidance of its own instead of theirs.
    model: the target.
    kinds: kinds of streams, of one vocabulary.
    example: a condition of one row: a prompt of the largest length that is served, or the largest class label.
    read_condition: makes the condition of what an edge sends; by default that of `reader_like`. It raises a ValueError for
      what the target cannot have.
    max_streams: slots N; sixteen times as many streams are held, parked ones included.
    max_rows: rows M of a step.
    max_len: most tokens of a row.
    widths: ascending inputs W of a pass.
    numerics: ``exact`` refuses programs whose rows depend on each other; ``fast`` does not.
    matmul_precision: of products in all programs, see `jax.default_matmul_precision`; None: JAX's setting.
    max_wait_s: how long a call may wait for others to share its step.
    idle_s: after so many seconds a stream loses its slot.
    forget_s: after so many seconds it is forgotten.
    digest: the name of the network, `jaxspec.io.checkpoints.digest`; by default that of the weights alone.
    max_condition: as above, where conditions are read in a way of their own; the positions of the example by default.
    end_ids: as above.
    mesh: devices that share the table and every step (`jaxspec.core.mesh`), which have the parameters. The axis ``data``
      divides ``max_streams`` and ``max_rows``.
  Raises:
    ValueError: for sizes that do not go together, or programs that the probe refuses.
  """

  def __init__(
    self,
    params: ModelParams,
    model: ModelFns,
    kinds: Sequence[StreamKind],
    *,
    example: PyTree,
    read_condition: ReadCondition | None = None,
    max_streams: int = _SIZES.max_streams,
    max_rows: int = _SIZES.max_rows,
    max_len: int = _SIZES.max_len,
    widths: Sequence[int] = _SIZES.widths,
    numerics: str = "exact",
    matmul_precision: str | None = None,
    max_wait_s: float = 0.0,
    idle_s: float = 60.0,
    forget_s: float = 600.0,
    digest: bytes | None = None,
    max_condition: int | None = None,
    end_ids: Sequence[int] = (),
    mesh: Mesh | None = None,
  ):
    groups = 1 if mesh is None else mesh.shape[DATA]
    sizes = Sizes(max_streams, max_rows, max_len, tuple(widths), groups)
    self.programs = Programs(params, model, tuple(kinds), sizes, example, mesh)
    self.programs.check_memory()
    told = dict(guided=self.programs.is_guided, max_len=max_len)
    self.profiles: tuple[Profile, ...] = tuple(kind.profile(id, **told) for id, kind in enumerate(kinds))
    self.max_condition = self.programs.max_condition if max_condition is None else max_condition
    self.end_ids = tuple(end_ids)
    weights = params.model.model if self.programs.is_guided else params.model  # every row brings its own scale
    self.model = weights_digest(weights) if digest is None else digest
    self._read = reader_like(example, self.vocab) if read_condition is None else read_condition
    self._matmul_precision = matmul_precision
    with self.precision():  # the table too: it says how the caches of rows are stored
      found, self.table = probe(self.programs, numerics), self.programs.table()
    self.numerics, self.replay_in_chunks = found.digest, found.replay_in_chunks
    self.wake_at: float | None = None
    self.rows_of_step = 0
    self._policy = Policy(max_rows, max_wait_s, groups=groups)
    self._idle_s, self._forget_s = idle_s, forget_s
    self._held = HeldStreams(sizes, 16 * max_streams)
    self._now = 0.0
    self._failure: BaseException | None = None

  @property
  def vocab(self) -> int:
    """Tokens V."""
    return self.programs.vocab

  @property
  def max_len(self) -> int:
    """Most tokens of a row."""
    return self.programs.sizes.max_len

  @property
  def max_held(self) -> int:
    """Most streams that are held, parked ones included."""
    return self._held.most

  def knows(self, stream: bytes) -> bool:
    """Whether a stream of this name is held."""
    return stream in self._held

  def open(
    self, stream: bytes, opening: Opening, resume: Resume | None = None, *, tenant: str = "", now: float = 0.0
  ) -> None:
    """Queues a stream; a later step answers with its first frame.

    Args:
      stream: its name.
      opening: how it is opened. Which model and numerics it needs is for its caller to check.
      resume: what was read of it before, by this engine or another one.
      tenant: whom it belongs to; tenants take turns.
      now: seconds, on the clock of `step`; the time of the last step where it is earlier.
    Raises:
      StreamExists: if it is open.
      NoRoom: if as many streams are held as may be.
      MessageError: for an opening or a resume out of range.
      EngineFailed: if the engine is over.
    """
    self._check()
    if stream in self._held:
      raise StreamExists(f"Must have a new stream, we instead got {stream.hex()} again")
    require(0 <= opening.profile < len(self.profiles), "profile", f"{opening.profile}, there are {len(self.profiles)}")
    require(1 <= opening.max_len <= self.max_len, "range", f"{opening.max_len} tokens, 1 to {self.max_len} allowed")
    try:
      condition = self.programs.condition(self._read(opening.condition))
      kwargs = dict(prefix_len=self.programs.model.prefix_len(condition), is_guided=self.programs.is_guided, tenant=tenant)
      opened = open_stream(opening, condition, resume, kind=self.programs.kinds[opening.profile], **kwargs)
    except ValueError as error:
      require(isinstance(error, MessageError), "range", str(error))
      raise
    self._held.add(stream, opened)
    opened.used = opened.since = max(now, self._now)

  def submit(self, stream: bytes, part: int, frame: bytes | Frame, *, now: float = 0.0) -> None:
    """Queues one call; a later step answers it.

    Args:
      stream: its name.
      part: 0 for the frame of a round, 1 for the distribution that its answer requested.
      frame: of one row, `jaxspec.serving.wire.framing` or `jaxspec.serving.wire.ciar_message`.
      now: seconds, on the clock of `step`; the time of the last step where it is earlier.
    Raises:
      StreamLost: if the stream is not held, or what part 1 belongs to was lost; it is not held any more then.
      MessageError: for a frame that is not valid, or not waited for; nothing has changed then.
      EngineFailed: if the engine is over.
    """
    self._check()
    held = self._held[stream]
    require(part in (0, 1), "kind", f"part {part} of a call")
    require(not held.is_waited_for, "order", "a call while another one is waited for")
    if part == 1 and held.judged is None and held.has_lost:
      self.close(stream)
      raise StreamLost(f"the judgement of stream {stream.hex()} was not kept")
    require((held.judged is not None) == (part == 1), "order", f"part {part} is not waited for")
    if part == 0:
      held.accept(frame, self.programs.sizes.widths)
      held.has_lost = False
    else:
      call, verdict = held.judged
      position, round_ = int(verdict.num_accepted[0]), int(call.cursor.round)
      held.distribution = held.kind.wire.decode_distribution(frame, call.draft, position, round_)
    held.used = held.since = max(now, self._now)
    held.passed = 0

  def close(self, stream: bytes) -> None:
    """Forgets a stream, also one that is not held."""
    self._held.close(stream)

  def park(self, stream: bytes) -> None:
    """Takes the slot of a stream; its next call brings it back.

    Raises:
      StreamLost: if it is not held.
      ValueError: if its edge waits for an answer.
    """
    self._held.park(stream)

  def cache_of(self, stream: bytes) -> tuple[Cache, int]:
    """A copy of the cache of a stream, and how many cache slots of it were read; to compare and to debug.

    Raises:
      StreamLost: if it is not held.
      ValueError: if it is parked, or lacks tokens that were committed.
    """
    held = self._held[stream]
    if held.slot is None or held.unread:
      raise ValueError("Must have a stream whose cache is whole, we instead got one that is parked or comes back")
    size = int(held.settings.row.prefix_len) + int(held.cursor.length[0]) - 1
    return self.programs.row(self.table, held.slot), size

  def step(self, now: float) -> Answers:
    """Runs what is next, if anything is.

    Args:
      now: seconds, on one clock that never goes back.
    Returns:
      Streams that were answered: their frame, or `NotFinite` for a stream that was forgotten.
    Raises:
      EngineFailed: if the device failed, now or before.
    """
    self._check()
    self._now = max(now, self._now)
    self._held.expire(self._now, self._idle_s, self._forget_s)
    found = plan(self._now, self._held.queues(), self._policy)
    self.wake_at, self.rows_of_step = found if isinstance(found, float) else None, 0
    if not isinstance(found, Plan):
      return []
    try:
      with self.precision():
        answers = [] if found.prefill is None else self._place(found.prefill)
        if found.program is not None:
          number, width = found.program
          run = self._finish if width == FINISH else self._run
          answers += run(number, width, found.asked, found.forced)
          self.rows_of_step = len(found.asked) + len(found.forced)
      for name, _ in answers:
        if name in self._held:
          self._held[name].used = self._now
    except Exception as error:
      # A donated table is gone, and nobody knows what a half-run step has written.
      self._failure = error
      raise EngineFailed("the device failed in a step") from error
    return answers

  def precision(self) -> contextlib.AbstractContextManager:
    """The context in which programs run. It holds for one thread: they are compiled in one and run in another."""
    return precision_context(self._matmul_precision)

  def _check(self) -> None:
    if self._failure is not None:
      raise EngineFailed("the engine is over: its device failed before") from self._failure

  def _place(self, name: bytes) -> Answers:
    """Reads the condition of a stream and gives it a slot; answers if it was opened just now."""
    held = self._held[name]
    cache, first = self.programs.prefill(held.opening.profile, held.settings, held.condition)
    self.table = self.programs.insert(self.table, cache, self._held.place(name))
    if not held.has_first:
      held.start(first)
    held.replay(self.programs.sizes.widths, in_chunks=self.replay_in_chunks)
    held.passed = 0
    if not held.is_opening:
      return []
    held.is_opening = False
    return [(name, held.kind.wire.encode_first(first))]

  def _run(self, number: int, width: int, asked: Sequence[bytes], forced: Sequence[bytes]) -> Answers:
    """One step of a kind and a width."""
    rows = [self._held[name].asked_row(self._held[name].call) for name in asked]
    rows += [self._held[name].forced_row() for name in forced]
    self.table, judged = self.programs.step(self.table, number, width, rows)
    self._held.count((*asked, *forced))
    for name in forced:
      self._held[name].unread.popleft()
      self._held[name].passed = 0
    answers: Answers = []
    for index, name in enumerate(asked):
      if not judged.finite[index]:
        answers.append(self._not_finite(name))
        continue
      held, verdict = self._held[name], row_of(judged.verdict, index)
      call, asks = held.call, bool(judged.asks[index])
      answers.append((name, self._reply(held, verdict, asks, int(call.cursor.round))))
      if asks:
        held.call, held.judged = None, Judgement(call, verdict)
      else:
        held.commit(call, verdict, row_of(judged.cursor, index))
    return answers

  def _finish(self, number: int, width: int, asked: Sequence[bytes], forced: Sequence[bytes]) -> Answers:
    """Ends rounds whose distribution came."""
    streams = [self._held[name] for name in asked]
    calls = [held.judged.call for held in streams]
    rows = [held.asked_row(call) for held, call in zip(streams, calls)]
    verdicts, distributions = [held.judged.verdict for held in streams], [held.distribution for held in streams]
    found, cursors = self.programs.finish(self.table, number, rows, verdicts, distributions)
    self._held.count(asked)
    answers: Answers = []
    for index, (name, held, call) in enumerate(zip(asked, streams, calls)):
      verdict = row_of(found, index)
      answers.append((name, self._reply(held, verdict, False, int(call.cursor.round))))
      held.commit(call, verdict, row_of(cursors, index))
    return answers

  def _reply(self, held: Stream, verdict: Verdict, asks: bool, round_: int) -> bytes:
    token = None if asks else int(verdict.next_token[0])
    return held.kind.wire.encode_reply(round_, int(verdict.num_accepted[0]), token)

  def _not_finite(self, name: bytes) -> tuple[bytes, Exception]:
    self.close(name)
    return name, NotFinite(f"the target's logits of stream {name.hex()} are no numbers")
