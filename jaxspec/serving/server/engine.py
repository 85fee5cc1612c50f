"""The engine of a verifying server: streams in, frames out, one thread, no sockets.

1. `Engine.open` and `Engine.submit` check a call and queue it. An invalid call is refused and changes nothing.
2. `Engine.step` gets a plan from the scheduler, reads a condition or runs one step, and returns the reply frames.
3. An idle stream loses its slot (it is parked); its next call rebuilds its cache. Later it is evicted, and its edge must
   resume it.

A reply depends on the stream's own calls alone: rows of other streams, slots, parking and resuming change no bit of it, as
far as `jaxspec.serving.server.determinism_check` shows. An error on the device destroys the table, and the engine is over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from jax.sharding import Mesh

from jaxspec.core.mesh import DATA
from jaxspec.core.precision import precision_context
from jaxspec.core.types import Cache, ModelFns, PyTree, Verdict
from jaxspec.sampling.logit_processing import ModelParams
from jaxspec.serving.server.determinism_check import check_determinism
from jaxspec.serving.server.digests import weights_digest
from jaxspec.serving.server.engine_interface import NotFinite, StreamExists, StreamLost
from jaxspec.serving.server.scheduler import Plan, Policy, plan
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.server_programs import Programs
from jaxspec.serving.server.step_arrays import Sizes, row_of
from jaxspec.serving.server.stream_condition import ReadCondition, reader_like
from jaxspec.serving.server.stream_state import Judgement, Stream, open_stream
from jaxspec.serving.server.stream_table import FINISH, StreamTable
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
    profiles: descriptions of the served profiles; the id of a profile is its index.
    programs: the compiled programs and their sizes.
    model: the digest of the network.
    table: the caches of all streams on the device.
    numerics: digest of the determinism check; engines of equal digests reply with equal bytes.
    replay_in_chunks: whether a replay uses the fewest passes; otherwise it uses those of the calls.
    max_condition: most ids of a prompt, or bytes of a text.
    end_ids: default end tokens of a row.
    rows_of_step: verified and forced rows of the newest step; 0 where no program of rows ran.
    wake_at: time of the next step if calls wait for others to share it; else None.

  Args:
    params: the target's parameters. Every stream brings temperature, top-p and guidance of its own instead of theirs.
    model: the target.
    profiles: served profiles, of one vocabulary.
    example: a condition of one row: a prompt of the largest length that is served, or the largest class label.
    read_condition: makes a condition of the request of an edge, `reader_like` by default. It raises a ValueError for a
      condition that the target cannot have.
    max_streams: slots N; sixteen times as many streams are known, parked ones included.
    max_rows: rows M of a step.
    max_len: most tokens of a row.
    widths: ascending inputs W of a pass.
    numerics: ``exact`` refuses programs whose rows depend on each other; ``fast`` does not.
    matmul_precision: of products in all programs, see `jax.default_matmul_precision`; None: JAX's setting.
    max_wait_s: most seconds that a call waits for others to share its step.
    idle_s: seconds without a call after which a stream loses its slot.
    forget_s: seconds without a call after which it is evicted.
    digest: the name of the network, `jaxspec.io.checkpoints.digest`; by default that of the weights alone.
    max_condition: as above, for a `read_condition` of its own; the positions of the example by default.
    end_ids: as above.
    mesh: devices that share the table and every step (`jaxspec.core.mesh`), which have the parameters. The axis ``data``
      divides ``max_streams`` and ``max_rows``.
  Raises:
    ValueError: for inconsistent sizes, or programs that the determinism check refuses.
  """

  def __init__(
    self,
    params: ModelParams,
    model: ModelFns,
    profiles: Sequence[ServedProfile],
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
    self.programs = Programs(params, model, tuple(profiles), sizes, example, mesh)
    self.programs.check_memory()
    described = dict(guided=self.programs.is_guided, max_len=max_len)
    self.profiles: tuple[Profile, ...] = tuple(each.described(id, **described) for id, each in enumerate(profiles))
    self.max_condition = self.programs.max_condition if max_condition is None else max_condition
    self.end_ids = tuple(end_ids)
    weights = params.model.model if self.programs.is_guided else params.model  # every row brings its own scale
    self.model = weights_digest(weights) if digest is None else digest
    self._read = reader_like(example, self.vocab) if read_condition is None else read_condition
    self._matmul_precision = matmul_precision
    with self.precision():  # the table too: it decides how caches are stored
      found, self.table = check_determinism(self.programs, numerics), self.programs.table()
    self.numerics, self.replay_in_chunks = found.digest, found.replay_in_chunks
    self.wake_at: float | None = None
    self.rows_of_step = 0
    self._policy = Policy(max_rows, max_wait_s, groups=groups)
    self._idle_s, self._forget_s = idle_s, forget_s
    self._streams = StreamTable(sizes, 16 * max_streams)
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
    """Most streams that are known, parked ones included."""
    return self._streams.most

  def knows(self, stream: bytes) -> bool:
    """Whether there is a stream of this name."""
    return stream in self._streams

  def open(
    self, stream: bytes, opening: Opening, resume: Resume | None = None, *, tenant: str = "", now: float = 0.0
  ) -> None:
    """Queues a stream; a later step answers with its first frame.

    Args:
      stream: its name.
      opening: how it is opened. The caller checks the model and numerics that it needs.
      resume: its committed tokens, from this engine or another one.
      tenant: its owner; tenants take turns.
      now: seconds, on the clock of `step`; the time of the last step where it is earlier.
    Raises:
      StreamExists: if it is open.
      NoRoom: if there are `max_held` streams.
      MessageError: for an opening or a resume out of range.
      EngineFailed: if the engine is over.
    """
    self._check()
    if stream in self._streams:
      raise StreamExists(f"Must have a new stream, we instead got {stream.hex()} again")
    require(0 <= opening.profile < len(self.profiles), "profile", f"{opening.profile}, there are {len(self.profiles)}")
    require(1 <= opening.max_len <= self.max_len, "range", f"{opening.max_len} tokens, 1 to {self.max_len} allowed")
    try:
      condition = self.programs.condition(self._read(opening.condition))
      kwargs = dict(prefix_len=self.programs.model.prefix_len(condition), is_guided=self.programs.is_guided, tenant=tenant)
      opened = open_stream(opening, condition, resume, profile=self.programs.profiles[opening.profile], **kwargs)
    except ValueError as error:
      require(isinstance(error, MessageError), "range", str(error))
      raise
    self._streams.add(stream, opened)
    opened.used = opened.since = max(now, self._now)

  def submit(self, stream: bytes, part: int, frame: bytes | Frame, *, now: float = 0.0) -> None:
    """Queues one call; a later step answers it.

    Args:
      stream: its name.
      part: 0 for the frame of a round, 1 for the distribution that its answer requested.
      frame: of one row, `jaxspec.serving.wire.framing` or `jaxspec.serving.wire.ciar_message`.
      now: seconds, on the clock of `step`; the time of the last step where it is earlier.
    Raises:
      StreamLost: for an unknown stream, or a part 1 whose part 0 was lost with a slot; the stream is closed then.
      MessageError: for an invalid or unexpected frame; nothing has changed then.
      EngineFailed: if the engine is over.
    """
    self._check()
    state = self._streams[stream]
    require(part in (0, 1), "kind", f"part {part} of a call")
    require(not state.is_waited_for, "order", "a call while another one is waited for")
    if part == 1 and state.judged is None and state.has_lost:
      self.close(stream)
      raise StreamLost(f"the judgement of stream {stream.hex()} was not kept")
    require((state.judged is not None) == (part == 1), "order", f"part {part} is not waited for")
    if part == 0:
      state.accept(frame, self.programs.sizes.widths)
      state.has_lost = False
    else:
      call, verdict = state.judged
      position, round_ = int(verdict.num_accepted[0]), int(call.cursor.round)
      state.distribution = state.profile.wire.decode_distribution(frame, call.draft, position, round_)
    state.used = state.since = max(now, self._now)
    state.passed = 0

  def close(self, stream: bytes) -> None:
    """Closes a stream; does nothing for an unknown one."""
    self._streams.close(stream)

  def park(self, stream: bytes) -> None:
    """Takes the slot of a stream; its next call rebuilds the cache.

    Raises:
      StreamLost: for an unknown stream.
      ValueError: if a call of it waits.
    """
    self._streams.park(stream)

  def cache_of(self, stream: bytes) -> tuple[Cache, int]:
    """A copy of the cache of a stream, and the number of its valid cache slots; for tests.

    Raises:
      StreamLost: for an unknown stream.
      ValueError: if it is parked, or lacks committed tokens.
    """
    state = self._streams[stream]
    if state.slot is None or state.unread:
      raise ValueError("Must have a stream whose cache is whole, we instead got one that is parked or comes back")
    size = int(state.settings.row.prefix_len) + int(state.cursor.length[0]) - 1
    return self.programs.row(self.table, state.slot), size

  def step(self, now: float) -> Answers:
    """Runs the next step of the scheduler, if there is one.

    Args:
      now: seconds, on one clock that never goes back.
    Returns:
      Streams and their reply frames, or `NotFinite` for a stream that was closed.
    Raises:
      EngineFailed: if the device failed, now or before.
    """
    self._check()
    self._now = max(now, self._now)
    self._streams.expire(self._now, self._idle_s, self._forget_s)
    found = plan(self._now, self._streams.queues(), self._policy)
    self.wake_at, self.rows_of_step = found if isinstance(found, float) else None, 0
    if not isinstance(found, Plan):
      return []
    try:
      with self.precision():
        answers = [] if found.prefill is None else self._place(found.prefill)
        if found.program is not None:
          number, width = found.program
          run = self._finish if width == FINISH else self._run
          answers += run(number, width, found.verified, found.forced)
          self.rows_of_step = len(found.verified) + len(found.forced)
      for name, _ in answers:
        if name in self._streams:
          self._streams[name].used = self._now
    except Exception as error:
      # A donated table is gone, and the writes of a half-run step are unknown.
      self._failure = error
      raise EngineFailed("the device failed in a step") from error
    return answers

  def precision(self) -> contextlib.AbstractContextManager:
    """The context in which programs run. It holds for one thread; programs are compiled in one thread and run in another."""
    return precision_context(self._matmul_precision)

  def _check(self) -> None:
    if self._failure is not None:
      raise EngineFailed("the engine is over: its device failed before") from self._failure

  def _place(self, name: bytes) -> Answers:
    """Reads the condition of a stream and gives it a slot; returns its first frame if it was opened just now."""
    state = self._streams[name]
    cache, first = self.programs.prefill(state.opening.profile, state.settings, state.condition)
    self.table = self.programs.insert(self.table, cache, self._streams.place(name))
    if not state.has_first:
      state.start(first)
    state.replay(self.programs.sizes.widths, in_chunks=self.replay_in_chunks)
    state.passed = 0
    if not state.is_opening:
      return []
    state.is_opening = False
    return [(name, state.profile.wire.encode_first(first))]

  def _run(self, number: int, width: int, verified: Sequence[bytes], forced: Sequence[bytes]) -> Answers:
    """One step of a profile and a width."""
    rows = [self._streams[name].verified_row(self._streams[name].call) for name in verified]
    rows += [self._streams[name].forced_row() for name in forced]
    self.table, judged = self.programs.step(self.table, number, width, rows)
    self._streams.count((*verified, *forced))
    for name in forced:
      self._streams[name].unread.popleft()
      self._streams[name].passed = 0
    answers: Answers = []
    for index, name in enumerate(verified):
      if not judged.finite[index]:
        answers.append(self._not_finite(name))
        continue
      state, verdict = self._streams[name], row_of(judged.verdict, index)
      call, asks = state.call, bool(judged.asks[index])
      answers.append((name, self._reply(state, verdict, asks, int(call.cursor.round))))
      if asks:
        state.call, state.judged = None, Judgement(call, verdict)
      else:
        state.commit(call, verdict, row_of(judged.cursor, index))
    return answers

  def _finish(self, number: int, width: int, verified: Sequence[bytes], forced: Sequence[bytes]) -> Answers:
    """Ends rounds whose distribution has arrived."""
    streams = [self._streams[name] for name in verified]
    calls = [state.judged.call for state in streams]
    rows = [state.verified_row(call) for state, call in zip(streams, calls)]
    verdicts, distributions = [state.judged.verdict for state in streams], [state.distribution for state in streams]
    found, cursors = self.programs.finish(self.table, number, rows, verdicts, distributions)
    self._streams.count(verified)
    answers: Answers = []
    for index, (name, state, call) in enumerate(zip(verified, streams, calls)):
      verdict = row_of(found, index)
      answers.append((name, self._reply(state, verdict, False, int(call.cursor.round))))
      state.commit(call, verdict, row_of(cursors, index))
    return answers

  def _reply(self, state: Stream, verdict: Verdict, asks: bool, round_: int) -> bytes:
    token = None if asks else int(verdict.next_tokens[0, 0])
    return state.profile.wire.encode_reply(round_, int(verdict.num_accepted[0]), token)

  def _not_finite(self, name: bytes) -> tuple[bytes, Exception]:
    self.close(name)
    return name, NotFinite(f"the target's logits of stream {name.hex()} are no numbers")
