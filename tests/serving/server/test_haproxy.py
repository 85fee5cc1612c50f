"""Servers behind HAProxy, with the configuration of docs/deploy: streams stay at one server, and go on when it is killed."""

import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import trustme

from jaxspec.serving.edge.connection import connect
from jaxspec.serving.edge.reliable_stream import ReliableStream
from jaxspec.serving.server.servicer import SERVICE
from jaxspec.serving.wire.address import ROUTE_HEADER
from tests.serving.edge.test_faults import undisturbed
from tests.serving.edge.toy_edge import handshake
from tests.serving.server.test_server_process import Disturbed, ServerProcess

CONFIG = Path(__file__).parents[3] / "docs" / "deploy" / "haproxy.cfg"
EDGES, CALLS = 8, 50
BINARY = "tcp-check send-binary "


def test_what_the_configuration_names_is_what_the_code_has():
  lines = [line.strip() for line in CONFIG.read_text().splitlines()]
  assert f"balance hdr({ROUTE_HEADER})" in lines and "hash-type consistent" in lines
  assert f"acl is_verifier path_beg /{SERVICE}/" in lines and "retry-on conn-failure" in lines
  preface, headers, message = (bytes.fromhex(line.removeprefix(BINARY)) for line in lines if line.startswith(BINARY))
  assert preface == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000 04 00 00000000")
  assert int.from_bytes(headers[:3]) == len(headers) - 9 and b"/grpc.health.v1.Health/Check" in headers
  assert message == bytes.fromhex("000005 00 01 00000001") + bytes(5)


@pytest.fixture
def behind(tmp_path):
  """Two servers, the address of the proxy before them, and the authority of its certificate."""
  program = shutil.which("haproxy") or shutil.which("/usr/sbin/haproxy")
  if program is None:
    pytest.skip("needs HAProxy: apt-get install haproxy")
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  authority, pem = trustme.CA(), tmp_path / "jaxspec.pem"
  authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
  servers = [ServerProcess(), ServerProcess()]
  text = CONFIG.read_text()
  places = {"/tls/jaxspec.pem": str(pem), "0.0.0.0:8443": f"127.0.0.1:{port}"}
  for old, new in (places | {f"target-{name}:8443": server.host for name, server in zip("ab", servers)}).items():
    assert text.count(old) == 1
    text = text.replace(old, new)
  (tmp_path / "haproxy.cfg").write_text(text)
  proxy = subprocess.Popen([program, "-db", "-f", str(tmp_path / "haproxy.cfg")], stderr=subprocess.DEVNULL)
  deadline = time.monotonic() + 10
  while time.monotonic() < deadline:
    try:
      socket.create_connection(("127.0.0.1", port), 1).close()
      break
    except OSError:
      time.sleep(0.05)
  yield servers, f"grpcs://127.0.0.1:{port}", authority.cert_pem.bytes()
  proxy.terminate()
  proxy.wait(10)
  for server in servers:
    server.kill()


@pytest.mark.slow
def test_streams_stay_at_one_server_and_go_on_when_it_is_killed(behind):
  """Streams of the other server notice nothing; those of the one that died are resumed once, there and back again."""
  servers, address, authority = behind
  killed, started = threading.Event(), threading.Event()
  edges, failures = [None] * EDGES, []

  def work(number):
    lazy = number % 2 == 1
    cloud = connect(address, ca=authority, route=True)
    edges[number] = edge = Disturbed(ReliableStream(cloud, handshake(number, lazy=lazy)), CALLS)

    def before(call):
      if call == 10:
        killed.wait(30)
      if call == 30:
        started.wait(30)

    edge.before = before
    try:
      edge.run()
      assert (edge.replies, edge.tokens) == undisturbed(number, CALLS, lazy)
    except BaseException as error:
      failures.append(error)
    cloud.hang_up()

  threads = [threading.Thread(target=work, args=(number,)) for number in range(EDGES)]
  for thread in threads:
    thread.start()
  until(lambda: all(edge is not None and len(edge.gained) >= 10 for edge in edges))
  assert [edge.reliable.resumes for edge in edges] == [0] * EDGES
  servers[0].kill()
  killed.set()
  until(lambda: failures or all(len(edge.gained) >= 30 for edge in edges))
  moved = [edge.reliable.resumes for edge in edges]
  assert set(moved) == {0, 1}, "each of two servers had some streams"
  servers[0].start()
  time.sleep(3)  # until the proxy has looked again
  started.set()
  for thread in threads:
    thread.join()
  assert not failures
  back = [edge.reliable.resumes for edge in edges]
  assert back == [2 * number for number in moved], "the hash brings the same streams back"


def until(holds):
  deadline = time.monotonic() + 60
  while not holds():
    assert time.monotonic() < deadline
    time.sleep(0.02)


@pytest.mark.slow
def test_other_paths_end_at_the_proxy(behind):
  """Health and reflection of the servers are not for edges."""
  import grpc

  _, address, authority = behind
  credentials = grpc.ssl_channel_credentials(authority)
  with grpc.secure_channel(address.removeprefix("grpcs://"), credentials) as channel:
    with pytest.raises(grpc.RpcError) as caught:
      channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
