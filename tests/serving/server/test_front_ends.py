"""Front-end processes: every reply is that of the process, whatever becomes of them."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from jaxspec.serving.edge.connection import connect
from jaxspec.serving.edge.reliable_stream import Session
from jaxspec.serving.server.bearer_tokens import TokenFile, new_token
from jaxspec.serving.server.listen import Listen
from jaxspec.serving.server.quotas import Quota
from jaxspec.serving.server.server import Server
from jaxspec.serving.wire.cloud import CloudError, Status
from jaxspec.serving.wire.framing import frame
from tests.serving.edge.test_faults import undisturbed
from tests.serving.edge.toy_edge import ToyEdge, opening
from tests.serving.edge.toy_engine import ToyEngine


def decode(cloud, number=0, lazy=False, calls=12, before=lambda call: None):
  edge = ToyEdge(Session(cloud), opening(number, lazy=lazy), calls)
  for call, _ in enumerate(edge.steps()):
    before(call)
  assert (edge.replies, edge.tokens) == undisturbed(number, calls, lazy)
  assert edge.session.resumes == 0
  return edge.session


def refused(function, *args, **kwargs):
  with pytest.raises(CloudError) as caught:
    function(*args, **kwargs)
  return caught.value


def value(server, method):
  """Calls of a method that were answered, as `--metrics` shows them."""
  return server.metrics.registry.get_sample_value("jaxspec_calls_total", {"method": method, "status": "OK"}) or 0


def mapped(pid):
  """The files that a process has mapped, its libraries among them."""
  return Path(f"/proc/{pid}/maps").read_text()


def wait_for(holds, seconds=30):
  deadline = time.monotonic() + seconds
  while not holds():
    assert time.monotonic() < deadline, "it does not come to that"
    time.sleep(0.02)


def test_two_front_ends(tmp_path):
  """Replies, statuses, tokens, quotas, metrics and the end, of two processes without JAX."""
  path = tmp_path / "tokens.jsonl"
  alice, bob = new_token(path, "alice"), new_token(path, "bob", Quota(streams=1))
  engine, tokens = ToyEngine(), TokenFile(path)
  with Server(engine, frontends=2, tokens=tokens) as server:
    host, processes = server.address.removeprefix("grpc://"), server.door.processes
    assert len(processes) == 2 and not any("jaxlib" in mapped(pid) for pid in processes)
    clouds = [connect(server.address, token=alice) for _ in range(6)]  # connections are shared out
    for number, cloud in enumerate(clouds):
      decode(cloud, number, lazy=number % 2 == 1)
    wait_for(lambda: not engine.streams)
    assert engine.read_ahead == 3 * 12 and engine.bad_threads == 0
    assert refused(clouds[0].verify, b"?" * 16, 1, 0, frame(20, 1, 1, 0, b""), timeout_s=5).status is Status.NOT_FOUND
    with grpc.insecure_channel(host) as channel:
      for method, data, status in (("Open", b"\xff", "INVALID_ARGUMENT"), ("Verify", bytes(99_999), "RESOURCE_EXHAUSTED")):
        with pytest.raises(grpc.RpcError) as caught:
          metadata = (("authorization", f"Bearer {alice}"),)
          channel.unary_unary(f"/jaxspec.link.v1.Verifier/{method}")(data, timeout=5, metadata=metadata)
        assert caught.value.code().name == status
      health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
      assert health.status == health_pb2.HealthCheckResponse.SERVING
    own = [connect(server.address, token=bob) for _ in range(4)]
    own[0].open(opening(20), timeout_s=5)
    for number, cloud in enumerate(own[1:], 21):  # one quota, at whatever front end
      assert refused(cloud.open, opening(number), timeout_s=5).status is Status.RESOURCE_EXHAUSTED
    path.write_text(path.read_text().replace('"name": "alice"', '"revoked": true, "name": "alice"'))
    tokens.reload()
    wait_for(lambda: refused(connect, server.address, token=alice).status is Status.PERMISSION_DENIED)
    assert connect(server.address, token=server.token).description.vocab == engine.vocab
    began = time.monotonic()
    for _ in range(12):
      refused(connect, server.address, token="guess")
    assert time.monotonic() - began > 0.9, "wrong tokens are slowed down over all front ends"
    wait_for(lambda: value(server, "Close") == 6)  # counts come a moment later
    assert value(server, "Verify") == 3 * 12 and value(server, "Exchange") >= 3 * 12
    with pytest.raises(OSError, match="the port is taken"):
      Server(ToyEngine(), Listen(host), frontends=1).__enter__()
    for cloud in (*clouds, *own):
      cloud.hang_up()
  for pid in processes:
    assert not Path(f"/proc/{pid}").exists()


def decode_all(server, number, calls, before, failures):
  """Edges in threads, each with a connection of its own; whatever goes wrong is a failure."""

  def work(index):
    try:
      cloud = connect(server.address)
      decode(cloud, index, index % 2 == 1, calls, before)
      cloud.hang_up()
    except BaseException as error:
      failures.append(error)

  threads = [threading.Thread(target=work, args=(index,)) for index in range(number)]
  for thread in threads:
    thread.start()
  return threads


@pytest.mark.slow
def test_front_ends_that_are_killed():
  """In the middle of decodes, one after the other: the same replies, no stream is lost, and others come."""
  engine, failures = ToyEngine(step_s=0.002), []
  with Server(engine, frontends=2) as server:
    threads, killed = decode_all(server, 8, 150, lambda call: time.sleep(0.02), failures), set()
    for _ in range(3):
      wait_for(lambda: len(set(server.door.processes) - killed) == 2)
      time.sleep(0.3)
      victim = server.door.processes[0]
      os.kill(victim, signal.SIGKILL)
      killed.add(victim)
    for thread in threads:
      thread.join()
    assert not failures, failures
    assert all(runs == 1 for runs in engine.runs.values()), "a retry is answered from the table"
    assert not engine.resumes and len(killed) == 3
    wait_for(lambda: len(set(server.door.processes) - killed) == 2)


@pytest.mark.slow
def test_front_ends_that_are_worn():
  """Each answers 100 calls; no call fails, and every one is counted."""
  engine, failures = ToyEngine(step_s=0.002), []
  with Server(engine, frontends=2, max_calls=100) as server:
    first = set(server.door.processes)
    for thread in decode_all(server, 8, 150, lambda call: time.sleep(0.02), failures):
      thread.join()
    assert not failures, failures
    assert all(runs == 1 for runs in engine.runs.values()) and not engine.resumes
    wait_for(lambda: len(server.door.processes) == 2)
    assert not first & set(server.door.processes)
    wait_for(lambda: value(server, "Close") == 8)
    assert value(server, "Verify") + value(server, "Exchange") >= sum(engine.runs.values()) - 8


@pytest.mark.slow
def test_the_end_of_the_engine_is_the_end_of_all():
  """By ``kill -9``, and by a step that fails."""
  with socket.create_server(("127.0.0.1", 0)) as free:
    address = f"127.0.0.1:{free.getsockname()[1]}"
  command = [sys.executable, "-m", "tests.serving.server.toy_server", address, "--frontends", "2"]
  root = Path(__file__).parents[3]
  process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
  assert process.stdout.readline() == f"grpc://{address}\n"
  children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
  assert len(children) == 2
  process.kill()
  process.wait()
  wait_for(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() and mapped(pid) for pid in children), 3)
  engine = ToyEngine()
  with Server(engine, frontends=1) as server:
    cloud, (pid,) = connect(server.address), server.door.processes
    cloud._patience_s = 0.0
    engine.fails = True
    assert refused(cloud.open, opening(1), timeout_s=5).status is Status.UNAVAILABLE
    cloud.hang_up()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), 5)
    assert isinstance(server.service.failure, RuntimeError)


@pytest.mark.slow
def test_front_ends_that_do_not_start(monkeypatch):
  """A certificate that is none is one line, and no process stays."""
  listen = Listen(certificate=b"junk", key=b"junk")
  with pytest.raises(OSError, match="a certificate in PEM in --tls-cert"):
    Server(ToyEngine(), listen, frontends=2).__enter__()
  assert not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
  monkeypatch.setattr(sys, "executable", "/bin/false")
  with pytest.raises(OSError, match="ended before it served"):
    Server(ToyEngine(), frontends=2).__enter__()
