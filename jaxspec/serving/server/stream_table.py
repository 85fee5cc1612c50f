"""The streams that an engine holds: which of them have a slot, who waits, and who was served when."""

from __future__ import annotations

from collections.abc import Collection

from jaxspec.serving.server.engine_interface import NoRoom, StreamLost
from jaxspec.serving.server.scheduler import Queues, Waiting
from jaxspec.serving.server.step_arrays import Sizes
from jaxspec.serving.server.stream_state import Stream

FINISH = 0  # the "width" of the program that ends rounds with a distribution


class HeldStreams:
  """Streams by name.

  Attributes:
    by_name: all of them.

  Args:
    sizes: slots N, and the groups of devices that share them.
    most: more streams are refused.
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
    """Slots that no stream owns."""
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
    """Holds a new stream, without a slot.

    Raises:
      NoRoom: if there are as many as may be.
    """
    if len(self.by_name) >= self.most:
      raise NoRoom(f"Must have fewer than {self.most} streams to open one, we instead got {len(self.by_name)}")
    self.by_name[name] = stream

  def close(self, name: bytes) -> None:
    """Forgets a stream, also one that is not held."""
    held = self.by_name.pop(name, None)
    if held is not None and held.slot is not None:
      self._give_back(held.slot)

  def park(self, name: bytes) -> None:
    """Takes the slot of a stream.

    Raises:
      StreamLost: if it is not held.
      ValueError: if its edge waits for an answer.
    """
    held = self[name]
    if held.is_waited_for:
      raise ValueError(f"Must have a stream without a call in flight to park it, we instead got {name.hex()}")
    if held.slot is not None:
      self._give_back(held.slot)
      held.park()

  def place(self, name: bytes) -> int:
    """Gives a stream a slot of the group with most free ones, or that of the idlest stream, and returns it."""
    if not self.num_free:
      self.park(self._idlest())
    held = self.by_name[name]
    held.slot = max(self._free, key=len).pop()
    self._last_prefill = self._steps
    return held.slot

  def expire(self, now: float, idle_s: float, forget_s: float) -> None:
    """Parks streams that were not heard of for ``idle_s``, and forgets those of ``forget_s``."""
    for name, held in list(self.by_name.items()):
      idle = now - held.used
      if held.is_waited_for:
        continue
      if idle >= forget_s:
        self.close(name)
      elif idle >= idle_s:
        self.park(name)

  def queues(self) -> Queues:
    """All that waits."""
    asked, forced, opens = [], [], []
    for name, held in self.by_name.items():
      number = held.opening.profile
      waiting = lambda width, held=held, name=name, number=number: Waiting(
        name, (number, width), held.since, held.tenant, held.passed, self._group_of(held)
      )
      if held.slot is None:
        if held.is_waited_for:
          opens.append(waiting(0))
      elif held.unread:
        forced.append(waiting(held.unread[0].width))
      elif held.call is not None:
        asked.append(waiting(held.call.cuts[-1].width))
      elif held.distribution is not None:
        asked.append(waiting(FINISH))
    if not self.num_free and self._idlest() is None:
      opens = []
    return Queues(asked, forced, opens, self._served, self._steps - self._last_prefill)

  def count(self, names: Collection[bytes]) -> None:
    """A step was run for these streams."""
    self._steps += 1
    for name in names:
      self._served[self.by_name[name].tenant] = self._steps
    taken = set(names)
    for name, held in self.by_name.items():
      held.passed += name not in taken
    tenants = {held.tenant for held in self.by_name.values()}
    self._served = {tenant: step for tenant, step in self._served.items() if tenant in tenants}

  def _group_of(self, held: Stream) -> int:
    return 0 if held.slot is None else self._sizes.group_of(held.slot)

  def _give_back(self, slot: int) -> None:
    self._free[self._sizes.group_of(slot)].append(slot)

  def _idlest(self) -> bytes | None:
    """The stream that was not heard of for longest among those without a call in flight."""
    idle = [
      (held.used, name)
      for name, held in self.by_name.items()
      if held.slot is not None and not held.is_waited_for and held.judged is None
    ]
    return min(idle)[1] if idle else None
