"""``jaxspec studio``: an invalid address is an error of one line before loading, and so is its end."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

pytest.importorskip("starlette", reason="needs the studio extra: pip install 'jaxspec-decoding[studio]'")


def test_addresses(fails):
  with socket.create_server(("127.0.0.1", 0)) as taken:
    where = f"127.0.0.1:{taken.getsockname()[1]}"
    assert f"Cannot listen on {where}: the port is taken" in fails("studio", "/nowhere", "--listen", where)
  assert "a port from 0 to 65535" in fails("studio", "/nowhere", "--listen", "127.0.0.1:99999")
  assert "in brackets" in fails("studio", "/nowhere", "--listen", "::1:80")
  assert "there is no host of this name" in fails("studio", "/nowhere", "--listen", "nowhere.invalid:80")


@pytest.mark.slow
@pytest.mark.parametrize("number, code, word", [(signal.SIGINT, 130, "Interrupted"), (signal.SIGTERM, 143, "Terminated")])
def test_a_race_that_is_cut_off(bundle, number, code, word):
  """Its thread is inside the compiler when the process ends."""
  command = [sys.executable, "-m", "jaxspec.cli.main", "studio", str(bundle), "--listen", "127.0.0.1:0", "--no-cache"]
  with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
    where = process.stdout.readline().split()[-1]
    body = json.dumps({"prompts": ["red apple"], "entrants": [{"method": "speculative"}]}).encode()
    asked = urllib.request.Request(f"{where}/api/race", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as reply:
      assert reply.readline()
      process.send_signal(number)
      _, said = process.communicate(timeout=20)
  assert process.returncode == code and said.split() == f"{word}: no file was left half-written".split()
