"""Drafts that are sent ahead over real sockets: cut and silent connections, tokens, and bytes."""

import threading
import time

import numpy as np
import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from experiments.server.relay import Relay, Shape
from jaxspec.serving.edge.connection import connect
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.edge.reliable_stream import RetrySettings
from jaxspec.serving.server.bearer_tokens import TokenFile, new_token
from jaxspec.serving.server.server import Server
from tests.serving.edge.test_pipeline import NAMES, ROWS, fused, new_engine, served
from tests.serving.server.crowds import one_row, serve


@pytest.fixture(scope="module")
def server():
  with Server(new_engine()) as running:
    yield running


def decode(cloud, *, rows=range(ROWS), pipeline=4):
  """Rows over a cloud; their tokens are those of the fused loop. Returns retries and resumes."""
  observer, edge = Observer(), served().edge(0, pipeline=pipeline)
  for row in rows:
    out, _ = edge.run(*reversed(one_row(row)), cloud, settings=RetrySettings(), observer=observer)
    np.testing.assert_array_equal(out.tokens[0], fused().tokens[row])
  return observer.retries, observer.resumes


@pytest.mark.parametrize("pipeline", [1, 2, 4])
def test_a_decode_over_sockets(server, pipeline):
  assert decode(connect(server.address), pipeline=pipeline) == (0, 0)


@pytest.mark.slow
def test_a_connection_that_is_cut_or_silent(server):
  """Calls go on over a new connection, ahead again, and no stream is resumed."""
  with Relay(server.address.removeprefix("grpc://"), Shape(delay_s=0.01)) as relay:
    cloud, done = connect(f"grpc://{relay.host}"), threading.Event()

    def disturb():
      for number in range(12):
        if done.wait(0.3):
          return
        (relay.cut if number else relay.silence)()

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    began, retries, resumes = time.monotonic(), 0, 0
    while retries < 2 and time.monotonic() - began < 30.0:  # a disturbance between two decodes is not noticed
      more = decode(cloud, rows=[0, 3])
      retries, resumes = retries + more[0], resumes + more[1]
    done.set()
    disturbing.join()
    cloud.hang_up()
  assert retries >= 2 and resumes == 0


@pytest.mark.slow
def test_calls_ahead_have_the_token_too(tmp_path):
  secret = new_token(tmp_path / "tokens.jsonl", "alice")
  with Server(serve(NAMES[0]).engine, tokens=TokenFile(tmp_path / "tokens.jsonl"), auth_every_call=True) as own:
    cloud = connect(own.address, token=secret)
    retries, resumes = decode(cloud, rows=[0, 1])
    assert (retries, resumes) == (1, 0)  # the first call learns that every call needs it
    assert decode(cloud, rows=[2]) == (0, 0)
