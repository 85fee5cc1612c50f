"""A server with real sockets: replies as in the process, every status, TLS, tokens, draining, metrics."""

import contextlib
import datetime
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent import futures

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import grpc
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from prometheus_client import generate_latest

from jaxspec.serving.edge.connection import connect
from jaxspec.serving.edge.reliable_stream import ReliableStream
from jaxspec.serving.server.bearer_tokens import TokenFile, new_token
from jaxspec.serving.server.dispatcher import Limits
from jaxspec.serving.server.quotas import Quota
from jaxspec.serving.server.server import Listen, Server
from jaxspec.serving.wire.cloud import CloudError, Status
from jaxspec.serving.wire.framing import frame
from jaxspec.serving.wire.v1 import encoding
from tests.serving.edge.relay import Relay
from tests.serving.edge.test_faults import undisturbed
from tests.serving.edge.toy_edge import ToyEdge, handshake
from tests.serving.edge.toy_engine import BAD_NUMBERS, ToyEngine

VERIFIER = "/jaxspec.link.v1.Verifier/"


def decode(cloud, number=0, lazy=False, calls=12):
  edge = ToyEdge(ReliableStream(cloud, handshake(number, lazy=lazy)), calls)
  edge.run()
  assert (edge.replies, edge.tokens) == undisturbed(number, calls, lazy)
  assert edge.reliable.resumes == 0
  return edge


@pytest.fixture(scope="module")
def server():
  with Server(ToyEngine()) as running:
    yield running


@pytest.fixture
def call(server):
  """One call with raw bytes; returns the reply or the error."""
  with grpc.insecure_channel(server.address.removeprefix("grpc://")) as channel:

    def send(method, data, **kwargs):
      try:
        return channel.unary_unary(VERIFIER + method)(data, **({"timeout": 10} | kwargs))
      except grpc.RpcError as error:
        return error

    yield send


def refused(function, *args, **kwargs):
  with pytest.raises(CloudError) as caught:
    function(*args, **kwargs)
  return caught.value


@pytest.mark.parametrize("lazy", [False, True])
def test_a_decode_over_sockets(server, lazy):
  """The replies are those of the process; the bytes on the wire are few, and known."""
  relay = Relay(server.address)
  cloud = connect(relay.address)
  decode(cloud, 1, lazy)  # headers are in the tables of both ends now
  counts = []
  for calls in (12, 36):  # what handshake and closing cost is in both
    before = relay.up, relay.down, cloud.transport_bytes
    edge = decode(cloud, 2, lazy, calls)
    time.sleep(0.1)
    up, down, computed = relay.up - before[0], relay.down - before[1], cloud.transport_bytes - before[2]
    counts.append((len(edge.replies), edge.sent, sum(map(len, edge.replies)), up, down, computed))
  calls, frames_up, frames_down, up, down, computed = (more - few for few, more in zip(*counts, strict=True))
  around_up, around_down = (up - frames_up) / calls, (down - frames_down) / calls
  assert 30 < around_up < (50 if lazy else 90) and 30 < around_down < (50 if lazy else 70)
  assert computed == pytest.approx(up + down, rel=0.1)
  cloud.hang_up()
  relay.close()


def test_many_edges_at_once(server):
  cloud = connect(server.address)
  failures = []

  def work(number):
    try:
      decode(cloud, number, lazy=number % 2 == 1)
    except BaseException as error:
      failures.append(error)

  threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  deadline = time.monotonic() + 5
  while server.engine_thread.engine.streams and time.monotonic() < deadline:  # `Close` is answered before the engine does it
    time.sleep(0.01)
  assert not failures and server.engine_thread.engine.bad_threads == 0 and not server.engine_thread.engine.streams
  cloud.hang_up()


