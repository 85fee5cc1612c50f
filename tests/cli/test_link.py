"""``jaxspec link``: a process without JAX that loads a server, and one line about what is wrong."""

import json
import socket
import subprocess
import sys

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import trustme

from jaxspec.serving.edge.connection import connect
from jaxspec.serving.load.trace import write_trace
from jaxspec.serving.server.bearer_tokens import TokenFile, new_token
from jaxspec.serving.server.server import Listen, Server
from tests.serving.edge.test_trace import recorded
from tests.serving.edge.toy_engine import ToyEngine


@pytest.fixture
def traces(tmp_path):
  """Two traces without long pauses."""
  folder = tmp_path / "traces"
  folder.mkdir()
  for number in range(2):
    trace, _ = recorded(number)
    calls = tuple(call._replace(think_s=0.001) for call in trace.calls)
    write_trace(folder / f"{number}.json", trace._replace(calls=calls))
  return folder


@pytest.fixture
def server(tmp_path):
  """With TLS and a token."""
  authority = trustme.CA()
  pair = authority.issue_cert("box.example")
  authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
  secret = new_token(tmp_path / "tokens.jsonl", "alice")
  (tmp_path / "secret").write_text(secret)
  (tmp_path / "wrong").write_text("wrong")
  listen = Listen(certificate=pair.cert_chain_pems[0].bytes(), key=pair.private_key_pem.bytes())
  with Server(ToyEngine(), listen, tokens=TokenFile(tmp_path / "tokens.jsonl")) as running:
    yield running


def test_a_load_over_a_network_without_jax(traces):
  """The report goes to stdout alone; the relay is in the package."""
  code = (
    "import sys\n"
    "from jaxspec.cli.main import main\n"
    "try: main()\n"
    "finally: assert not {'jax', 'flax', 'experiments'} & {name.partition('.')[0] for name in sys.modules}\n"
  )
  with Server(ToyEngine()) as server:
    args = ("link", "load", server.address, "--trace", traces, "--devices", 3, "--network", "5g")
    command = [sys.executable, "-c", code, *map(str, args)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=60)
  assert outcome.returncode == 0, outcome.stderr
  found = json.loads(outcome.stdout)
  one, all_ = found["stages"]
  assert (one["devices"], all_["devices"], found["traces"], found["network"]) == (1, 3, 2, "5g")
  assert all_["differing"] == 0 and not all_["failures"] and all_["link"]["link_seconds"] > 0.01 * (all_["calls"] + 3)
  assert all_["call_s"]["p50"] >= 0.010 and outcome.stderr.splitlines() == ["1 device", "3 devices"]


def test_what_is_wrong_is_one_line(fails, server, traces, tmp_path):
  with socket.create_server(("127.0.0.1", 0)) as free:
    nobody = f"grpc://127.0.0.1:{free.getsockname()[1]}"
  load = lambda *args: fails("link", "load", *args)
  port = server.address.rpartition(":")[2]
  here = (f"grpcs://127.0.0.1:{port}", "--ca", "ca.pem")
  assert "no server answers" in load(nobody, "--trace", traces)
  assert "grpcs://HOST:PORT" in load("127.0.0.1:1", "--trace", traces)
  assert "grpcs:// to send prompts" in load("grpc://example.org:1", "--trace", traces)
  assert "none in it" in load(nobody, "--trace", tmp_path)
  assert "no folder" in load(nobody, "--trace", "nowhere")
  (tmp_path / "odd").mkdir()
  (tmp_path / "odd" / "a.json").write_text("{")
  assert "no JSON" in load(nobody, "--trace", "odd")
  assert "is of another name than 127.0.0.1" in load(*here, "--trace", traces)
  assert "Cannot read nothing" in load(nobody, "--trace", traces, "--token-file", "nothing")
  assert "Missing option '--trace'" in load(nobody)
  assert "'3g' is not one of" in load(nobody, "--trace", traces, "--network", "3g")
  assert "Must have a command in load, relay" in fails("link", "unload")


def test_tokens_of_a_load(fails, server, traces, tmp_path, monkeypatch):
  """With the name of the certificate given, the token decides."""
  from jaxspec.cli import cloud_options

  named = lambda address, **kwargs: connect(address, **(dict(server_name="box.example") | kwargs))
  monkeypatch.setattr(cloud_options, "connect", named)
  load = lambda *args: fails("link", "load", server.address, "--ca", "ca.pem", "--trace", traces, *args)
  assert "token" in load() and "UNAUTHENTICATED" in load()
  assert "not known" in load("--token-file", "wrong")
  assert "the metrics of a server" in load("--token-file", "secret", "--metrics", "127.0.0.1:1")


