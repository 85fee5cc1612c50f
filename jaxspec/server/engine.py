"""The engine of a verifying server: streams in, frames out, one thread, no sockets.

1. `Engine.open` and `Engine.submit` read what arrives and queue it. What is not valid is refused and changes nothing.
2. `Engine.step` asks the scheduler what is next, reads a condition or runs one step, and returns the frames of every stream
   that was answered.
3. A stream that was not heard of for a while loses its slot (it is parked) and comes back at its next call. Later it is
   forgotten; its edge then opens it again.

A reply depends on the stream's own calls alone: rows of other streams, slots, parking and resuming change no bit of it, as
far as the probe shows (`jaxspec.server.probe`). An error while the device runs leaves no table behind: the engine is over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxspec.link.bitstream import require
from jaxspec.link.cloud import OpenCall, Resume, UnknownStream
from jaxspec.models.sampling import ModelParams
from jaxspec.server.probe import probe
from jaxspec.server.profiles import Profile
from jaxspec.server.programs import Programs, Sizes, row_of
from jaxspec.server.scheduler import Plan, Policy, Queues, Waiting, plan
from jaxspec.server.streams import Judgement, Stream, open_stream
from jaxspec.types import Cache, ModelFns, Params, PyTree, Verdict

Answers = list[tuple[bytes, bytes | Exception]]

_FINISH = 0  # the "width" of the program that ends rounds with a distribution


class EngineFailed(RuntimeError):
  """The device failed in a step; the engine answers nothing any more."""


class NoRoom(RuntimeError):
  """The engine holds as many streams as it may."""


class StreamExists(ValueError):
  """A stream of this name is open."""


class NotFinite(ArithmeticError):
  """The target's logits of a stream are no numbers; the stream was forgotten."""


