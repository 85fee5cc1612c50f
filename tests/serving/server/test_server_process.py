"""Server, link and edge as processes with lost connections and kills: the replies equal those of an undisturbed run."""

import contextlib
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from jaxspec.serving.edge.connection import connect
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.reliable_stream import ReliableStream
from jaxspec.serving.server.bearer_tokens import new_token
from jaxspec.serving.wire.cloud import CloudError, Status
from tests.serving.edge.relay import Relay
from tests.serving.edge.test_faults import undisturbed
from tests.serving.edge.toy_edge import ToyEdge, handshake

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]


class ServerProcess:
  """A server in a separate process, always at the same port."""

  def __init__(self, *arguments):
    with socket.create_server(("127.0.0.1", 0)) as free:
      self.host = f"127.0.0.1:{free.getsockname()[1]}"
    self.address, self._arguments = f"grpc://{self.host}", arguments
    self.start()

  def start(self):
    command = [sys.executable, "-m", "tests.serving.server.toy_server", self.host, *self._arguments]
    self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert self.process.stdout.readline().startswith("grpc://")

  def kill(self):
    self.process.kill()
    self.process.wait()


@pytest.fixture
def server():
  running = ServerProcess()
  yield running
  running.kill()


class Disturbed(ToyEdge):
  """An edge that calls ``before(call)`` before each of its calls."""

  def steps(self):
    for call, _ in enumerate(super().steps()):
      self.before(call)
      yield


def run(cloud, number, before, lazy=False, calls=50):
  edge = Disturbed(ReliableStream(cloud, handshake(number, lazy=lazy)), calls)
  edge.before = before
  edge.run()
  assert (edge.replies, edge.tokens) == undisturbed(number, calls, lazy)
  return edge.reliable


def test_a_wire_that_is_cut(server):
  """Connections are reset between calls and during them, also between the parts of one; the server still has the stream."""
  relay = Relay(server.address)
  cloud = connect(relay.address)
  retries = 0
  for number in range(5):
    generator = random.Random(number)
    cuts = set(generator.sample(range(1, 50), 5))

    def before(call, cuts=cuts, generator=generator):
      if call in cuts:
        threading.Timer(generator.random() * 0.004, relay.cut).start()

    reliable = run(cloud, number, before, lazy=True)
    assert reliable.resumes == 0
    retries += reliable.retries
  assert retries > 0
  cloud.hang_up()
  relay.close()


def test_a_wire_that_goes_silent(server):
  """Without an error: pings detect it in 0.6 s, before the deadline of the call."""
  relay = Relay(server.address)
  cloud = connect(relay.address)
  began = time.monotonic()
  reliable = run(cloud, 1, lambda call: relay.silence() if call in (5, 30) else None)
  assert reliable.retries >= 2 and reliable.resumes == 0 and time.monotonic() - began < 5
  cloud.hang_up()
  relay.close()


def test_replies_that_are_lost(server):
  """The wire swallows replies until the deadline; the server answers the retry from its table."""
  relay = Relay(server.address)
  cloud = connect(relay.address)

  def before(call):
    if call in (5, 20):
      relay.swallow = True
      threading.Timer(0.5, lambda: (setattr(relay, "swallow", False), relay.cut())).start()

  reliable = run(cloud, 1, before)
  assert reliable.retries >= 2 and reliable.resumes == 0
  cloud.hang_up()
  relay.close()


@pytest.mark.parametrize("lazy", [False, True])
def test_a_server_that_is_killed_and_started_again(server, lazy):
  cloud = connect(server.address)
  killed = []

  def before(call):
    if call in (1, 17, 40):
      server.kill()
      killed.append(call)
      threading.Timer(0.2, server.start).start()

  reliable = run(cloud, 2, before, lazy)
  assert reliable.resumes == 3 == len(killed)
  cloud.hang_up()


def test_sigterm_under_load(server):
  """Calls that wait are answered; then edges find the next server, and none of them notices more."""
  failures = []

  def work(number):
    try:
      cloud = connect(server.address)
      run(cloud, number, lambda call: time.sleep(0.005))
      cloud.hang_up()
    except BaseException as error:
      failures.append(error)

  threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
  for thread in threads:
    thread.start()
  time.sleep(0.3)
  began = time.monotonic()
  server.process.send_signal(signal.SIGTERM)
  assert server.process.wait(15) == 0 and time.monotonic() - began < 10
  server.start()
  for thread in threads:
    thread.join()
  assert not failures


def test_tokens_are_read_again_on_sighup(tmp_path):
  path = tmp_path / "tokens.jsonl"
  secret = new_token(path, "alice")
  server = ServerProcess("--tokens", str(path))
  connect(server.address, token=secret).hang_up()
  path.write_text(path.read_text().replace("{", '{"revoked": true, '))
  server.process.send_signal(signal.SIGHUP)
  time.sleep(0.5)
  with pytest.raises(CloudError) as caught:
    connect(server.address, token=secret)
  assert caught.value.status is Status.PERMISSION_DENIED
  server.kill()


EDGE = """
import sys
from jaxspec.serving.edge.connection import connect
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.edge.reliable_stream import ReliableStream
from tests.serving.edge.toy_edge import ToyEdge, handshake
with Journal(sys.argv[2]) as journal:
  edge = ToyEdge(ReliableStream(connect(sys.argv[1]), handshake(3), journal=journal))
  edge.run()
print(*edge.tokens)
"""


def test_an_edge_that_is_killed_goes_on_from_its_journal(server, tmp_path):
  path, generator = tmp_path / "run.jrn", random.Random(5)
  kills = 0
  while True:
    edge = subprocess.Popen(
      [sys.executable, "-c", EDGE, server.address, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    wanted = (len(Journal(path).records) if path.exists() else 0) + generator.randint(5, 15)
    while edge.poll() is None and kills < 5:
      if path.exists() and path.stat().st_size > 48 * wanted:
        edge.kill()
        kills += 1
    if edge.wait() == 0:
      break
  assert tuple(map(int, edge.stdout.read().split())) == undisturbed(3)[1] and kills >= 3


def test_connections_that_send_half_of_something(server):
  """Silent ones, prefaces alone, half bodies: other edges are answered all the while."""
  host, port = server.host.split(":")
  preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4\0" + bytes(4)
  path = b"/jaxspec.link.v1.Verifier/Verify"
  literal = lambda name, value: b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
  headers = (
    literal(b":method", b"POST") + literal(b":scheme", b"http") + literal(b":path", path) + literal(b":authority", b"x")
    + literal(b"content-type", b"application/grpc") + literal(b"te", b"trailers")
  )  # fmt: skip
  block = lambda stream: struct.pack(">I", len(headers))[1:] + b"\1\4" + struct.pack(">I", stream) + headers
  half = lambda stream: b"\0\0\7" + b"\0\0" + struct.pack(">I", stream) + b"\0\0\0\0\x20ab"
  with contextlib.ExitStack() as stack:
    for number in range(60):
      silent = stack.enter_context(socket.create_connection((host, port)))
      if number % 3 == 1:
        silent.sendall(preface)
      elif number % 3 == 2:
        silent.sendall(preface + b"".join(block(stream) + half(stream) for stream in range(1, 100, 2)))
    time.sleep(0.2)
    cloud = connect(server.address)
    began = time.monotonic()
    reliable = run(cloud, 4, lambda call: None)
    assert reliable.retries == 0 and time.monotonic() - began < 5
    cloud.hang_up()
