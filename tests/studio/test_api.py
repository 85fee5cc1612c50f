"""The API of the studio: streams, refusals, files, and commands that decode the same tokens."""

import asyncio
import dataclasses
import json
import shlex

import numpy as np
import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from jaxspec.cli.main import main
from jaxspec.cli.networks import load_sources
from jaxspec.core.options import options_of
from jaxspec.run.decode_options import DecodeOptions
from jaxspec.run.sources import Sources
from jaxspec.studio import reproduce, schema
from jaxspec.studio.studio_session import StudioSession
from tests.cli.command_lines import parse
from tests.run import tiny

JSON = {"content-type": "application/json"}
RACE = {"prompts": ["red apple"], "entrants": [{"method": "speculative"}]}


def events_of(reply) -> list[dict]:
  return [json.loads(line) for line in reply.text.splitlines() if line]


def race(client, **changes) -> list[dict]:
  reply = client.post("/api/race", json=RACE | changes)
  assert reply.status_code == 200, reply.text
  return events_of(reply)


@pytest.fixture
def client(app):
  return TestClient(app)


def test_controls_are_those_of_the_declarations(client, session):
  about = client.get("/api/about").json()
  from jaxspec.methods import METHODS

  assert [method["name"] for method in about["methods"]] == session.pipeline.methods()
  for method in about["methods"]:
    assert list(method["options"]) == list(options_of(METHODS[method["name"]]))
  speculative = next(method for method in about["methods"] if method["name"] == "speculative")
  assert speculative["options"]["gamma"]["default"] == 2  # of the bundle, not of the class
  assert about["sampling"]["top_k"]["default"] == 6 and "distilled" in speculative["drafts"]


@pytest.mark.slow
def test_a_race_of_two(client, session):
  """Every token comes once, with its round; both have one key; figures, pictures and files follow."""
  found = race(client, entrants=[{"method": "speculative"}, {"method": "ar"}], prompts=["red apple", "cat"], whole=True)
  kinds = [event["event"] for event in found]
  assert kinds[0] == "queued" and kinds[-1] == "finished" and "error" not in kinds
  for number in (0, 1):
    rounds = [event for event in found if event["event"] == "round" and event["lane"] == number]
    (done,) = (event for event in found if event["event"] == "done" and event["lane"] == number)
    for row in (0, 1):
      positions = [token[0] for event in rounds for token in event["rows"][row]["tokens"]]
      assert positions == list(range(4))
      assert all(token[2] == event["round"] for event in rounds for token in event["rows"][row]["tokens"])
    for name in ("drafted", "accepted"):
      assert sum(row[name] for event in rounds for row in event["rows"]) == done["figures"][name]
    assert done["figures"]["whole_same"] and len(done["images"]) == 2
    assert all(image.startswith("data:image/png;base64,") for image in done["images"])
  finished = found[-1]
  image = client.get(f"/api/races/{finished['name']}/images.png")
  assert image.content.startswith(b"\x89PNG") and image.headers["content-type"] == "image/png"
  document = client.get(f"/api/races/{finished['name']}/figures.json").json()
  assert [next(iter(one["methods"])) for one in document["race"]] == ["speculative", "ar"]


@pytest.mark.slow
def test_traced_values_compile_nothing(client):
  race(client)
  changed = {"seed": 7, "sampling": {"temperature": 0.5}}
  assert client.post("/api/check", json=RACE | changed).json()["compiles"] == [False]
  found = race(client, **changed)
  assert [event["traces"] for event in found if event["event"] in ("ready", "round")][-1] == 0
  static = {"entrants": [{"method": "speculative", "options": {"gamma": 1}}]}
  assert client.post("/api/check", json=RACE | static).json()["compiles"] == [True]
  found = race(client, **static)
  (warming,) = (event for event in found if event["event"] == "warming")
  assert warming["compiles"]
  assert next(event for event in reversed(found) if event["event"] == "done")["figures"]["traces"] >= 2
  assert client.post("/api/check", json=RACE | static).json()["compiles"] == [False]


@pytest.mark.slow
def test_the_audit_of_a_lossy_method(client):
  found = race(
    client, entrants=[{"method": "scaled", "options": {"window": 2, "factor": 4.0}}, {"method": "speculative"}], audit=True
  )
  lossy, exact = (event["figures"] for event in found if event["event"] == "done")
  assert lossy["audit"]["tv"]["value"] > 1e-4 > exact["audit"]["tv"]["value"]
  assert not lossy["is_exact"] and lossy["doubts_are"] and exact["is_exact"]
  doubts = [row.get("doubts") for event in found if event["event"] == "round" for row in event["rows"]]
  assert any(value is not None for values in doubts for value in values)


