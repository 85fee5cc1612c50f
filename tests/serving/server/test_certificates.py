"""The trial's certificates are accepted by edges that trust their authority, and by no others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from click.testing import CliRunner

from jaxspec.serving.edge.connection import connect
from jaxspec.serving.server.certificates import main, write_certificates
from jaxspec.serving.server.server import Listen, Server
from jaxspec.serving.wire.cloud import CloudError
from tests.serving.edge.toy_engine import ToyEngine

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}


def test_certificates_for_a_trial(tmp_path):
  folder = tmp_path / "trial"
  outcome = CliRunner().invoke(main, [str(folder), "--name", "edge-box.local"])
  assert outcome.exit_code == 0 and f"--ca {folder / 'ca.pem'}" in outcome.output
  assert (folder / "key.pem").stat().st_mode & 0o077 == 0
  listen = Listen(certificate=(folder / "cert.pem").read_bytes(), key=(folder / "key.pem").read_bytes())
  with Server(ToyEngine(), listen) as server:
    for address in (server.address, server.address.replace("127.0.0.1", "localhost")):
      connect(address, ca=folder / "ca.pem").hang_up()
    write_certificates(tmp_path / "other")
    with pytest.raises(CloudError, match="certificate of"):
      connect(server.address, ca=tmp_path / "other" / "ca.pem")
  again = CliRunner().invoke(main, [str(folder)])
  assert again.exit_code == 1 and "a folder without certificates" in again.output


@pytest.mark.slow
def test_without_the_extra(tmp_path):
  """One line that names it, from the command and from the command line that reads certificates."""
  blocked = "import sys, runpy; sys.modules['cryptography'] = None; sys.argv = sys.argv[1:]; "
  module = "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
  (tmp_path / "pem").touch()
  serve = ("jaxspec.cli.main", "serve", "/nowhere", "--listen", "127.0.0.1:0", "--tls-cert", "pem", "--tls-key", "pem")
  for args in (("jaxspec.serving.server.certificates", "trial"), serve):
    command = [sys.executable, "-c", blocked + module, *args]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=ENVIRONMENT)
    assert outcome.returncode and len(outcome.stderr.splitlines()) == 1
    assert "pip install 'jaxspec-decoding[serve]'" in outcome.stderr
