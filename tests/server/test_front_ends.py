"""Front-end processes: every reply is that of the process, whatever becomes of them."""

import socket
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from jaxspec.link.cloud import CloudError, Status
from jaxspec.link.connection import connect
from jaxspec.link.message import frame
from jaxspec.link.session import Session
from jaxspec.server.listen import Listen
from jaxspec.server.quotas import Quota
from jaxspec.server.server import Server
from jaxspec.server.tokens import TokenFile, new_token
from tests.link.test_faults import undisturbed
from tests.link.toy_edge import ToyEdge, opening
from tests.link.toy_engine import ToyEngine

ROOT = Path(__file__).parents[2]


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


def counted(text, name):
  """The sum of a counter over its labels."""
  return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"jaxspec_{name}"))


def modules_of(pid):
  """Shared libraries that a process has mapped."""
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
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  with Server(engine, frontends=2, tokens=tokens) as server:
    host, processes = server.address.removeprefix("grpc://"), server.door.processes
    assert len(processes) == 2 and not any("jaxlib" in modules_of(pid) for pid in processes)
    stop = server.metrics.listen("127.0.0.1", port)
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
    text = lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
    wait_for(lambda: counted(text(), 'calls_total{method="Close"') == 6)
    assert counted(text(), 'calls_total{method="Verify",status="OK"') == 3 * 12
    assert counted(text(), "frame_bytes_total") > 0
    with pytest.raises(OSError, match="the port is taken"):
      Server(ToyEngine(), Listen(host), frontends=1).__enter__()
    stop()
    for cloud in (*clouds, *own):
      cloud.hang_up()
  for pid in processes:
    assert not Path(f"/proc/{pid}").exists()
