"""The relay: arrival times of bytes, in closed form and through sockets; a decode over it against `link_seconds`."""

import contextlib
import math
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from experiments.server import relay as relay_command
from experiments.server.relay import RETRANSMISSION_S, Link, Relay, Shape, relaying
from jaxspec.serving.edge.observer import Observer
from jaxspec.serving.wire.link_model import NETWORKS, Network, link_seconds
from tests.exit_status import status_of

ROOT = Path(__file__).parents[3]
SLOW = Shape(bits_per_s=8e3, delay_s=0.5)


def test_when_bytes_arrive():
  link = Link(SLOW)
  assert link.due(1000, 10.0) == 11.5  # a second on the link, half a second on the way
  assert link.due(500, 10.2) == 12.0  # waits until the link is free
  assert link.due(0, 20.0) == 20.5
  assert Link(Shape()).due(1 << 20, 3.0) == 3.0
  assert Shape.of(NETWORKS["4g"]) == Shape(20e6, 0.025)


def test_jitter_and_loss_keep_the_order():
  draws = iter([0.9, 0.0, 0.1, 0.9])
  link = Link(Shape(math.inf, 0.5, jitter_s=1.0, loss=0.2), lambda: next(draws))
  lost = 0.0 + 0.5 + 0.9 + RETRANSMISSION_S + 1.0
  assert link.due(10, 0.0) == pytest.approx(lost)
  assert link.due(10, 0.5) == pytest.approx(lost)  # alone it would arrive at 1.1


def test_a_relay_on_ipv6(echo):
  with Relay(echo, listen="[::1]:0") as relay:
    assert relay.host.startswith("[::1]:")
    with Relay(relay.host) as before, dial(before.host) as connection:
      connection.sendall(b"abc")
      assert received(connection, 3) == b"abc"


@pytest.fixture
def echo():
  """A port that echoes its input, with an ``!`` at the end of the connection."""
  listener = socket.create_server(("127.0.0.1", 0))

  def answer(connection):
    with connection:
      while data := connection.recv(1 << 16):
        connection.sendall(data)
      connection.sendall(b"!")

  def accept():
    while True:
      try:
        connection, _ = listener.accept()
      except OSError:
        return
      threading.Thread(target=answer, args=(connection,), daemon=True).start()

  threading.Thread(target=accept, daemon=True).start()
  yield f"127.0.0.1:{listener.getsockname()[1]}"
  listener.close()


def dial(host):
  address, _, port = host.rpartition(":")
  return socket.create_connection((address, int(port)), timeout=10)


def received(connection, size):
  data = b""
  while len(data) < size and (more := connection.recv(1 << 16)):
    data += more
  return data


def test_bytes_come_whole_and_late(echo):
  """Both directions of two connections at once, each with the full rate; ends are forwarded."""
  data, shape = bytes(range(256)) * 40, Shape(bits_per_s=8e5, delay_s=0.05)
  with Relay(echo, shape) as relay, dial(relay.host) as first, dial(relay.host) as second:
    began = time.monotonic()
    for each in (first, second):
      each.sendall(data)
    assert received(first, len(data)) == data and received(second, len(data)) == data
    seconds = time.monotonic() - began
    # Chunks overlap on the two directions; both rates and both delays at least once.
    least = 2 * 0.05 + 8 * len(data) / 8e5
    assert least <= seconds < 2 * least + 1.0
    first.shutdown(socket.SHUT_WR)
    assert received(first, 2) == b"!" and relay.up == 2 * len(data) and relay.down == 2 * len(data) + 1


def test_a_connection_is_cut_and_a_target_is_not_there(echo):
  with Relay(echo) as relay, dial(relay.host) as connection:
    connection.sendall(b"a")
    assert received(connection, 1) == b"a"
    relay.cut()
    with pytest.raises(ConnectionError):
      while True:
        connection.sendall(b"a")
        time.sleep(0.01)
  with socket.create_server(("127.0.0.1", 0)) as free:
    nobody = f"127.0.0.1:{free.getsockname()[1]}"
  with Relay(nobody) as relay, dial(relay.host) as connection:
    try:
      assert connection.recv(1) == b""
    except ConnectionError:
      pass
  with pytest.raises(OSError):
    Relay(echo, listen=relay.host.replace("127.0.0.1", "203.0.113.1"))


