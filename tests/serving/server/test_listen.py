"""Where a server listens: settings that go together, and ports that are shared among processes of one server alone."""

import socket

import pytest

from jaxspec.serving.server.listen import Listen, reserve


def test_settings_that_do_not_go_together():
  for kwargs, words in (
    (dict(address="8443"), "HOST:PORT"),
    (dict(certificate=b""), "one of them"),
    (dict(client_ca=b""), "none"),
    (dict(address="0.0.0.0:80"), "--insecure"),
  ):
    with pytest.raises(ValueError, match=words):
      Listen(**kwargs)
  assert Listen("0.0.0.0:80", insecure=True).url(81) == "grpc://0.0.0.0:81"
  assert Listen("[::1]:0", certificate=b"", key=b"").url(81) == "grpcs://[::1]:81"


def test_a_port_is_shared_with_those_who_share_and_kept_from_others():
  reserved, port = reserve(Listen())
  again, same = reserve(Listen(f"127.0.0.1:{port}"))  # nobody listens yet
  again.close()
  assert same == port
  with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
    other.bind(("127.0.0.1", port))
  with socket.create_server(("127.0.0.1", port), reuse_port=True) as one, pytest.raises(ConnectionRefusedError):
    one.close()
    socket.create_connection(("127.0.0.1", port))  # the reserved socket takes none
  with socket.create_server(("127.0.0.1", port), reuse_port=True):
    with pytest.raises(OSError, match=f"Cannot listen on 127.0.0.1:{port}: the port is taken"):
      reserve(Listen(f"127.0.0.1:{port}"))
  reserved.close()
  with pytest.raises(OSError, match="Cannot listen on nowhere.invalid:80: .*--listen"):
    reserve(Listen("nowhere.invalid:80", insecure=True))
