"""Devices that play traces against a server of the toy engine, and their report."""

import json
import math
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import trustme

from experiments.server import load
from experiments.server.load import Device, run_load, stage_report, stages
from experiments.server.player import Played
from experiments.server.server_metrics import Counters, quantile, read_metrics, server_report
from experiments.server.trace import write_trace
from jaxspec.serving.edge.connection import connect
from jaxspec.serving.edge.retries import Policy
from jaxspec.serving.server.bearer_tokens import TokenFile, new_token
from jaxspec.serving.server.server import Listen, Server
from jaxspec.serving.wire.link_model import NETWORKS, link_seconds
from tests.exit_status import status_of
from tests.experiments.server.test_trace import recorded
from tests.serving.edge.toy_engine import ToyEngine

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def traces():
  found = [recorded(number, lazy=number == 1)[0] for number in range(3)]
  return [trace._replace(calls=tuple(call._replace(think_s=0.005) for call in trace.calls)) for trace in found]


@pytest.fixture
def server():
  with Server(ToyEngine(rows=8, step_s=0.001)) as running:
    yield running


def test_stages():
  assert stages(64) == [1, 8, 64] and stages(1) == [1] and stages(100) == [1, 8, 64, 100] and stages(5) == [1, 5]


@pytest.mark.slow
def test_a_report(server, traces):
  """Every reply is the recorded one; the server's counters agree with the calls of the devices."""
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  stop = server.metrics.listen("127.0.0.1", port)
  read = lambda: read_metrics(f"127.0.0.1:{port}")
  found = run_load(lambda: connect(server.address), traces, devices=9, metrics=read)
  stop()
  assert json.loads(json.dumps(found)) == found and [stage["devices"] for stage in found["stages"]] == [1, 8, 9]
  for stage in found["stages"]:
    played = [traces[index % 3] for index in range(stage["devices"])]
    assert (stage["differing"], stage["failures"], stage["retries"], stage["resumes"]) == (0, [], 0, 0)
    calls = sum(len(trace.calls) for trace in played)
    assert stage["calls"] == calls == stage["server"]["call_s"]["count"]
    assert stage["server"]["open_s"]["count"] == len(played) and 0 < stage["open_s"]["p50"] <= stage["open_s"]["p99"]
    assert stage["tokens"] == sum(trace.num_tokens for trace in played)
    assert stage["tokens_per_s"] == pytest.approx(stage["tokens"] / stage["seconds"])
    frames = sum(len(call.frame) for trace in played for call in trace.calls)
    assert stage["server"]["frame_bytes"]["up"] == frames < stage["bytes"]["up"]
    assert 0 < stage["call_s"]["p50"] <= stage["call_s"]["p99"] and stage["server"]["step_s"]["count"] > 0
    assert stage["server"]["rows_per_step"] * stage["server"]["step_s"]["count"] == pytest.approx(calls + len(played))
    assert stage["think_s"] == pytest.approx(sum(call.think_s for trace in played for call in trace.calls))
  assert not server.engine_thread.engine.streams and found["stages"][2]["server"]["rows_per_step"] > 1


def test_devices_that_are_not_answered(server, traces):
  """Another reply, a stopped server: counted, and the others continue."""
  trace = traces[0]
  odd = trace._replace(calls=(trace.calls[0]._replace(reply=b"another one"), *trace.calls[1:]))
  (stage,) = run_load(lambda: connect(server.address), [odd], devices=1)["stages"]
  assert stage["differing"] == 1 and stage["tokens"] == 0 and stage["calls"] == 1 and not stage["failures"]
  server.engine_thread.engine.fails = True
  impatient = dict(devices=2, policy=Policy(give_up_s=0.2))
  first, second = run_load(lambda: connect(server.address, patience_s=0.2), traces, **impatient)["stages"]
  assert len(first["failures"]) == 1 and len(second["failures"]) == 2 and "no server replies" in second["failures"][1]
  assert second["calls"] == 0 and second["call_s"] is None


def test_what_a_stage_says_of_the_link():
  played = Played(0.2, (0.3,), 1.0, None, 10, 1, 2)
  done = [Device(played, 2.0, None), Device(None, 0.1, "gone")]
  values = {("jaxspec_call_seconds_bucket", "0.1"): 2.0, ("jaxspec_call_seconds_bucket", "+Inf"): 2.0}
  values |= {("jaxspec_call_seconds_count", ""): 2.0, ("jaxspec_call_seconds_sum", ""): 0.1}
  found = stage_report(done, 4.0, sent=(1000, 500), network="4g", server=Counters(values))
  assert (found["retries"], found["resumes"], found["failures"]) == (1, 2, ["gone"])
  assert found["tokens_per_s"] == 2.5 and found["tokens_per_s_of_a_device"]["p50"] == 5.0
  assert found["fairness"] == {"jain": 1.0, "least": 1.0}
  unfair = stage_report([Device(played, 1.0, None), Device(played, 3.0, None)], 4.0, sent=(0, 0))["fairness"]
  assert unfair == pytest.approx({"jain": (4 / 3) ** 2 / (2 * 10 / 9), "least": 0.5})
  assert stage_report([], 1.0, sent=(0, 0))["fairness"] is None
  link = found["link"]
  assert link["measured_s"] == pytest.approx(0.4) and link["server_s"] == pytest.approx(0.1)
  wanted = link_seconds(NETWORKS["4g"], uplink_bytes=1000, downlink_bytes=500, calls=2).total
  assert link["link_seconds"] == pytest.approx(wanted) and found["server"]["queue_s"] is None
  alone = stage_report(done, 4.0, sent=(1000, 500), network="4g")
  assert alone["link"]["measured_s"] is None and alone["server"] is None