def test_every_status(server, call):
  """Replies name the error, and contain nothing else."""
  ok = handshake(90)
  assert isinstance(call("Open", encoding.open_request(ok)), bytes)
  verify = lambda seq, data=frame(20, 1, 1, 0, b""), part=0: call(
    "Verify", encoding.verify_request(ok.stream, seq, part, data)
  )
  damaged = bytearray(frame(20, 1, 1, 0, b"12345678"))
  damaged[-6] ^= 1
  cases = {
    "INVALID_ARGUMENT": [
      call("Open", b"\xff\xff"), call("Describe", b"\xff\xff"), call("Close", b""),
      verify(0), verify(1, b"short"), verify(1),
      call("Open", encoding.open_request(ok._replace(profile=9))),
      call("Open", encoding.open_request(ok._replace(key=b""))),
    ],
    "DATA_LOSS": [verify(1, bytes(damaged))],
    "FAILED_PRECONDITION": [
      call("Open", encoding.open_request(ok._replace(protocol=2))),
      call("Open", encoding.open_request(ok._replace(protocol=0))),
      call("Open", encoding.open_request(ok._replace(model=b"x" * 32))),
      call("Open", encoding.open_request(ok._replace(need_numerics=b"x" * 32))),
      call("Describe", encoding.describe_request(2, "")),
    ],
    "NOT_FOUND": [verify(2), call("Verify", encoding.verify_request(b"?" * 16, 1, 0, frame(20, 1, 1, 0, b"")))],
    "ALREADY_EXISTS": [call("Open", encoding.open_request(ok._replace(max_len=7)))],
    "RESOURCE_EXHAUSTED": [call("Verify", bytes(100_000))],
    "INTERNAL": [call("Open", encoding.open_request(handshake(91, condition=BAD_NUMBERS)))],
    "UNIMPLEMENTED": [call("Train", b"")],
  }  # fmt: skip
  for name, errors in cases.items():
    for error in errors:
      assert error.code().name == name, (name, error)
      assert "\n" not in error.details() and "Traceback" not in error.details()
  assert "profile must be one of 1, 2" in cases["INVALID_ARGUMENT"][-2].details()
  assert call("Close", encoding.close_request(ok.stream)) == b"" == call("Close", encoding.close_request(ok.stream))


def test_nothing_that_was_received_is_logged(server, call, monkeypatch, caplog):
  def fails(asked, *, now):
    raise RuntimeError(f"cannot read {asked.handshake.condition}")

  monkeypatch.setattr(server.dispatcher, "open", fails)
  error = call("Open", encoding.open_request(handshake(92, condition="my secret prompt")))
  assert error.code().name == "INTERNAL" and error.details() == "the server has an error"
  assert "A call of Open failed" in caplog.text and "in fails" in caplog.text and "RuntimeError" in caplog.text
  assert "secret" not in caplog.text


def test_an_exchange_ends_with_the_status_of_a_refused_call(server):
  with grpc.insecure_channel(server.address.removeprefix("grpc://")) as channel:
    exchange = channel.stream_stream(VERIFIER + "Exchange")
    with pytest.raises(grpc.RpcError) as caught:
      list(exchange(iter([encoding.verify_request(b"?" * 16, 1, 0, frame(20, 1, 1, 0, b""))]), timeout=10))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_tls_and_its_errors(tmp_path):
  authority, stranger = trustme.CA(), trustme.CA()
  own = authority.issue_cert("127.0.0.1")
  pems = dict(certificate=own.cert_chain_pems[0].bytes(), key=own.private_key_pem.bytes())
  trusted, other = authority.cert_pem.bytes(), stranger.cert_pem.bytes()
  (tmp_path / "ca.pem").write_bytes(trusted)
  with Server(ToyEngine(), Listen(**pems)) as server, Server(ToyEngine()) as plain:
    assert server.address.startswith("grpcs://")
    cloud = connect(server.address, ca=tmp_path / "ca.pem")
    decode(cloud, 3)
    cloud.hang_up()
    assert "is not trusted: --ca FILE" in refused(connect, server.address, ca=other).detail
    assert (
      "another name than localhost" in refused(connect, server.address.replace("127.0.0.1", "localhost"), ca=trusted).detail
    )
    assert "does not use TLS" in refused(connect, plain.address.replace("grpc:", "grpcs:"), ca=trusted).detail
    error = refused(connect, server.address.replace("grpcs:", "grpc:"))
    assert error.status is Status.UNAVAILABLE and "it may require TLS: grpcs://" in str(error)
  days = lambda number: datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=number)
  old = authority.issue_cert("127.0.0.1", not_before=days(-2), not_after=days(-1))
  pair = dict(certificate=old.cert_chain_pems[0].bytes(), key=old.private_key_pem.bytes())
  with Server(ToyEngine(), Listen(**pair)) as server:
    assert "has expired" in refused(connect, server.address, ca=trusted).detail
  with Server(ToyEngine(), Listen(**pems, client_ca=trusted)) as server:
    assert "(--cert, --key)" in refused(connect, server.address, ca=trusted).detail
    unknown = stranger.issue_cert("edge")
    pair = (unknown.cert_chain_pems[0].bytes(), unknown.private_key_pem.bytes())
    assert "may not trust the certificate" in refused(connect, server.address, ca=trusted, certificate=pair).detail
    edge = authority.issue_cert("edge")
    pair = (edge.cert_chain_pems[0].bytes(), edge.private_key_pem.bytes())
    connect(server.address, ca=trusted, certificate=pair).hang_up()
    for wrong, words in (((b"", pair[1]), "a certificate in PEM"), ((pair[0], pair[0]), "a private key in PEM in --key")):
      with pytest.raises(ValueError, match=words):
        connect(server.address, ca=trusted, certificate=wrong)