def test_a_load_through_a_relay_with_tls(run, traces, tmp_path):
  """The certificate is that of the host that was named, not of the relay."""
  authority = trustme.CA()
  pair = authority.issue_cert("localhost")
  authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
  listen = Listen("localhost:0", certificate=pair.cert_chain_pems[0].bytes(), key=pair.private_key_pem.bytes())
  with Server(ToyEngine(), listen) as server:
    outcome = run("link", "load", server.address, "--ca", "ca.pem", "--trace", traces, "--devices", 1, "--network", "5g")
  assert outcome.exit_code == 0, outcome.output
  assert json.loads(outcome.stdout)["stages"][0]["differing"] == 0


def test_a_reply_that_is_not_the_recorded_one(run, traces):
  for path in traces.iterdir():
    text = path.read_text()
    path.write_text(text.replace(json.loads(text)["calls"][2]["reply"], "00"))
  with Server(ToyEngine()) as server:
    outcome = run("link", "load", server.address, "--trace", traces, "--devices", 2)
  assert outcome.exit_code == 2 and json.loads(outcome.stdout)["stages"][1]["differing"] == 2
  assert outcome.stderr.splitlines()[-1] == "Error: 3 devices got a reply that is not the recorded one"


def test_a_relay(fails, tmp_path):
  assert "TARGET as HOST:PORT" in fails("link", "relay", "8443", "--network", "4g")
  assert "--listen as HOST:PORT" in fails("link", "relay", "a:1", "--network", "4g", "--listen", "x")
  assert "a port from 0 to 65535" in fails("link", "relay", "a:1", "--network", "4g", "--listen", "a:65536")
  assert "a port from 1 to 65535" in fails("link", "relay", "a:0", "--network", "4g")
  assert "Missing option '--network'" in fails("link", "relay", "a:1")
  with socket.create_server(("127.0.0.1", 0)) as taken:
    where = f"127.0.0.1:{taken.getsockname()[1]}"
    options = ("--network", "4g", "--listen", where)
    assert f"Cannot listen on {where}: the port is taken" in fails("link", "relay", "127.0.0.1:1", *options)
    # Before it listens: a thread that had just begun to would end in a traceback.
    words = "Cannot relay to nowhere.invalid:1: there is no host of the name"
    assert words in fails("link", "relay", "nowhere.invalid:1", *options)
  command = [sys.executable, "-m", "jaxspec.cli.main", "link", "relay", "127.0.0.1:1", "--network", "wifi"]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    line = process.stdout.readline()
    process.terminate()
  assert line.startswith("relaying at 127.0.0.1:") and process.returncode == 143


def test_a_load_with_a_certificate_of_its_own(run, fails, traces, tmp_path):
  """To a server that asks edges for one; without it, or without its key, that is one line."""
  authority = trustme.CA()
  pair, own = authority.issue_cert("127.0.0.1"), authority.issue_cert("edge")
  authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
  own.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
  own.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
  listen = Listen(
    certificate=pair.cert_chain_pems[0].bytes(), key=pair.private_key_pem.bytes(), client_ca=authority.cert_pem.bytes()
  )
  with Server(ToyEngine(), listen) as server:
    load = ("link", "load", server.address, "--ca", "ca.pem", "--trace", traces, "--devices", 1)
    outcome = run(*load, "--cert", "cert.pem", "--key", "key.pem")
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(outcome.stdout)["stages"][0]["differing"] == 0
    assert "a certificate of the edge (--cert, --key)" in fails(*load)
    pair.private_key_pem.write_to_path(str(tmp_path / "another.pem"))
    assert "we instead got that of another certificate" in fails(*load, "--cert", "cert.pem", "--key", "another.pem")
  assert "both --cert and --key, we instead got --cert alone" in fails(*load, "--cert", "cert.pem")
  assert "both --cert and --key, we instead got --key alone" in fails(*load, "--key", "key.pem")
  assert "Cannot read nothing" in fails(*load, "--cert", "nothing", "--key", "key.pem")
  assert "a private key in PEM in --key" in fails(*load, "--cert", "cert.pem", "--key", "cert.pem")
