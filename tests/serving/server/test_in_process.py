"""A cloud in this process, with the toy engine: the table of calls, several threads, and waiting that costs nothing."""

import threading
import time

import pytest

from jaxspec.serving.edge.reliable_stream import ReliableStream
from jaxspec.serving.server.dispatcher import Limits
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.wire.ciar_message import CIAR
from jaxspec.serving.wire.cloud import CloudError, Status
from jaxspec.serving.wire.framing import frame
from tests.serving.edge.toy_edge import ToyEdge, handshake
from tests.serving.edge.toy_engine import BAD_NUMBERS, ToyEngine


def decode(cloud, number, calls=12):
  edge = ToyEdge(ReliableStream(cloud, handshake(number, lazy=number % 2 == 1)), calls)
  edge.run()
  return edge


def refused(call, *args, **kwargs):
  with pytest.raises(CloudError) as caught:
    call(*args, **kwargs)
  return caught.value.status


def test_calls_are_asked_again_and_run_once():
  engine = ToyEngine()
  edge = decode(LocalCloud(engine), 0, calls=1)
  cloud = LocalCloud(engine)
  reliable = ReliableStream(cloud, handshake())
  again = ToyEdge(reliable, 1)
  reliable.close = lambda: None
  again.run()
  assert again.replies == edge.replies and set(engine.runs.values()) == {2}
  assert cloud.open(handshake()).frame == edge.replies[0] and set(engine.runs.values()) == {2}
  stream, other = handshake().stream, frame(CIAR, 1, 1, 0, b"another frame")
  assert refused(cloud.verify, stream, 1, 0, other) is Status.FAILED_PRECONDITION
  assert refused(cloud.verify, stream, 2, 0, other) is Status.INVALID_ARGUMENT
  assert refused(cloud.verify, stream, 3, 0, other) is Status.NOT_FOUND
  assert refused(cloud.open, handshake(max_len=7)) is Status.ALREADY_EXISTS
  cloud.close(stream)
  assert not engine.streams and refused(cloud.verify, stream, 1, 0, other) is Status.NOT_FOUND
  assert refused(cloud.verify, stream, 1, 0, other[:-1] + b"\0") is Status.DATA_LOSS


def test_what_is_refused():
  cloud = LocalCloud(ToyEngine(), limits=Limits(1))
  for fields in (dict(protocol=2), dict(model=b"x" * 32), dict(need_numerics=b"x" * 32)):
    assert refused(cloud.open, handshake(**fields)) is Status.FAILED_PRECONDITION
  assert refused(cloud.open, handshake(condition=BAD_NUMBERS)) is Status.INTERNAL
  cloud.open(handshake(1, need_numerics=cloud.description.numerics))
  assert refused(cloud.open, handshake(2)) is Status.RESOURCE_EXHAUSTED


def test_threads_share_a_cloud_and_its_steps():
  """Each has the replies that it has alone."""
  cloud, found = LocalCloud(ToyEngine(step_s=0.001)), {}
  threads = [
    threading.Thread(target=lambda number=number: found.update({number: decode(cloud, number)})) for number in range(6)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  for number in range(6):
    assert found[number].replies == decode(LocalCloud(ToyEngine()), number).replies


class Waiting(ToyEngine):
  """An engine whose calls wait for others, for a while."""

  def __init__(self, until):
    super().__init__()
    self.until = until

  def step(self, now):
    return super().step(now) if now >= self.until else []


@pytest.mark.slow
def test_waiting_leaves_the_core_alone():
  """For calls held back by the engine, and for a step of another thread."""
  spent, clock = {}, time.monotonic

  def wait(name, cloud, number):
    began = time.thread_time()
    cloud.open(handshake(number))
    spent[name] = time.thread_time() - began

  wait("kept back", LocalCloud(Waiting(clock() + 0.4)), 0)
  shared = LocalCloud(ToyEngine(step_s=0.4))
  threads = [threading.Thread(target=wait, args=(number, shared, number)) for number in range(2)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert all(seconds < 0.2 for seconds in spent.values()), spent


def test_an_engine_that_fails_fails_every_call():
  engine = ToyEngine()
  cloud = LocalCloud(engine)
  cloud.open(handshake())
  engine.fails = True
  for number in (1, 2):
    with pytest.raises(RuntimeError, match="the device is gone"):
      cloud.open(handshake(number))