def test_a_server_of_https_alone_is_one_of_something_else():
  authority = trustme.CA()
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
  authority.issue_cert("127.0.0.1").configure_cert(context)

  class Greets(socketserver.BaseRequestHandler):
    def handle(self):
      with contextlib.suppress(OSError), context.wrap_socket(self.request, server_side=True) as stream:
        stream.recv(1)

  with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greets) as https:
    threading.Thread(target=https.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{https.server_address[1]}"
    detail = refused(connect, f"grpcs://{address}", ca=authority.cert_pem.bytes()).detail
    https.shutdown()
  assert detail == f"{address} is another kind of server: its TLS offers no HTTP/2"


def test_wrong_addresses_are_one_plain_line(server):
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  assert f"no server replies at 127.0.0.1:{port}" in refused(connect, f"grpc://127.0.0.1:{port}").detail
  for address, words in (
    ("127.0.0.1:80", "grpcs://HOST:PORT"),
    ("grpc://127.0.0.1:99999", "a port from 1 to 65535"),
    ("http://127.0.0.1:80", "grpcs://HOST:PORT"),
    ("grpc://192.0.2.1:80", "Must have grpcs://"),
  ):
    with pytest.raises(ValueError, match=words):
      connect(address)
  with pytest.raises(ValueError, match="grpcs:// with certificates"):
    connect(server.address, ca=b"-----BEGIN CERTIFICATE-----")
  with pytest.raises(ValueError, match="in PEM"):
    connect("grpcs://127.0.0.1:80", ca=b"junk")
  assert "no host named nowhere.invalid" in refused(connect, "grpcs://nowhere.invalid:80").detail


def test_a_proxy_that_does_not_connect_is_named(monkeypatch):
  with socket.create_server(("127.0.0.1", 0)) as free:
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{free.getsockname()[1]}")
  assert "the proxy in https_proxy" in refused(connect, "grpcs://192.0.2.1:443").detail


def test_another_bundle_is_one_plain_line(server):
  cloud = connect(server.address)
  cloud.check_model(b"m" * 32)
  with pytest.raises(ValueError, match="one bundle.*6d6d.*7878"):
    cloud.check_model(b"x" * 32)
  cloud.hang_up()


def test_a_server_of_something_else():
  other = grpc.server(futures.ThreadPoolExecutor(1))
  port = other.add_insecure_port("127.0.0.1:0")
  other.start()
  assert "another kind of server" in refused(connect, f"grpc://127.0.0.1:{port}").detail
  other.stop(0)
  with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as tcp:
    tcp.finish_request = lambda connection, _: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    threading.Thread(target=tcp.handle_request, daemon=True).start()
    assert "another kind of server" in refused(connect, f"grpc://127.0.0.1:{tcp.server_address[1]}").detail


@pytest.mark.slow
def test_tokens_and_quotas(tmp_path):
  path = tmp_path / "tokens.jsonl"
  alice, bob = new_token(path, "alice"), new_token(path, "bob", Quota(streams=1))
  tokens = TokenFile(path)
  with Server(ToyEngine(), tokens=tokens, auth_every_call=False) as server:
    error = refused(connect, server.address)
    assert error.status is Status.UNAUTHENTICATED and "--token-file FILE" in error.detail and "token=" in error.detail
    assert refused(connect, server.address, token="wrong").detail == "the token is not known"
    cloud = connect(server.address, token=alice)
    decode(cloud, 4)
    path.write_text(path.read_text().replace('"name": "alice"', '"revoked": true, "name": "alice"'))
    tokens.reload()
    error = refused(cloud.open, handshake(5), timeout_s=5)
    assert error.status is Status.PERMISSION_DENIED and "alice was revoked" in error.detail
    cloud.hang_up()
    cloud = connect(server.address, token=bob)
    cloud.open(handshake(6), timeout_s=5)
    error = refused(cloud.open, handshake(7), timeout_s=5)
    assert error.status is Status.RESOURCE_EXHAUSTED and error.pushback_s > 0
    began = time.monotonic()
    for _ in range(10):
      refused(connect, server.address, token="guess")
    assert time.monotonic() - began > 0.9, "more than ten wrong tokens in a minute are answered slowly"
    cloud.hang_up()


def test_a_token_in_every_call(tmp_path):
  secret = new_token(tmp_path / "tokens.jsonl", "alice")
  with Server(ToyEngine(), tokens=TokenFile(tmp_path / "tokens.jsonl"), auth_every_call=True) as server:
    refusals = lambda: sum('status="UNAUTHENTICATED"' in line for line in counted_calls(server))
    cloud = connect(server.address, token=secret, auth_every_call=True, route=True)
    decode(cloud, 4)
    decode(cloud, 5, lazy=True)
    cloud.hang_up()
    assert not refusals()
    with grpc.insecure_channel(server.address.removeprefix("grpc://")) as channel:
      data = encoding.verify_request(handshake(4).stream, 1, 0, frame(20, 1, 1, 0, b""))
      with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(VERIFIER + "Verify")(data, timeout=5)
      assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("lazy", [False, True])
def test_an_edge_learns_that_every_call_needs_its_token(tmp_path, lazy):
  """Its first call is refused and made once more, as a long call too; all later ones have the token."""
  secret = new_token(tmp_path / "tokens.jsonl", "alice")
  with Server(ToyEngine(), tokens=TokenFile(tmp_path / "tokens.jsonl"), auth_every_call=True) as server:
    cloud = connect(server.address, token=secret)
    for number in (6, 7):
      assert decode(cloud, number, lazy).reliable.retries == 0
    cloud.hang_up()
    name = "Exchange" if lazy else "Verify"
    refused_ones = [line for line in counted_calls(server) if "UNAUTHENTICATED" in line]
    assert refused_ones == [f'jaxspec_calls_total{{method="{name}",status="UNAUTHENTICATED"}} 1.0']
    if lazy:
      assert not any('method="Verify"' in line for line in counted_calls(server)), "the long call goes on"


def counted_calls(server):
  """The lines of the server's counters of calls."""
  return [line for line in generate_latest(server.metrics.registry).decode().splitlines() if "calls_total{" in line]


@pytest.mark.parametrize("shown", [False, True])
def test_reflection_is_off_by_default(shown):
  listen = Listen(reflection=True) if shown else Listen()
  with Server(ToyEngine(), listen) as server, grpc.insecure_channel(server.address.removeprefix("grpc://")) as channel:
    database = ProtoReflectionDescriptorDatabase(channel)
    if shown:
      assert "jaxspec.link.v1.Verifier" in database.get_services()
    else:
      with pytest.raises(grpc.RpcError) as caught:
        database.get_services()
      assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_draining_answers_what_waits():
  engine = ToyEngine(step_s=0.3)
  with Server(engine) as server:
    cloud = connect(server.address)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(cloud.open(handshake(8), timeout_s=10)))
    thread.start()
    while not server.dispatcher.waiting:
      time.sleep(0.005)
    server.drain()
    thread.join()
    assert len(answers) == 1
    cloud.hang_up()


