"""The streams of an engine: their cache slots, their queues, and the turns of their tenants."""

from __future__ import annotations

from collections.abc import Collection

from jaxspec.serving.server.engine_interface import NoRoom, StreamLost
from jaxspec.serving.server.scheduler import Program, Queues, Waiting
from jaxspec.serving.server.step_arrays import Sizes
from jaxspec.serving.server.stream_state import Stream

FINISH = 0  # the "width" of the program that finishes calls with a distribution


class StreamTable:
  """Streams by name.

  Attributes:
    by_name: all of them.

  Args:
    sizes: slots N, and the groups of devices that share them.
    most: most streams.
  """

  def __init__(self, sizes: Sizes, most: int):
    self.by_name: dict[bytes, Stream] = {}
    self.most, self._sizes = most, sizes
    self._free: list[list[int]] = [[] for _ in range(sizes.groups)]
    for slot in range(sizes.max_streams)[::-1]:
      self._free[sizes.group_of(slot)].append(slot)
    self._served: dict[str, int] = {}
    self._steps, self._last_prefill = 0, -(1 << 30)

  @property
  def num_free(self) -> int:
    """Number of free slots."""
    return sum(map(len, self._free))

  def __len__(self) -> int:
    return len(self.by_name)

  def __contains__(self, name: bytes) -> bool:
    return name in self.by_name

  def __getitem__(self, name: bytes) -> Stream:
    if name not in self.by_name:
      raise StreamLost(f"no stream {name.hex()}")
    return self.by_name[name]

  def add(self, name: bytes, stream: Stream) -> None:
    """Adds a stream, without a slot.

    Raises:
      NoRoom: if there are ``most`` streams.
    """
    if len(self.by_name) >= self.most:
      raise NoRoom(f"Must have fewer than {self.most} streams to open one, we instead got {len(self.by_name)}")
    self.by_name[name] = stream

  def close(self, name: bytes) -> None:
    """Removes a stream; does nothing for an unknown one."""
    stream = self.by_name.pop(name, None)
    if stream is not None and stream.slot is not None:
      self._give_back(stream.slot)

  def evict(self, name: bytes) -> None:
    """Evicts a stream from the cache.

    Raises:
      StreamLost: for an unknown stream.
      ValueError: if it has a call in flight.
    """
    stream = self[name]
    if stream.is_waited_for:
      raise ValueError(f"Must have a stream without a call in flight to evict it, we instead got {name.hex()}")
    if stream.slot is not None:
      self._give_back(stream.slot)
      stream.evict()

  def assign_slot(self, name: bytes) -> int:
    """Gives a stream a slot of the group with the most free slots, and returns it. Without a free slot, the least recently
    used stream is evicted."""
    if not self.num_free:
      oldest = self._least_recent()
      assert oldest is not None, "the scheduler opens streams for which there is a slot"
      self.evict(oldest)
    stream = self.by_name[name]
    stream.slot = max(self._free, key=len).pop()
    self._last_prefill = self._steps
    return stream.slot

  def expire(self, now: float, idle_s: float, forget_s: float) -> None:
    """Evicts streams without a call for ``idle_s`` seconds, and removes those without one for ``forget_s``."""
    for name, stream in list(self.by_name.items()):
      idle = now - stream.used
      if stream.is_waited_for:
        continue
      if idle >= forget_s:
        self.close(name)
      elif idle >= idle_s:
        self.evict(name)

  def queues(self) -> Queues:
    """The streams that wait."""
    calls, forced, opens = [], [], []
    for name, stream in self.by_name.items():
      waiting = lambda width, stream=stream, name=name: Waiting(
        name, Program(stream.handshake.profile, width), stream.since, stream.tenant, stream.skipped, self._group_of(stream)
      )
      if stream.slot is None:
        if stream.is_waited_for:
          opens.append(waiting(0))
      elif stream.pending:
        forced.append(waiting(stream.pending[0].width))
      elif stream.call is not None:
        calls.append(waiting(stream.spans[-1].width))
      elif stream.distribution is not None:
        calls.append(waiting(FINISH))
    if not self.num_free and self._least_recent() is None:
      opens = []
    return Queues(calls, forced, opens, self._served, self._steps - self._last_prefill)

  def count(self, names: Collection[bytes]) -> None:
    """Counts a step that ran for these streams."""
    self._steps += 1
    for name in names:
      self._served[self.by_name[name].tenant] = self._steps
    taken = set(names)
    for name, stream in self.by_name.items():
      stream.skipped += name not in taken
    tenants = {stream.tenant for stream in self.by_name.values()}
    self._served = {tenant: step for tenant, step in self._served.items() if tenant in tenants}

  def _group_of(self, stream: Stream) -> int:
    return 0 if stream.slot is None else self._sizes.group_of(stream.slot)

  def _give_back(self, slot: int) -> None:
    self._free[self._sizes.group_of(slot)].append(slot)

  def _least_recent(self) -> bytes | None:
    """The least recently used stream with a slot and without a call in flight."""
    idle = [
      (stream.used, name)
      for name, stream in self.by_name.items()
      if stream.slot is not None and not stream.is_waited_for and stream.unfinished is None
    ]
    return min(idle)[1] if idle else None
