"""Addresses are read in one way for all commands, and those of this machine are reached without a proxy."""

import socket

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from experiments.server.server_metrics import read_metrics
from jaxspec.serving.edge.connection import connect, split_url
from jaxspec.serving.server.bearer_tokens import TokenFile, new_token
from jaxspec.serving.server.server import Listen, Server
from jaxspec.serving.wire.address import Address, parse_address
from tests.serving.edge.toy_engine import ToyEngine


def test_addresses():
  for text in ("127.0.0.1:1", "box.example:8443", "[::1]:65535", "[fe80::1%eth0]:80"):
    assert str(parse_address(text, "HOST:PORT")) == text
  assert parse_address("[::1]:0", "HOST:PORT", free=True) == Address("::1", 0)
  assert split_url("grpcs://[::1]:8443/") == ("grpcs", Address("::1", 8443))


@pytest.mark.parametrize(
  "text, words",
  [
    ("127.0.0.1:65536", "a port from 1 to 65535"),
    ("127.0.0.1:99999", "a port from 1 to 65535"),
    ("127.0.0.1:4294967376", "Must have TARGET HOST:PORT, "),
    ("127.0.0.1:0", "a port from 1 to 65535"),
    ("127.0.0.1:-1", "Must have TARGET HOST:PORT, "),
    ("127.0.0.1:²", "Must have TARGET HOST:PORT, "),
    ("127.0.0.1", "Must have TARGET HOST:PORT, "),
    (":80", "Must have TARGET HOST:PORT, "),
    ("", "Must have TARGET HOST:PORT, "),
    ("http://box:80", "Must have TARGET HOST:PORT, "),
    ("me@box:80", "Must have TARGET HOST:PORT, "),
    ("*:80", "Must have TARGET HOST:PORT, "),
    ("[box]:80", "an IPv6 address in the brackets"),
    ("[127.0.0.1]:80", "an IPv6 address in the brackets"),
    ("::1:18711", "an IPv6 address stands in brackets"),
    ("[::1]", "Must have TARGET HOST:PORT, "),
  ],
)
def test_what_is_no_address(text, words):
  with pytest.raises(ValueError) as caught:
    parse_address(text, "TARGET HOST:PORT")
  assert words in str(caught.value) and repr(text) in str(caught.value)


def test_names_of_this_machine(monkeypatch):
  found = {"here": ("127.0.0.1", "::1"), "both": ("127.0.0.1", "192.0.2.1"), "there": ("192.0.2.1",)}

  def getaddrinfo(host, port, **_):
    if host not in found:
      raise socket.gaierror(socket.EAI_NONAME, "unknown")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found[host]]

  monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
  assert Address("here", 1).on_this_machine() == ("127.0.0.1", "::1")
  assert not any(Address(host, 1).on_this_machine() for host in ("both", "there", "nowhere"))


@pytest.fixture
def proxy(monkeypatch):
  """A port in every proxy variable, without connections."""
  with socket.create_server(("127.0.0.1", 0)) as listener:
    listener.settimeout(0.05)
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY"):
      monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
    monkeypatch.setenv("GRPC_ADDRESS_HTTP_PROXY", f"127.0.0.1:{listener.getsockname()[1]}")
    monkeypatch.setenv("GRPC_ADDRESS_HTTP_PROXY_ENABLED_ADDRESSES", "127.0.0.0/8,::1/128,::ffff:127.0.0.0/104")
    monkeypatch.delenv("no_proxy", raising=False)
    yield listener
    with pytest.raises(TimeoutError):
      listener.accept()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "box.example"])
def test_a_token_for_this_machine_is_seen_by_no_proxy(proxy, host, tmp_path, monkeypatch):
  """Not even one for a name that another lookup may find elsewhere: gRPC does not look it up."""
  whole = socket.getaddrinfo
  named = lambda host, *args, **kwargs: whole("localhost" if host == "box.example" else host, *args, **kwargs)
  monkeypatch.setattr(socket, "getaddrinfo", named)
  secret = new_token(tmp_path / "tokens.jsonl", "alice")
  with Server(ToyEngine(), Listen("localhost:0"), tokens=TokenFile(tmp_path / "tokens.jsonl")) as server:
    port = server.address.rpartition(":")[2]
    connect(f"grpc://{host}:{port}", token=secret).hang_up()


def test_counters_of_this_machine_are_seen_by_no_proxy(proxy):
  server = Server(ToyEngine())
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  stop = server.metrics.listen("127.0.0.1", port)
  assert read_metrics(f"localhost:{port}").values
  stop()


def test_a_token_goes_nowhere_else_without_tls():
  for host in ("192.0.2.1", "nowhere.invalid"):
    with pytest.raises(ValueError, match="grpcs:// to send a token"):
      connect(f"grpc://{host}:80", token="secret", insecure=True)
