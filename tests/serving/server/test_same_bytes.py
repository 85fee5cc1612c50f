"""64 streams: `LocalCloud` and a server answer with the same bytes."""

import threading
import time

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from experiments.server.player import play
from experiments.server.recorder import Recorder
from jaxspec.serving.edge.connection import connect
from jaxspec.serving.edge.reliable_stream import RetrySettings
from jaxspec.serving.edge.remote_decode import RemoteOptions, rows_over_cloud
from jaxspec.serving.server.in_process import LocalCloud
from jaxspec.serving.server.server import Server
from tests.serving.edge.pairs import MAX_LEN, rows_of
from tests.serving.server.crowds import serve

pytestmark = pytest.mark.slow
NAMES = ("markov:sqs-paper", "markov:sqs-lazy", "markov:ciar-exact", "markov:ciar-greedy")
STREAMS, THREADS = 64, 8


@pytest.fixture(scope="module")
def served():
  return serve(*NAMES)


@pytest.fixture(scope="module")
def traces(served):
  """Every frame and every reply of all streams, without a socket."""
  cloud, found = LocalCloud(served.engine), []
  for number, case in enumerate(served.cases):
    recorder = Recorder()
    options = RemoteOptions(observer=recorder)
    for _ in rows_over_cloud(case.edge(profile=number), *rows_of(STREAMS // len(NAMES)), cloud, options):
      found.append(recorder.trace(cloud.description, MAX_LEN))
  assert len(found) == STREAMS and sum(len(trace.calls) for trace in found) > 3 * STREAMS
  return found


def test_every_reply_is_the_same(served, traces):
  played, failures = [], []

  def work(first):
    try:
      for _ in range(2):
        cloud = connect(server.address)
        settings = RetrySettings(sleep=lambda s: time.sleep(0.003))
        played.extend(play(trace, cloud, settings=settings) for trace in traces[first::THREADS])
        cloud.hang_up()
    except BaseException as error:
      failures.append(error)

  with Server(served.engine) as server:
    threads = [threading.Thread(target=work, args=(first,)) for first in range(THREADS)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
  assert not failures, failures
  assert len(played) == 2 * STREAMS and all(each.differing is None for each in played)
  assert not any(each.resumes or each.retries for each in played)
