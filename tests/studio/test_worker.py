"""The queue of the studio: order, numbers in the queue, cancelled requests, and errors."""

import asyncio
import threading

from jaxspec.studio.worker import Worker


async def _rest(request) -> list[dict]:
  found = []
  while (event := await request.next(30)) is not None:
    found.append(event)
  return found


def _counting(gate: threading.Event, numbers: list):
  """Work of three rounds that waits for the gate, and records its rounds."""

  def work(stopped):
    gate.wait(30)
    for number in range(3):
      numbers.append(number)
      yield {"event": "round", "round": number}

  return work


def test_the_second_of_two_users_waits():
  async def run():
    worker, gate, order = Worker(), threading.Event(), []
    first, second = worker.submit(_counting(gate, order)), worker.submit(_counting(gate, order))
    assert await second.next(30) == {"event": "queued", "ahead": 1}
    gate.set()
    found = await asyncio.gather(_rest(first), _rest(second))
    for events in found:
      assert [event["round"] for event in events if event["event"] == "round"] == [0, 1, 2]
    assert {"event": "queued", "ahead": 0} in found[1]
    assert order == [0, 1, 2, 0, 1, 2]  # one after the other

  asyncio.run(run())


def test_a_cancelled_request_is_not_ahead_and_does_no_work():
  async def run():
    worker, gate, done, never = Worker(), threading.Event(), [], []
    first, second = worker.submit(_counting(gate, done)), worker.submit(_counting(gate, never))
    second.cancel()
    third = worker.submit(_counting(gate, done))
    assert await third.next(30) == {"event": "queued", "ahead": 1}
    gate.set()
    await asyncio.gather(_rest(first), _rest(third))
    assert len(done) == 6 and not never

  asyncio.run(run())


def test_a_failure_ends_one_request_only():
  def fails(stopped):
    yield {"event": "started"}
    raise RuntimeError("two\nlines")

  async def run():
    worker, gate = Worker(), threading.Event()
    gate.set()
    first, second = worker.submit(fails), worker.submit(_counting(gate, []))
    events = await _rest(first)
    assert events[-1] == {"event": "error", "message": "Unforeseen RuntimeError, two lines"}
    assert [event["event"] for event in await _rest(second)].count("round") == 3

  asyncio.run(run())


def test_a_running_request_has_no_more_events_of_the_queue():
  async def run():
    worker, began, gate = Worker(), threading.Event(), threading.Event()

    def work(stopped):
      began.set()
      gate.wait(30)
      yield {"event": "finished"}

    first = worker.submit(work)
    await asyncio.to_thread(began.wait, 30)
    second = worker.submit(_counting(gate, []))
    gate.set()
    assert [event["event"] for event in await _rest(first)] == ["queued", "finished"]
    await _rest(second)

  asyncio.run(run())