def test_health_and_an_engine_that_fails():
  engine = ToyEngine()
  with Server(engine) as server:
    with grpc.insecure_channel(server.address.removeprefix("grpc://")) as channel:
      stub = health_pb2_grpc.HealthStub(channel)
      asked = health_pb2.HealthCheckRequest(service="jaxspec.link.v1.Verifier")
      assert stub.Check(asked, timeout=5).status == health_pb2.HealthCheckResponse.SERVING
      cloud = connect(server.address)
      cloud._patience_s = 0.0
      engine.fails = True
      assert refused(cloud.open, handshake(9), timeout_s=5).status is Status.UNAVAILABLE
      cloud.hang_up()
    assert isinstance(server.engine_thread.failure, RuntimeError)


def test_metrics(server):
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  stop = server.metrics.listen("127.0.0.1", port)
  cloud = connect(server.address)
  decode(cloud, 10)
  text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
  stop()
  cloud.hang_up()
  server.metrics.called("Open", "CANCELLED", 0.0)
  assert server.metrics.registry.get_sample_value("jaxspec_refused_total", {"reason": "CANCELLED"}) is None
  for name in ("call_seconds", "step_seconds", "rows_per_step", "streams", "frame_bytes_total", "refused_total"):
    assert f"jaxspec_{name}" in text
  assert 'jaxspec_calls_total{method="Verify",status="OK"}' in text


def test_a_port_that_is_taken():
  with Server(ToyEngine()) as server, pytest.raises(OSError, match="the port is taken"):
    Server(ToyEngine(), Listen(server.address.removeprefix("grpc://"))).__enter__()
  with pytest.raises(OSError, match="a certificate in PEM in --tls-cert"):
    Server(ToyEngine(), Listen(certificate=b"none", key=b"none")).__enter__()


def test_sockets_need_no_jax_and_write_nothing_to_the_terminal():
  modules = "jaxspec.serving.server.server, jaxspec.serving.edge.grpc_client"
  code = f"import {modules}, sys, os; print(os.environ['GRPC_VERBOSITY'], *sys.modules)"
  outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
  verbosity, *modules = outcome.stdout.split()
  assert "grpc" in modules and not {"jax", "jaxlib", "flax"} & set(modules) and verbosity == "NONE"


def test_a_full_server_says_when_to_come_back():
  with Server(ToyEngine(), limits=Limits(streams=1)) as server:
    cloud = connect(server.address)
    cloud.open(handshake(0), timeout_s=5)
    error = refused(cloud.open, handshake(1), timeout_s=5)
    assert error.status is Status.RESOURCE_EXHAUSTED and 0.5 <= error.pushback_s <= 1.5
    cloud.hang_up()