def test_a_connection_goes_silent_and_new_ones_go_elsewhere(echo):
  """Sent bytes are lost without an error."""
  with Relay(echo) as relay, dial(relay.host) as connection:
    connection.sendall(b"a")
    assert received(connection, 1) == b"a"
    relay.silence()
    connection.settimeout(0.2)
    time.sleep(0.05)
    connection.sendall(b"b")
    with pytest.raises(TimeoutError):
      connection.recv(1)
    with dial(relay.host) as other:
      other.sendall(b"c")
      assert received(other, 1) == b"c"
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
      relay.point(f"127.0.0.1:{elsewhere.getsockname()[1]}")
      with dial(relay.host) as third:
        third.sendall(b"d")
        there, _ = elsewhere.accept()
        with there:
          assert received(there, 1) == b"d"


def test_the_command(capsys):
  fails = lambda *args: status_of(relay_command.main, *args, "--network", "4g") == 2 and capsys.readouterr().err
  assert "a target HOST:PORT" in fails("8443") and "a port from 1 to 65535" in fails("127.0.0.1:0")
  assert "to listen on" in fails("127.0.0.1:1", "--listen", "x")
  assert "a port from 0 to 65535" in fails("127.0.0.1:1", "--listen", "127.0.0.1:65536")
  assert fails("nowhere.invalid:1").startswith("Error: ")
  with socket.create_server(("127.0.0.1", 0)) as taken:
    assert "in use" in fails("127.0.0.1:1", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
  command = [sys.executable, "-m", "experiments.server.relay", "127.0.0.1:1", "--network", "wifi"]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
    line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
  assert line.startswith("relaying at 127.0.0.1:") and process.returncode == 0


class CallTimes(Observer):
  def __init__(self):
    super().__init__()
    self.seconds = []

  def begins(self):
    self.began = time.monotonic()

  def answered(self, *args):
    self.seconds.append(time.monotonic() - self.began)


@pytest.mark.slow
def test_a_decode_takes_the_seconds_of_the_network():
  """Calls through the relay against calls through one that only forwards, with the bytes counted by the client."""
  pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")
  from jaxspec.serving.edge.connection import connect
  from jaxspec.serving.edge.reliable_stream import ReliableStream
  from jaxspec.serving.server.server import Server
  from tests.serving.edge.toy_edge import ToyEdge, handshake
  from tests.serving.edge.toy_engine import ToyEngine

  calls = 40

  def call_of(address):
    """Seconds of a call, and its bytes. The slowest of the quickest quarter, since the machine is shared."""
    cloud, observer = connect(address), CallTimes()
    ToyEdge(ReliableStream(cloud, handshake(90)), 5).run()  # the connection is warm
    before = (cloud.uplink_bytes, cloud.downlink_bytes)
    ToyEdge(ReliableStream(cloud, handshake(91), observer=observer), calls).run()
    sent = cloud.uplink_bytes - before[0], cloud.downlink_bytes - before[1]
    cloud.hang_up()
    return statistics.quantiles(observer.seconds, n=4)[0], sent

  # And a rate at which the bytes are noticeable.
  for network in (NETWORKS["wifi"], Network(1e5, NETWORKS["wifi"].latency_s)):
    with Server(ToyEngine()) as server, contextlib.ExitStack() as stack:
      target = server.address.removeprefix("grpc://")
      hosts = [stack.enter_context(relaying(target, shape)) for shape in (Shape(), Shape.of(network))]
      (near, _), (far, (up, down)) = [call_of(f"grpc://{host}") for host in hosts]
    all_calls = calls + 2  # handshake and closing
    wanted = link_seconds(network, calls=all_calls, uplink_bytes=up, downlink_bytes=down).total / all_calls
    assert abs(far - near - wanted) < 0.1 * wanted + 0.005, (far, near, wanted)
