"""The engine of a verifying server: streams in, frames out, one thread, no sockets.

1. `Engine.open` and `Engine.submit` check a call and queue it. An invalid call is refused and changes nothing.
2. `Engine.step` gets a plan from the scheduler, reads a condition or runs one step, and returns the reply frames.
3. An idle stream is evicted from the cache; its next call rebuilds it. Later the stream is removed, and its edge must resume
   it.

A reply depends on the stream's own calls alone. Rows of other streams, slots, eviction and resuming change no bit of it, as
far as `jaxspec.serving.server.determinism_check` tests. An error on the device destroys the table, and the engine has
failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

from jax.sharding import Mesh

from jaxspec.core.mesh import DATA
from jaxspec.core.options import check_options, option
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
from jaxspec.serving.server.stream_state import Stream, UnfinishedCall, open_stream
from jaxspec.serving.server.stream_table import FINISH, StreamTable
from jaxspec.serving.wire.bitstream import MessageError, require
from jaxspec.serving.wire.cloud import Profile
from jaxspec.serving.wire.framing import REPLY, REQUEST, VOID, Frame
from jaxspec.serving.wire.handshake import Handshake, Resume

_SIZES = Sizes()
_KNOWN_PER_SLOT = 16  # streams that are known for each cache slot, evicted ones included
Results = list[tuple[bytes, bytes | Exception]]


class EngineFailed(RuntimeError):
  """The device failed in a step; the engine computes no more replies."""


@dataclasses.dataclass(frozen=True)
class EngineSettings:
  """Sizes and limits of an engine.

  Attributes:
    max_streams: cache slots N; sixteen times as many streams are known, evicted ones included.
    max_rows: rows M of a step.
    max_len: most tokens of a row.
    widths: ascending inputs W of a pass.
    numerics: ``exact`` refuses programs whose rows depend on each other; ``fast`` does not.
    matmul_precision: of products in all programs, see `jax.default_matmul_precision`; None: JAX's setting.
    max_wait_s: most seconds that a call waits for others to share its step.
    idle_s: seconds without a call after which a stream is evicted from the cache; infinite: never.
    forget_s: seconds without a call after which a stream is removed; infinite: never.
    digest: name of the network, `jaxspec.io.checkpoints.digest`; by default the digest of its weights.
    max_condition: most ids of a prompt, or bytes of a text; by default the positions of the engine's example.
    end_ids: default end tokens of a row.
    least_prompt: fewest slots of a prompt.
  Raises:
    OptionError: for seconds out of range.
  """

  max_streams: int = _SIZES.max_streams
  max_rows: int = _SIZES.max_rows
  max_len: int = _SIZES.max_len
  widths: Sequence[int] = _SIZES.widths
  numerics: str = "exact"
  matmul_precision: str | None = None
  max_wait_s: float = option(0.0, "Most seconds that a call waits for others.", ge=0)
  idle_s: float = option(60.0, "Seconds until a stream is evicted.", gt=0, infinite=True)
  forget_s: float = option(600.0, "Seconds until a stream is removed.", gt=0, infinite=True)
  digest: bytes | None = None
  max_condition: int | None = None
  end_ids: Sequence[int] = ()
  least_prompt: int = 1

  def __post_init__(self):
    check_options(self)

  def sizes(self, mesh: Mesh | None) -> Sizes:
    """The sizes of the compiled shapes on a mesh."""
    groups = 1 if mesh is None else mesh.shape[DATA]
    return Sizes(self.max_streams, self.max_rows, self.max_len, tuple(self.widths), groups, self.least_prompt)


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
    rows_of_step: verified and forced rows of the newest step; 0 if it ran no program of rows.
    wake_at: time of the next step if calls wait for others to share it; else None.

  Args:
    params: the target's parameters. Every stream has its own temperature, top-p and guidance instead of theirs.
    model: the target.
    profiles: served profiles, of one vocabulary.
    example: a condition of one row: a prompt of the largest served length, or the largest class label.
    settings: sizes and limits.
    read_condition: makes a condition of the request of an edge, `reader_like` by default. It raises a ValueError for a
      condition that the target cannot have.
    mesh: devices that share the table and every step (`jaxspec.core.mesh`), and have the parameters. The axis ``data``
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
    settings: EngineSettings = EngineSettings(),
    read_condition: ReadCondition | None = None,
    mesh: Mesh | None = None,
  ):
    sizes = settings.sizes(mesh)
    self.programs = programs = Programs(params, model, tuple(profiles), sizes, example, mesh)
    programs.check_memory()
    is_guided = programs.is_guided
    self.profiles: tuple[Profile, ...] = tuple(
      each.described(id, guided=is_guided, max_len=sizes.max_len) for id, each in enumerate(profiles)
    )
    self.max_condition = programs.max_condition if settings.max_condition is None else settings.max_condition
    self.end_ids = tuple(settings.end_ids)
    weights = params.model.model if is_guided else params.model  # every row has its own scale
    self.model = weights_digest(weights) if settings.digest is None else settings.digest
    self._settings = settings
    self._read = reader_like(example, self.vocab) if read_condition is None else read_condition
    with self.precision():  # the table too: the precision decides how caches are stored
      found, self.table = check_determinism(programs, settings.numerics), programs.table()
    self.numerics, self.replay_in_chunks = found.digest, found.replay_in_chunks
    self.wake_at: float | None = None
    self.rows_of_step = 0
    self._policy = Policy(sizes.max_rows, settings.max_wait_s, groups=sizes.groups)
    self._streams = StreamTable(sizes, _KNOWN_PER_SLOT * sizes.max_streams)
    self._void: dict[bytes, bytes] = {}  # replies to calls that assume other replies
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
  def max_known(self) -> int:
    """Most known streams, evicted ones included."""
    return self._streams.most

  def knows(self, stream: bytes) -> bool:
    """Whether there is a stream of this name."""
    return stream in self._streams

  def open(
    self, stream: bytes, handshake: Handshake, resume: Resume | None = None, *, tenant: str = "", now: float = 0.0
  ) -> None:
    """Queues a stream; a later step returns its first frame.

    Args:
      stream: its name.
      handshake: its request. The caller checks the digests of model and numerics.
      resume: its committed tokens, from this engine or another one.
      tenant: its owner; tenants take turns.
      now: seconds, on the clock of `step`; at least the time of the last step.
    Raises:
      StreamExists: if it is open.
      NoRoom: if there are `max_known` streams.
      MessageError: for a handshake or a resume out of range.
      EngineFailed: if the engine has failed.
    """
    self._check_failure()
    if stream in self._streams:
      raise StreamExists(f"Must have a new stream, we instead got {stream.hex()} again")
    require(0 <= handshake.profile < len(self.profiles), "profile", f"{handshake.profile}, there are {len(self.profiles)}")
    require(1 <= handshake.max_len <= self.max_len, "range", f"{handshake.max_len} tokens, 1 to {self.max_len} allowed")
    profile, programs = self.programs.profiles[handshake.profile], self.programs
    try:
      condition = programs.condition(self._read(handshake.condition))
      prefix_len = programs.model.prefix_len(condition)
      opened = open_stream(
        handshake, condition, resume, profile=profile, prefix_len=prefix_len, is_guided=programs.is_guided, tenant=tenant
      )
    except MessageError:
      raise
    except ValueError as error:
      raise MessageError("range", str(error)) from error
    self._streams.add(stream, opened)
    opened.used = opened.since = max(now, self._now)

  def submit(self, stream: bytes, part: int, frame: bytes | Frame, *, now: float = 0.0) -> None:
    """Queues one call; a later step returns its reply.

    Args:
      stream: its name.
      part: 0 for the frame of a round, 1 for the requested distribution.
      frame: of one row, `jaxspec.serving.wire.framing` or `jaxspec.serving.wire.ciar_message`.
      now: seconds, on the clock of `step`; at least the time of the last step.
    Raises:
      StreamLost: for an unknown stream, or a part 1 whose part 0 was lost by an eviction; the stream is closed then.
      MessageError: for an invalid or unexpected frame; nothing has changed then.
      EngineFailed: if the engine has failed.
    """
    self._check_failure()
    state = self._streams[stream]
    require(part in (0, 1), "kind", f"part {part} of a call")
    require(not state.is_waited_for, "order", "a call while another one is in flight")
    if part == 1 and state.unfinished is None and state.has_lost:
      self.close(stream)
      raise StreamLost(f"the first part of a call of stream {stream.hex()} was lost")
    require((state.unfinished is not None) == (part == 1), "order", f"part {part} does not come next")
    if state.unfinished is None and state.is_void(frame):
      codec = state.profile.codec
      self._void[stream] = codec.encode_reply(codec.assumption(frame)[0], 0, None, VOID)
    elif state.unfinished is None:
      state.accept(frame, self.programs.sizes.widths)
      state.has_lost = False
    else:
      call, verdict = state.unfinished
      position, round_ = int(verdict.num_accepted[0]), int(call.cursor.round)
      state.distribution = state.profile.codec.decode_distribution(frame, call.draft, position, round_)
    state.used = state.since = max(now, self._now)
    state.skipped = 0

  def close(self, stream: bytes) -> None:
    """Closes a stream; does nothing for an unknown one."""
    self._streams.close(stream)
    self._void.pop(stream, None)

  def evict(self, stream: bytes) -> None:
    """Evicts a stream from the cache; its next call rebuilds it.

    Raises:
      StreamLost: for an unknown stream.
      ValueError: if it has a call in flight.
    """
    self._streams.evict(stream)

  def cache_of(self, stream: bytes) -> tuple[Cache, int]:
    """A copy of the cache of a stream, and the number of its valid cache slots; for tests.

    Raises:
      StreamLost: for an unknown stream.
      ValueError: if it is evicted, or its cache lacks committed tokens.
    """
    state = self._streams[stream]
    if state.slot is None or state.pending:
      raise ValueError("Must have a stream with a complete cache, we instead got an evicted one or a cache that is rebuilt")
    size = int(state.settings.row.prefix_len) + int(state.cursor.length[0]) - 1
    return self.programs.row(self.table, state.slot), size

  def step(self, now: float) -> Results:
    """Runs the next step of the scheduler, if there is one.

    Args:
      now: seconds, on one clock that never goes back.
    Returns:
      Streams and their reply frames, or `NotFinite` for a stream that was closed.
    Raises:
      EngineFailed: if the device failed, now or before.
    """
    self._check_failure()
    self._now = max(now, self._now)
    self._streams.expire(self._now, self._settings.idle_s, self._settings.forget_s)
    found = plan(self._now, self._streams.queues(), self._policy)
    self.wake_at, self.rows_of_step = found if isinstance(found, float) else None, 0
    void: Results = list(self._void.items())
    self._void = {}
    if not isinstance(found, Plan):
      return void
    try:
      with self.precision():
        results = [] if found.prefill is None else self._prefill(found.prefill)
        if found.program is not None:
          profile, width = found.program
          run = self._finish if width == FINISH else self._run
          results += run(profile, width, found.verified, found.forced)
          self.rows_of_step = len(found.verified) + len(found.forced)
      for name, _ in results:
        if name in self._streams:
          self._streams[name].used = self._now
    except Exception as error:
      # A donated table is gone, and the writes of an interrupted step are unknown.
      self._failure = error
      raise EngineFailed("the device failed in a step") from error
    return void + results

  def precision(self) -> contextlib.AbstractContextManager:
    """The context in which programs run. It holds for one thread; programs are compiled in one thread and run in another."""
    return precision_context(self._settings.matmul_precision)

  def _check_failure(self) -> None:
    if self._failure is not None:
      raise EngineFailed("the engine has failed: its device failed before") from self._failure

  def _prefill(self, name: bytes) -> Results:
    """Reads the condition of a stream and gives it a slot; returns the first frame of a new stream."""
    state = self._streams[name]
    cache, first = self.programs.prefill(state.handshake.profile, state.settings, state.condition)
    self.table = self.programs.insert(self.table, cache, self._streams.assign_slot(name))
    if not state.has_first:
      state.start(first)
    state.replay(self.programs.sizes.widths, in_chunks=self.replay_in_chunks)
    state.skipped = 0
    if not state.is_opening:
      return []
    state.is_opening = False
    return [(name, state.profile.codec.encode_first(first))]

  def _run(self, profile: int, width: int, verified: Sequence[bytes], forced: Sequence[bytes]) -> Results:
    """One step of a profile and a width."""
    calls = [self._streams[name].need_call() for name in verified]
    rows = [self._streams[name].verified_row(call) for name, call in zip(verified, calls)]
    rows += [self._streams[name].forced_row() for name in forced]
    self.table, found = self.programs.step(self.table, profile, width, rows)
    self._streams.count((*verified, *forced))
    for name in forced:
      self._streams[name].pending.popleft()
      self._streams[name].skipped = 0
    results: Results = []
    for index, (name, call) in enumerate(zip(verified, calls)):
      if not found.finite[index]:
        results.append(self._not_finite(name))
        continue
      state, verdict, requests = self._streams[name], row_of(found.verdict, index), bool(found.requests[index])
      reply = self._reply(state, verdict, int(call.cursor.round), requests=requests)
      results.append((name, reply))
      if requests:
        state.call, state.unfinished = None, UnfinishedCall(call, verdict)
      else:
        state.commit(call, verdict, row_of(found.cursor, index), reply)
    return results

  def _finish(self, profile: int, width: int, verified: Sequence[bytes], forced: Sequence[bytes]) -> Results:
    """Ends rounds whose distribution has arrived."""
    streams = [self._streams[name] for name in verified]
    tested = [state.need_unfinished() for state in streams]
    rows = [state.verified_row(call) for state, (call, _) in zip(streams, tested)]
    verdicts, distributions = [verdict for _, verdict in tested], [state.distribution for state in streams]
    found, cursors = self.programs.finish(self.table, profile, rows, verdicts, distributions)
    self._streams.count(verified)
    results: Results = []
    for index, (name, state, (call, _)) in enumerate(zip(verified, streams, tested)):
      verdict = row_of(found, index)
      reply = self._reply(state, verdict, int(call.cursor.round), requests=False)
      results.append((name, reply))
      state.commit(call, verdict, row_of(cursors, index), reply)
    return results

  def _reply(self, state: Stream, verdict: Verdict, round_: int, *, requests: bool) -> bytes:
    token = None if requests or not int(verdict.num_next[0]) else int(verdict.next_tokens[0, 0])
    kind = REQUEST if requests else REPLY
    return state.profile.codec.encode_reply(round_, int(verdict.num_accepted[0]), token, kind)

  def _not_finite(self, name: bytes) -> tuple[bytes, Exception]:
    self.close(name)
    return name, NotFinite(f"the target's logits of stream {name.hex()} are not finite")