@pytest.mark.slow
def test_command_and_python_repeat_the_tokens(client, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  entrant = {"method": "speculative", "draft": "distilled", "options": {"gamma": 1}}
  found = race(client, entrants=[entrant], prompts=["red apple", "a cat"], sampling={"temperature": 0.7}, seed=3)
  finished = found[-1]
  document = client.get(f"/api/races/{finished['name']}/figures.json").json()["race"][0]
  wanted = [image["speculative"]["tokens"] for image in document["images"]]
  scope = {}
  exec(finished["snippets"][0], scope)
  np.testing.assert_array_equal(scope["out"].tokens, wanted)
  words = shlex.split(finished["commands"][0])
  words[2:2] = ["--json", "figures.json", "--no-cache"]
  outcome = CliRunner().invoke(main, words[1:])
  assert outcome.exit_code == 0, outcome.output
  again = json.loads((tmp_path / "figures.json").read_text())
  assert [image["speculative"]["tokens"] for image in again["images"]] == wanted


def test_converted_networks_are_named_where_a_race_is_repeated(tmp_path):
  """A draft by its folder or by its name, never by both, which the command line refuses."""
  folder = tiny.classes(tmp_path)
  networks = Sources(folder / "target", tokenizer=folder / "vq", draft_model=folder / "draft")
  session = StudioSession(load_sources(networks, matmul_precision="float32"), networks)
  assert session.describe()["kind"] == "class" and session.describe()["example"] == "0"
  for method, draft in (("speculative", True), ("ar", False)):
    request = schema.ComparisonRequest(["3"], [DecodeOptions(method, None, {"gamma": 2})])
    job = session.resolve(request).entrants[0].job
    words = shlex.split(reproduce.command(job, session.kind, request, networks))
    assert ("--draft-model" in words, "--draft" in words) == (draft, False)
    parse(words[1:])
    scope = {}
    exec(reproduce.snippet(job, session.kind, request, networks).partition("method =")[0], scope)
    assert list(scope["pipe"].drafts) == ["draft"] and scope["pipe"].encode([3]).captions == ["class 3"]


WRONG = {
  "gamma": {"entrants": [{"method": "speculative", "options": {"gamma": 0}}]},
  "temperature": {"sampling": {"temperature": "warm"}},
  "gamma below": {"entrants": [{"method": "speculative", "options": {"gamma": 999}}]},
  "method": {"entrants": [{"method": "speculativ"}]},
  "1 to 3 methods": {"entrants": [{"method": "ar"}] * 4},
  "seed": {"seed": -1},
  "at most 400 characters": {"prompts": ["a" * 401]},
  "1 to 4 prompts": {"prompts": []},
  "a word in every prompt": {"prompts": ["!!"]},
  "one line": {"prompts": ["a\x07"]},
  "options that method": {"entrants": [{"method": "ar", "options": {"gamma": 1}}]},
  "true or false": {"audit": 1},
  "fields of a race": {"out": "/etc/passwd"},
  "draft": {"entrants": [{"method": "speculative", "draft": "../../etc"}]},
  "sampling settings": {"sampling": {"gravity": 1}},
  "max_tokens": {"max_tokens": 8},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_values_get_one_line(client, message):
  for path in ("/api/check", "/api/race"):
    reply = client.post(path, json=RACE | WRONG[message])
    assert reply.status_code == 400 and message.split()[0] in reply.json()["message"], reply.text
    assert message in reply.json()["message"] or message == "gamma below"
    assert "\n" not in reply.json()["message"]


def test_what_is_no_request_is_refused(client, app):
  assert client.post("/api/race", content=b"{", headers=JSON).status_code == 400
  assert client.post("/api/race", content=json.dumps(RACE), headers={"content-type": "text/plain"}).status_code == 400
  assert "bytes" in client.post("/api/race", json=RACE | {"prompts": ["a" * 40_000]}).json()["message"]
  assert client.post("/api/race", content=b"[NaN]", headers=JSON).status_code == 400
  half = client.post("/api/check", content=json.dumps(RACE | {"prompts": ["red \ud83d"]}), headers=JSON)
  assert half.status_code == 400 and "whole characters" in half.json()["message"]


@pytest.mark.parametrize(
  "host, how",
  [
    ("evil.example:8765", "--host-name evil.example"),  # a name that was pointed here
    ("TESTSERVER.evil.example", "--host-name testserver.evil.example"),
    ("127.0.0.1.evil.example", "--host-name 127.0.0.1.evil.example"),
    ("<b>", "use its IP address"),
    ("", "use its IP address"),
  ],
)
def test_a_refused_host_says_how_to_allow_it(client, host, how):
  for path in ("/", "/api/about"):
    reply = client.get(path, headers={"host": host})
    assert reply.status_code == 400 and how in reply.text and repr(host) in reply.text
    assert reply.text.count("\n") == 1 and reply.headers["content-type"].startswith("text/plain")
  assert client.post("/api/race", json=RACE, headers={"host": host}).status_code == 400


@pytest.mark.parametrize("host", ["testserver:8765", "TestServer", "127.0.0.1:8765", "192.168.1.20", "[::1]:8765"])
def test_names_that_were_given_and_addresses_are_let_in(client, host):
  """A phone asks by an address, which no other site can point here."""
  assert client.get("/", headers={"host": host}).status_code == 200


def test_the_page_allows_nothing_from_elsewhere(client):
  for path in ("/", "/controls.js", "/maps.js", "/replay.js", "/studio.js", "/studio.css"):
    reply = client.get(path)
    assert reply.status_code == 200 and "default-src 'none'" in reply.headers["content-security-policy"]
    assert "http://" not in reply.text and "https://" not in reply.text
  assert client.get("/../pyproject.toml").status_code == client.get("/%2e%2e/session.py").status_code == 404


def test_files_are_written_into_the_folder_only(client, tmp_path):
  name = race(client)[-1]["name"]
  written = client.post(f"/api/races/{name}/write", json={}).json()["written"]
  assert sorted(path.name for path in (tmp_path / "races").iterdir()) == sorted(written) and len(written) == 3
  assert [path.name for path in tmp_path.iterdir()] == ["races"]
  assert client.post("/api/races/..%2f..%2fx/write", json={}).status_code in (400, 404)
  assert "name of a stored comparison" in client.post("/api/races/nobody/write", json={}).json()["message"]
  assert client.get(f"/api/races/{name}/secret.txt").status_code == 400


def test_nothing_is_written_without_a_folder(session):
  from jaxspec.studio.api import make_app

  client = TestClient(make_app(session, hosts=["testserver"]))
  assert not client.get("/api/about").json()["writes"]
  assert "--out" in client.post(f"/api/races/{race(client)[-1]['name']}/write", json={}).json()["message"]


def test_seconds_on_a_link(client):
  use = {"uplink_bits": 8_000_000, "downlink_bits": 0, "calls": 10}
  reply = client.post("/api/link", json={"rate_mbps": 8, "latency_ms": 50, "uses": [use]})
  assert reply.json()["seconds"] == pytest.approx([1.5])
  assert "rate_mbps" in client.post("/api/link", json={"rate_mbps": 0, "latency_ms": 50, "uses": []}).json()["message"]


@pytest.mark.slow
def test_a_closed_tab_stops_its_decode(app, monkeypatch):
  """The decode of a connection that closes after its first round ends long before its last one."""
  from jaxspec.studio.method_run import MethodRun

  steps, step = [], MethodRun.step
  gone = asyncio.Event()

  def slow(self):
    import time

    steps.append(1)
    time.sleep(0.2)
    return step(self)

  monkeypatch.setattr(MethodRun, "step", slow)
  body = json.dumps(RACE | {"entrants": [{"method": "ar"}] * 3, "prompts": ["red apple"]}).encode()
  headers = [(b"host", b"testserver"), (b"content-type", b"application/json")]
  scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
  scope |= {"path": "/api/race", "raw_path": b"/api/race", "query_string": b"", "headers": headers}

  async def visit():
    asked_for = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
      if asked_for:
        return asked_for.pop()
      await gone.wait()
      return {"type": "http.disconnect"}

    async def send(message):
      if b'"round"' in message.get("body", b""):
        gone.set()

    await asyncio.wait_for(app(scope, receive, send), 120)
    await asyncio.sleep(1.0)

  asyncio.run(visit())
  assert 1 <= len(steps) <= 6  # of 15


def test_several_users_at_once_get_all_of_their_tokens(app):
  """Each client has its own event loop, with one common queue."""
  from concurrent.futures import ThreadPoolExecutor

  with ThreadPoolExecutor(4) as pool:
    found = list(pool.map(lambda seed: race(TestClient(app), seed=seed), range(4)))
  for events in found:
    assert events[-1]["event"] == "finished"
    assert sum(len(row["tokens"]) for event in events if event["event"] == "round" for row in event["rows"]) == 4


def test_a_full_queue_says_so(app, monkeypatch):
  monkeypatch.setattr("jaxspec.studio.worker.MAX_WAITING", 0)
  (event,) = race(TestClient(app))
  assert event["event"] == "error" and "queue" in event["message"]


def test_reading_a_request():
  found = schema.read(RACE | {"entrants": [{"method": "gsd", "options": {"max_gap": "inf"}}]})
  assert found.entrants[0].options["max_gap"] == float("inf") and found.seed == 0
  for wrong in (None, [], {"prompts": "a"}):
    with pytest.raises(ValueError, match="^Must have"):
      schema.read(wrong)


def test_commands_with_a_precision_that_only_jax_has_a_name_for(session):
  wanted = schema.read({"prompts": ["red apple"], "entrants": [{"method": "ar"}], "seed": 3})
  job = session.resolve(wanted).entrants[0].job
  job = dataclasses.replace(job, pipeline=dataclasses.replace(job.pipeline, matmul_precision="tensorfloat32"))
  command = reproduce.command(job, "prompt", wanted)
  assert command.startswith("JAX_DEFAULT_MATMUL_PRECISION=tensorfloat32 jaxspec generate --method ar")
  lines = reproduce.snippet(job, "prompt", wanted).splitlines()
  assert "jax.config.update(\"jax_default_matmul_precision\", 'tensorfloat32')" in lines
  assert "jaxspec.load_pipeline(dtype='float32')" in lines[3] and "key=3" in lines[-1]
