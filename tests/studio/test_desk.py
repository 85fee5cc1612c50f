"""The queue of the studio: order, places in it, those who leave, and work that fails."""

import asyncio
import threading

from jaxspec.studio.worker import Desk


async def _rest(ticket) -> list[dict]:
  found = []
  while (event := await ticket.next(30)) is not None:
    found.append(event)
  return found


def _counting(gate: threading.Event, numbers: list):
  """Work of three rounds that waits for the gate, and writes down what it did."""

  def work(stopped):
    gate.wait(30)
    for number in range(3):
      numbers.append(number)
      yield {"event": "round", "round": number}

  return work


def test_the_second_of_two_users_waits():
  async def visit():
    desk, gate, order = Desk(), threading.Event(), []
    first, second = desk.submit(_counting(gate, order)), desk.submit(_counting(gate, order))
    assert await second.next(30) == {"event": "queued", "ahead": 1}
    gate.set()
    found = await asyncio.gather(_rest(first), _rest(second))
    for events in found:
      assert [event["round"] for event in events if event["event"] == "round"] == [0, 1, 2]
    assert {"event": "queued", "ahead": 0} in found[1]
    assert order == [0, 1, 2, 0, 1, 2]  # one after the other

  asyncio.run(visit())


def test_who_leaves_is_not_ahead_and_does_no_work():
  async def visit():
    desk, gate, done, never = Desk(), threading.Event(), [], []
    first, second = desk.submit(_counting(gate, done)), desk.submit(_counting(gate, never))
    second.stop()
    third = desk.submit(_counting(gate, done))
    assert await third.next(30) == {"event": "queued", "ahead": 1}
    gate.set()
    await asyncio.gather(_rest(first), _rest(third))
    assert len(done) == 6 and not never

  asyncio.run(visit())


def test_a_failure_ends_one_request_only():
  def fails(stopped):
    yield {"event": "started"}
    raise RuntimeError("two\nlines")

  async def visit():
    desk, gate = Desk(), threading.Event()
    gate.set()
    first, second = desk.submit(fails), desk.submit(_counting(gate, []))
    events = await _rest(first)
    assert events[-1] == {"event": "error", "message": "Unforeseen RuntimeError, two lines"}
    assert [event["event"] for event in await _rest(second)].count("round") == 3

  asyncio.run(visit())


def test_whoever_decodes_hears_no_more_of_the_queue():
  async def visit():
    desk, began, gate = Desk(), threading.Event(), threading.Event()

    def work(stopped):
      began.set()
      gate.wait(30)
      yield {"event": "finished"}

    first = desk.submit(work)
    await asyncio.to_thread(began.wait, 30)
    second = desk.submit(_counting(gate, []))
    gate.set()
    assert [event["event"] for event in await _rest(first)] == ["queued", "finished"]
    await _rest(second)

  asyncio.run(visit())