def test_quantiles_of_buckets():
  bounds = [(1.0, 2.0), (2.0, 6.0), (4.0, 8.0), (math.inf, 8.0)]
  assert quantile(bounds, 0.25) == 1.0 and quantile(bounds, 0.5) == 1.5 and quantile(bounds, 1.0) == 4.0
  assert quantile([(1.0, 0.0), (math.inf, 4.0)], 0.5) == 1.0
  before, after = Counters({("a", ""): 5.0, ("b", ""): 5.0}), Counters({("a", ""): 7.0, ("b", ""): 3.0, ("c", ""): 1.0})
  assert after.since(before).values == {("a", ""): 2.0, ("b", ""): 3.0, ("c", ""): 1.0}
  assert server_report(Counters({}))["step_s"] is None


def test_metrics_that_are_not_there():
  with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
  with pytest.raises(ValueError, match=f"the metrics of a server at http://127.0.0.1:{port}") as caught:
    read_metrics(f"127.0.0.1:{port}")
  assert "\n" not in str(caught.value)


@pytest.fixture
def folder(traces, tmp_path, monkeypatch):
  """The traces as files, in an empty working directory."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / "traces").mkdir()
  for number, trace in enumerate(traces[:2]):
    write_trace(tmp_path / "traces" / f"{number}.json", trace)
  return tmp_path / "traces"


def command(capsys, *args):
  """Exit status, report and the lines on stderr of a load by the traces of `folder`."""
  status = status_of(load.main, *args, "--trace", "traces")
  out, err = capsys.readouterr()
  return status, json.loads(out) if out else None, err.splitlines()


@pytest.mark.slow
def test_a_load_over_a_network_without_jax(server, folder):
  """The report goes to stdout alone."""
  code = (
    "import sys\n"
    "from experiments.server.load import main\n"
    "try: main()\n"
    "except SystemExit as ended: status = ended.code\n"
    "assert not {'jax', 'flax'} & {name.partition('.')[0] for name in sys.modules}\n"
    "sys.exit(status)\n"
  )
  words = [sys.executable, "-c", code, server.address, "--trace", folder, "--devices", "3", "--network", "5g"]
  outcome = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=ROOT)
  assert outcome.returncode == 0, outcome.stderr
  found = json.loads(outcome.stdout)
  one, last = found["stages"]
  assert (one["devices"], last["devices"], found["traces"], found["network"]) == (1, 3, 2, "5g")
  assert last["differing"] == 0 and not last["failures"] and last["link"]["link_seconds"] > 0.01 * (last["calls"] + 3)
  assert last["call_s"]["p50"] >= 0.010 and outcome.stderr.splitlines() == ["1 device", "3 devices"]


def test_what_is_wrong_with_a_load_is_one_line(folder, capsys):
  with socket.create_server(("127.0.0.1", 0)) as free:
    nobody = f"grpc://127.0.0.1:{free.getsockname()[1]}"
  fails = lambda *args: _one_line(command(capsys, *args))
  assert "no server replies" in fails(nobody, "--give-up", 0.2)
  assert "grpcs://HOST:PORT" in fails("127.0.0.1:1")
  assert "No such file" in fails(nobody, "--token-file", "nothing")
  with Server(ToyEngine()) as server:
    assert "the metrics of a server" in fails(server.address, "--metrics", "127.0.0.1:1")
  for path in folder.iterdir():
    path.unlink()
  assert "none in it" in fails(nobody)


def _one_line(outcome):
  status, report, lines = outcome
  assert status == 2 and report is None and len(lines) == 1, outcome
  return lines[0].removeprefix("Error: ")


def test_a_load_through_a_relay_with_tls_and_a_token(folder, capsys, tmp_path):
  """The certificate is that of the named host, not of the relay."""
  authority = trustme.CA()
  pair = authority.issue_cert("localhost")
  authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
  (tmp_path / "secret").write_text(new_token(tmp_path / "tokens.jsonl", "alice") + "\n")
  listen = Listen("localhost:0", certificate=pair.cert_chain_pems[0].bytes(), key=pair.private_key_pem.bytes())
  with Server(ToyEngine(), listen, tokens=TokenFile(tmp_path / "tokens.jsonl")) as server:
    args = (server.address, "--ca", "ca.pem", "--devices", 1, "--network", "5g")
    status, report, _ = command(capsys, *args, "--token-file", "secret")
    assert status == 0 and report["stages"][0]["differing"] == 0
    assert "a token is needed" in _one_line(command(capsys, *args))


def test_a_reply_that_is_not_the_recorded_one(server, folder, capsys):
  for path in folder.iterdir():
    text = path.read_text()
    path.write_text(text.replace(json.loads(text)["calls"][2]["reply"], "00"))
  status, report, lines = command(capsys, server.address, "--devices", 2)
  assert status == 2 and report["stages"][1]["differing"] == 2
  assert lines[-1] == "Error: 3 devices got a reply that is not the recorded one"
