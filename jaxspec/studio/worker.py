"""The queue: one thread decodes, one request after the other, and a request that was left is dropped between two rounds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from typing import Any

from jaxspec.core.error_lines import one_line

MAX_WAITING = 16

# (whether to stop) -> events
Work = Callable[[Callable[[], bool]], Generator[dict[str, Any], None, None]]


class Full(ValueError):
  """Too many requests wait."""


class Ticket:
  """A request in the queue; made by `Desk.submit` inside an event loop."""

  def __init__(self, work: Work):
    self.work, self._stop = work, threading.Event()
    self.has_begun = False
    self._loop, self._events = asyncio.get_running_loop(), asyncio.Queue()

  def stop(self) -> None:
    """Nobody waits for it any more."""
    self._stop.set()

  def is_stopped(self) -> bool:
    """Whether nobody waits for it any more."""
    return self._stop.is_set()

  def send(self, event: dict[str, Any] | None) -> None:
    """Hands over an event, from any thread; None is the last one."""
    try:
      self._loop.call_soon_threadsafe(self._events.put_nowait, event)
    except RuntimeError:  # the server has ended
      self.stop()

  async def next(self, timeout_s: float) -> dict[str, Any] | None:
    """The next event; None after the last one.

    Raises:
      TimeoutError: if there is none in this time.
    """
    async with asyncio.timeout(timeout_s):
      return await self._events.get()


class Desk:
  """One thread that works on tickets in their order."""

  def __init__(self):
    self._waiting: list[Ticket] = []
    self._changed = threading.Condition()
    threading.Thread(target=self._work, daemon=True, name="studio").start()

  def submit(self, work: Work) -> Ticket:
    """Puts work into the queue; its first event says how many are ahead.

    Raises:
      Full: if too many wait.
    """
    ticket = Ticket(work)
    with self._changed:
      self._waiting = [other for other in self._waiting if not other.is_stopped()]
      if len(self._waiting) >= MAX_WAITING:
        raise Full(f"Must have fewer than {MAX_WAITING} requests in the queue, try again later")
      self._waiting.append(ticket)
      self._tell()
      self._changed.notify()
    return ticket

  def _tell(self) -> None:
    """Tells everybody who waits how many are ahead, those that left apart; whose work has begun waits no more."""
    ahead = 0
    for ticket in self._waiting:
      if not ticket.has_begun:
        ticket.send({"event": "queued", "ahead": ahead})
      ahead += not ticket.is_stopped()

  def _work(self) -> None:
    while True:
      with self._changed:
        self._changed.wait_for(lambda: self._waiting)
        ticket = self._waiting[0]  # whoever decodes is ahead of the others, too
        ticket.has_begun = True
      if not ticket.is_stopped():
        self._serve(ticket)
      ticket.send(None)
      with self._changed:
        self._waiting = [other for other in self._waiting if other is not ticket]
        self._tell()

  def _serve(self, ticket: Ticket) -> None:
    events = ticket.work(ticket.is_stopped)
    try:
      for event in events:
        ticket.send(event)
        if ticket.is_stopped():
          break
    except (ValueError, OSError) as error:
      ticket.send({"event": "error", "message": one_line(error)})
    except Exception as error:  # one request must not end the thread of all
      ticket.send({"event": "error", "message": f"Unforeseen {type(error).__name__}, {one_line(error)[:300]}"})
    finally:
      events.close()
