"""The worker: one thread runs the requests of all pages in their order, and stops a cancelled one before its next round."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Generator
from typing import Any

from jaxspec.core.error_lines import one_line

MAX_WAITING = 16

# (whether to stop) -> events
Work = Callable[[Callable[[], bool]], Generator[dict[str, Any], None, None]]


class QueueFull(ValueError):
  """Too many requests wait."""


class QueuedRequest:
  """A request in the queue of an executor, and its events for the running event loop.

  Args:
    executor: of one thread.
    work: yields the events.
    ahead: number of requests before it.

  Attributes:
    future: of the request in the executor.
  """

  def __init__(self, executor: concurrent.futures.Executor, work: Work, ahead: int):
    self._cancelled = threading.Event()
    self._loop, self._events = asyncio.get_running_loop(), asyncio.Queue()
    self.send({"event": "queued", "ahead": ahead})
    self.future = executor.submit(self._run, work)

  def cancel(self) -> None:
    """Removes the request from the queue, or ends it before its next round."""
    self._cancelled.set()
    self.future.cancel()

  async def next(self, timeout_s: float) -> dict[str, Any] | None:
    """The next event; None after the last one.

    Raises:
      TimeoutError: if there is none within ``timeout_s`` seconds.
    """
    async with asyncio.timeout(timeout_s):
      return await self._events.get()

  def send(self, event: dict[str, Any] | None) -> None:
    """Adds an event, from any thread; None is the last one."""
    try:
      self._loop.call_soon_threadsafe(self._events.put_nowait, event)
    except RuntimeError:  # the server has ended
      self._cancelled.set()

  def _run(self, work: Work) -> None:
    """Sends the events of the work. An error becomes an event, so that the next request runs."""
    events = work(self._cancelled.is_set)
    try:
      for event in events:
        self.send(event)
        if self._cancelled.is_set():
          break
    except (ValueError, OSError) as error:
      self.send({"event": "error", "message": one_line(error)})
    except Exception as error:
      self.send({"event": "error", "message": f"Unforeseen {type(error).__name__}, {one_line(error)[:300]}"})
    finally:
      events.close()


class Worker:
  """One thread that runs requests in their order."""

  def __init__(self):
    self._executor = concurrent.futures.ThreadPoolExecutor(1, "studio")
    self._requests: list[QueuedRequest] = []  # the running one is the first
    self._lock = threading.Lock()

  def submit(self, work: Work) -> QueuedRequest:
    """Queues a request of the running event loop. Its first event is its number in the queue.

    Raises:
      QueueFull: if too many requests wait.
    """
    with self._lock:
      if len(self._requests) >= MAX_WAITING:
        raise QueueFull(f"Must have fewer than {MAX_WAITING} requests in the queue, try again later")
      request = QueuedRequest(self._executor, work, len(self._requests))
      self._requests.append(request)
    request.future.add_done_callback(lambda _: self._remove(request))
    return request

  def _remove(self, request: QueuedRequest) -> None:
    """Removes a finished or cancelled request, and sends the new numbers in the queue."""
    request.send(None)
    with self._lock:
      self._requests.remove(request)
      for ahead, other in enumerate(self._requests):
        if not other.future.running():
          other.send({"event": "queued", "ahead": ahead})
