"""Listening of a server: combinations of settings, and ports in use."""

import socket

import pytest

from jaxspec.serving.server.listen import Listen


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


def test_a_port_that_is_not_to_be_had():
  with socket.create_server(("127.0.0.1", 0)) as other:
    port = other.getsockname()[1]
    with pytest.raises(OSError, match=f"Cannot listen on 127.0.0.1:{port}: the port is taken"):
      Listen(f"127.0.0.1:{port}").check()
  with pytest.raises(OSError, match="Cannot listen on nowhere.invalid:80: .*--listen"):
    Listen("nowhere.invalid:80", insecure=True).check()
