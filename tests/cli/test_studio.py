"""``jaxspec studio``: what is wrong with its address is one line before anything is loaded."""

import socket

import pytest

pytest.importorskip("starlette", reason="needs the studio extra: pip install 'jaxspec-decoding[studio]'")


def test_addresses(fails):
  with socket.create_server(("127.0.0.1", 0)) as taken:
    where = f"127.0.0.1:{taken.getsockname()[1]}"
    assert f"Cannot listen on {where}: the port is taken" in fails("studio", "/nowhere", "--listen", where)
  assert "a port from 0 to 65535" in fails("studio", "/nowhere", "--listen", "127.0.0.1:99999")
  assert "in brackets" in fails("studio", "/nowhere", "--listen", "::1:80")
  assert "there is no host of the name" in fails("studio", "/nowhere", "--listen", "nowhere.invalid:80")