class Engine:
  """Verifies for many streams.

  Attributes:
    profiles: what is compiled, by profile number.
    programs: the compiled programs and their sizes.
    model: SHA-256 of family, config and weights.
    numerics: digest of the probe; engines of equal digests answer with equal bytes.
    replay_in_chunks: whether replays are cut anew; else as the calls were.
    wake_at: when the next step has something to do, if the last one found that calls wait for others; else None.

  Args:
    params: the target's parameters. Every stream brings temperature, top-p and guidance of its own instead of theirs.
    model: the target.
    profiles: kinds of streams, of one vocabulary.
    example: a condition of one row, of the largest length that is served.
    max_streams: slots N; sixteen times as many streams are held, parked ones included.
    max_rows: rows M of a step.
    max_len: most tokens of a row.
    widths: ascending inputs W of a pass.
    numerics: ``exact`` refuses programs whose rows depend on each other; ``fast`` does not.
    max_wait_s: how long a call may wait for others to share its step.
    idle_s: after so many seconds a stream loses its slot.
    forget_s: after so many seconds it is forgotten.
    family: name of the model family, for ``model``.
    config: its config, for ``model``.
  Raises:
    ValueError: for sizes that do not go together, or programs that the probe refuses.
  """

  def __init__(
    self,
    params: ModelParams,
    model: ModelFns,
    profiles: Sequence[Profile],
    *,
    example: PyTree,
    max_streams: int = 256,
    max_rows: int = 32,
    max_len: int = 1024,
    widths: Sequence[int] = (8, 32),
    numerics: str = "exact",
    max_wait_s: float = 0.0,
    idle_s: float = 60.0,
    forget_s: float = 600.0,
    family: str = "",
    config: Any = None,
  ):
    sizes = Sizes(max_streams, max_rows, max_len, tuple(widths))
    self.programs = Programs(params, model, tuple(profiles), sizes, example)
    self.profiles = self.programs.profiles
    self.model = model_digest(family, config, params.model)
    found = probe(self.programs, numerics)
    self.numerics, self.replay_in_chunks = found.digest, found.replay_in_chunks
    self.wake_at: float | None = None
    self._policy = Policy(max_rows, max_wait_s)
    self._idle_s, self._forget_s, self._most = idle_s, forget_s, 16 * max_streams
    self._table = self.programs.table()
    self._streams: dict[bytes, Stream] = {}
    self._free = list(range(max_streams))[::-1]
    self._served: dict[str, int] = {}
    self._steps = 0
    self._last_prefill = -(1 << 30)
    self._now = 0.0
    self._failure: BaseException | None = None

  @property
  def num_streams(self) -> int:
    """Streams that are held, parked ones included."""
    return len(self._streams)

  @property
  def num_free_slots(self) -> int:
    """Slots that no stream owns."""
    return len(self._free)

  def knows(self, stream: bytes) -> bool:
    """Whether a stream of this name is held."""
    return stream in self._streams

  def is_parked(self, stream: bytes) -> bool:
    """Whether a stream is held without a slot.

    Raises:
      UnknownStream: if it is not held.
    """
    return self._stream(stream).slot is None

  def open(
    self, stream: bytes, opening: OpenCall, resume: Resume | None = None, *, tenant: str = "", now: float = 0.0
  ) -> None:
    """Queues a stream; a later step answers with its first frame.

    Args:
      stream: its name.
      opening: how it is opened.
      resume: what was read of it before, by this engine or another one.
      tenant: whom it belongs to; tenants take turns.
      now: seconds, on the clock of `step`; not before the last one.
    Raises:
      StreamExists: if it is open.
      NoRoom: if as many streams are held as may be.
      MessageError: for an opening or a resume out of range.
      EngineFailed: if the engine is over.
    """
    self._check()
    if stream in self._streams:
      raise StreamExists(f"Must have a new stream, we instead got {stream.hex()} again")
    require(0 <= opening.profile < len(self.profiles), "profile", f"{opening.profile}, there are {len(self.profiles)}")
    most = self.programs.sizes.max_len
    require(1 <= opening.max_len <= most, "range", f"{opening.max_len} tokens, 1 to {most} allowed")
    try:
      opening = opening._replace(condition=self.programs.condition(opening.condition))
      prefix_len = self.programs.model.prefix_len(opening.condition)
      profile = self.profiles[opening.profile]
      kwargs = dict(profile=profile, prefix_len=prefix_len, is_guided=self.programs.is_guided, tenant=tenant)
      opened = open_stream(opening, resume, **kwargs)
    except ValueError as error:
      require(hasattr(error, "reason"), "range", str(error))
      raise
    if len(self._streams) >= self._most:
      raise NoRoom(f"Must have fewer than {self._most} streams to open one, we instead got {len(self._streams)}")
    opened.used = opened.since = max(now, self._now)
    self._streams[stream] = opened

  def submit(self, stream: bytes, part: int, frame: bytes, *, now: float = 0.0) -> None:
    """Queues one call; a later step answers it.

    Args:
      stream: its name.
      part: 0 for the frame of a round, 1 for the distribution that its answer requested.
      frame: of one row, `jaxspec.link.message` or `jaxspec.link.gated_message`.
      now: seconds, on the clock of `step`; not before the last one.
    Raises:
      UnknownStream: if the stream is not held, or what part 1 belongs to was lost; it is not held any more then.
      MessageError: for a frame that is not valid, or not waited for; nothing has changed then.
      EngineFailed: if the engine is over.
    """
    self._check()
    held = self._stream(stream)
    require(part in (0, 1), "kind", f"part {part} of a call")
    require(not held.is_waited_for, "order", "a call while another one is waited for")
    if part == 1 and held.judged is None and held.has_lost:
      self.close(stream)
      raise UnknownStream(stream)
    require((held.judged is not None) == (part == 1), "order", f"part {part} is not waited for")
    if part == 0:
      held.accept(held.decode(frame), self.programs.sizes.widths)
      held.has_lost = False
    else:
      call, verdict = held.judged
      round_ = int(call.cursor.round)
      held.distribution = held.profile.wire.decode_distribution([frame], call.draft, verdict, np.ones(1, bool), round_)
    held.used = held.since = max(now, self._now)
    held.passed = 0

  def cancel(self, stream: bytes) -> bool:
    """Drops a call that waits, as if it had not come; returns whether there was one."""
    held = self._streams.get(stream)
    if held is None or (held.call is None and held.distribution is None):
      return False
    if held.call is not None:
      held.drop_call()
    held.distribution = None
    return True

  def close(self, stream: bytes) -> None:
    """Forgets a stream, also one that is not held."""
    held = self._streams.pop(stream, None)
    if held is not None and held.slot is not None:
      self._free.append(held.slot)

  def park(self, stream: bytes) -> None:
    """Takes the slot of a stream; its next call brings it back.

    Raises:
      UnknownStream: if it is not held.
      ValueError: if its edge waits for an answer.
    """
    held = self._stream(stream)
    if held.is_waited_for:
      raise ValueError(f"Must have a stream without a call in flight to park it, we instead got {stream.hex()}")
    if held.slot is not None:
      self._free.append(held.slot)
      held.park()

  def cache_of(self, stream: bytes) -> tuple[Cache, int]:
    """A copy of the cache of a stream, and how many cache slots of it were read; to compare and to debug.

    Raises:
      UnknownStream: if it is not held.
      ValueError: if it is parked, or lacks tokens that were committed.
    """
    held = self._stream(stream)
    if held.slot is None or held.unread:
      raise ValueError("Must have a stream whose cache is whole, we instead got one that is parked or comes back")
    size = int(held.settings.row.prefix_len) + int(held.cursor.length[0]) - 1
    return self.programs.row(self._table, held.slot), size

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
    self._expire()
    found = plan(self._now, self._queues(), self._policy)
    self.wake_at = found if isinstance(found, float) else None
    if not isinstance(found, Plan):
      return []
    try:
      answers = [] if found.prefill is None else self._place(found.prefill)
      if found.program is not None:
        number, width = found.program
        run = self._finish if width == _FINISH else self._run
        answers += run(number, width, found.asked, found.forced)
      for name, _ in answers:
        if name in self._streams:
          self._streams[name].used = self._now
    except Exception as error:
      # A donated table is gone, and nobody knows what a half-run step has written.
      self._failure = error
      raise EngineFailed("the device failed in a step") from error
    return answers

  def _check(self) -> None:
    if self._failure is not None:
      raise EngineFailed("the engine is over: its device failed before") from self._failure

  def _stream(self, stream: bytes) -> Stream:
    if stream not in self._streams:
      raise UnknownStream(stream)
    return self._streams[stream]

  def _expire(self) -> None:
    """Parks and forgets streams that were not heard of."""
    for name, held in list(self._streams.items()):
      idle = self._now - held.used
      if held.is_waited_for:
        continue
      if idle >= self._forget_s:
        self.close(name)
      elif idle >= self._idle_s:
        self.park(name)

  def _queues(self) -> Queues:
    asked, forced, opens = [], [], []
    widths = self.programs.sizes.widths
    for name, held in self._streams.items():
      number = held.opening.profile
      waiting = lambda width, held=held, name=name, number=number: Waiting(
        name, (number, width), held.since, held.tenant, held.passed
      )
      if held.slot is None:
        if held.is_waited_for:
          opens.append(waiting(0))
      elif held.unread:
        forced.append(waiting(held.unread[0].width))
      elif held.call is not None:
        asked.append(waiting(held.cut_of(held.call, widths).width))
      elif held.distribution is not None:
        asked.append(waiting(_FINISH))
    if not self._free and self._idlest() is None:
      opens = []
    return Queues(asked, forced, opens, self._served, self._steps - self._last_prefill)

  def _idlest(self) -> bytes | None:
    """The stream that was not heard of for longest among those without a call in flight."""
    idle = [
      (held.used, name)
      for name, held in self._streams.items()
      if held.slot is not None and not held.is_waited_for and held.judged is None
    ]
    return min(idle)[1] if idle else None

  def _place(self, name: bytes) -> Answers:
    """Reads the condition of a stream and gives it a slot; answers if it was opened just now."""
    if not self._free:
      self.park(self._idlest())
    held = self._streams[name]
    cache, first = self.programs.prefill(held.opening.profile, held.settings, held.opening.condition)
    held.slot = self._free.pop()
    self._table = self.programs.insert(self._table, cache, held.slot)
    self._last_prefill = self._steps
    if held.is_opening and not held.history:
      held.start(first)
    held.replay(self.programs.sizes.widths, in_chunks=self.replay_in_chunks)
    held.passed = 0
    if not held.is_opening:
      return []
    held.is_opening = False
    frames = held.profile.wire.encode_first(Verdict(np.zeros(1, np.int32), np.full(1, first, np.int32)))
    return [(name, frames[0])]

  def _run(self, number: int, width: int, asked: Sequence[bytes], forced: Sequence[bytes]) -> Answers:
    """One step of a profile and a width."""
    widths = self.programs.sizes.widths
    rows = [self._streams[name].asked_row(self._streams[name].call, widths) for name in asked]
    rows += [self._streams[name].forced_row() for name in forced]
    self._table, judged = self.programs.step(self._table, number, width, rows)
    self._count((*asked, *forced))
    for name in forced:
      self._streams[name].unread.popleft()
      self._streams[name].passed = 0
    answers: Answers = []
    for index, name in enumerate(asked):
      if not judged.finite[index]:
        answers.append(self._not_finite(name))
        continue
      held, verdict = self._streams[name], row_of(judged.verdict, index)
      call, asks = held.call, bool(judged.asks[index])
      answers.append((name, self._reply(held, verdict, asks, int(call.cursor.round))))
      if asks:
        held.call, held.judged = None, Judgement(call, verdict)
      else:
        held.commit(call, verdict, row_of(judged.cursor, index))
    return answers

  def _finish(self, number: int, width: int, asked: Sequence[bytes], forced: Sequence[bytes]) -> Answers:
    """Ends rounds whose distribution came."""
    streams = [self._streams[name] for name in asked]
    calls = [held.judged.call for held in streams]
    rows = [held.asked_row(call, self.programs.sizes.widths) for held, call in zip(streams, calls)]
    verdicts, distributions = [held.judged.verdict for held in streams], [held.distribution for held in streams]
    found, cursors = self.programs.finish(self._table, number, rows, verdicts, distributions)
    self._count(asked)
    answers: Answers = []
    for index, (name, held, call) in enumerate(zip(asked, streams, calls)):
      verdict = row_of(found, index)
      answers.append((name, self._reply(held, verdict, False, int(call.cursor.round))))
      held.commit(call, verdict, row_of(cursors, index))
    return answers

  def _reply(self, held: Stream, verdict: Verdict, asks: bool, round_: int) -> bytes:
    return held.profile.wire.encode_reply(verdict, np.ones(1, bool), np.full(1, asks), round_)[0]

  def _not_finite(self, name: bytes) -> tuple[bytes, Exception]:
    self.close(name)
    return name, NotFinite(f"the target's logits of stream {name.hex()} are no numbers")

  def _count(self, names: Sequence[bytes]) -> None:
    """Counts a step for everybody who waits."""
    self._steps += 1
    for name in names:
      self._served[self._streams[name].tenant] = self._steps
    taken = set(names)
    for name, held in self._streams.items():
      held.passed += name not in taken
    tenants = {held.tenant for held in self._streams.values()}
    self._served = {tenant: step for tenant, step in self._served.items() if tenant in tenants}


def model_digest(family: str, config: Any, params: Params) -> bytes:
  """SHA-256 of the name of a family, its config, and all weights with their paths, types and shapes."""
  digest = hashlib.sha256(f"{family}\n{config!r}\n".encode())
  for path, leaf in jax.tree_util.tree_leaves_with_path(params):
    array = np.asarray(leaf)
    digest.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}\n".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
  return digest.digest()
