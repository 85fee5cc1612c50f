"""The engine's side of calls behind letters: answers find who waits, and counts come a few at once."""

import asyncio

import pytest

pytest.importorskip("google.protobuf", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from jaxspec.serving.server import letters
from jaxspec.serving.server.backend import Answer
from jaxspec.serving.server.dispatcher import VerifyCall
from jaxspec.serving.server.engine_interface import description_of
from jaxspec.serving.server.idempotency import Position
from jaxspec.serving.server.letters import Counts, Kind
from jaxspec.serving.server.remote import RemoteBackend, RemoteReport
from jaxspec.serving.wire.cloud import CloudError, Status
from tests.serving.edge.toy_engine import ToyEngine


class Kept:
  """A channel that keeps what is sent."""

  def __init__(self):
    self.sent = []

  def send(self, letter):
    self.sent.append(letters.opened(letter))

  async def room(self):
    pass


def verify(backend):
  return asyncio.ensure_future(backend.verify(VerifyCall(b"s" * 16, Position(1, 0), b"frame", 1, deadline=1.0)))


def test_answers_find_who_waits():
  """In any order; one that nobody waits for any more is nothing."""

  async def run():
    channel = Kept()
    backend = RemoteBackend(channel, description_of(ToyEngine()))
    calls = [verify(backend) for _ in range(4)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    numbers = [number for kind, number, _ in channel.sent if kind is Kind.VERIFY]
    assert len(set(numbers)) == 4
    calls[3].cancel()
    await asyncio.sleep(0)
    answers = [Answer(b"zero", 1), CloudError(Status.NOT_FOUND, "no such stream"), Answer(b"two", None), Answer(b"late", 1)]
    for number, answer in reversed(list(zip(numbers, answers))):
      backend.answered(number, memoryview(letters.write_answer(answer)))
      backend.answered(number, memoryview(letters.write_answer(answer)))
    assert await calls[0] == answers[0] and await calls[2] == answers[2]
    with pytest.raises(CloudError, match="no such stream"):
      await calls[1]
    assert not backend._waiting

  asyncio.run(run())


def test_counts_are_sent_together_and_wear_is_told_once():
  async def run():
    channel = Kept()
    report = RemoteReport(channel, 3)
    for _ in range(5):
      report.frames(10, 20)
      report.called("Verify", "OK", 0.5)
    report.resumed()
    assert [kind for kind, _, _ in channel.sent] == [Kind.WORN]
    await asyncio.sleep(0)
    report.flush()
    kind, _, body = channel.sent[-1]
    assert kind is Kind.COUNTS and len(channel.sent) == 2
    assert letters.read_counts(body) == Counts(1, 50, 100, (("Verify", "OK", 0.5),) * 5)
    report.called("Open", "CANCELLED", 0.0)
    await asyncio.sleep(0)
    assert letters.read_counts(channel.sent[-1][2]) == Counts(0, 0, 0, (("Open", "CANCELLED", 0.0),))

  asyncio.run(run())
