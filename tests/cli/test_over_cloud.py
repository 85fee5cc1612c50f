"""``jaxspec generate --cloud``: the text of ``generate``, with the target's weights elsewhere."""

import json
import shutil
import socket
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import trustme

import jaxspec
from jaxspec.io import checkpoints
from jaxspec.io.checkpoints import PARAMS_FILE
from jaxspec.methods import Ciar, Sqs
from jaxspec.serving.edge.grpc_client import GrpcCloud
from jaxspec.serving.server.bearer_tokens import TokenFile, new_token
from jaxspec.serving.server.quotas import Quota
from jaxspec.serving.server.server import Listen, Server
from jaxspec.serving.wire.cloud import CloudError, Status
from tests import shallow
from tests.cli import fake_bundle, fake_language
from tests.serving.edge.toy_engine import ToyEngine

SIZES = dict(max_streams=2, max_rows=2, widths=(8,))
OPTIONS = dict(sparsifier="topk", support=4, max_drafts=4)
TEXTS = ("--text", "once", "--text", "on a")
JSON = ("--json", "figures.json")


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
  """A pair, and the same without the weights of its target."""
  folder = fake_language.make(tmp_path_factory.mktemp("language") / "pair")
  return folder, without_target(folder)


def without_target(folder):
  edge = shutil.copytree(folder, folder.parent / "edge")
  (edge / "target" / PARAMS_FILE).unlink()
  return edge


@pytest.fixture(scope="module")
def server(networks):
  """With a token, and one of one stream; without drafts, so that little is compiled."""
  tokens = networks[0].parent / "tokens.jsonl"
  secret = new_token(tokens, "alice")
  (networks[0].parent / "secret").write_text(secret + "\n")
  (networks[0].parent / "of-one-stream").write_text(new_token(tokens, "bob", Quota(streams=1)))
  with jaxspec.serve(
    networks[0], methods=["ar"], tokens=tokens, max_prompt=8, max_len=12, matmul_precision="float32", **SIZES
  ) as running:
    yield running


@pytest.fixture
def over(networks, server):
  """The arguments of a decode over the server."""
  return ("--checkpoint", networks[1], "--cloud", server.address, "--token-file", networks[0].parent / "secret")


def flags(**options):
  return [item for name, value in options.items() for item in (f"--{name.replace('_', '-')}", value)]


def rows_of(document, name):
  """Text, tokens and counters of every row."""
  return [entry[name] for entry in document["texts"]]


def decoded(outcome, code=0):
  assert outcome.exit_code == code, (outcome.output, outcome.exception)
  with open("figures.json", encoding="utf-8") as file:
    return json.load(file)


PLAIN = ("--method", "ar", "--max-tokens", 10, *JSON)


@pytest.mark.slow
def test_the_text_of_generate_without_the_weights(run, networks, over):
  """The figures too, and what crossed is counted with its headers."""
  far = run("generate", *TEXTS, *over, *PLAIN)
  document = decoded(far)
  near = run("generate", *TEXTS, "--checkpoint", networks[0], *PLAIN, "--matmul-precision", "float32")
  wanted = decoded(near)
  assert rows_of(document, "ar") == rows_of(wanted, "ar") and document["settings"] == wanted["settings"]
  shown = lambda outcome: outcome.stdout.partition("edge" if outcome is far else "pair")[0]
  assert shown(far) == shown(near) and "bytes in all per text" in far.stdout
  messages = document["methods"]["ar"]["messages"]
  traffic = messages["traffic"]
  assert messages["server"] == over[3] and messages["same_tokens"] is None
  assert traffic["transport_bytes"] > traffic["uplink_bytes"] + traffic["downlink_bytes"] > 0


@pytest.mark.slow
def test_what_the_server_has_not_is_one_line(fails, run, networks, over, tmp_path):
  refused = lambda *args: fails("generate", "--text", "on", "--max-tokens", 10, *over, *args)
  line = refused("--method", "sqs")
  assert "that the cloud has (method=plain rule=exact), we instead got method=sqs rule=exact window=16 coding=paper" in line
  plain = ("--method", "ar")
  assert "top_k=3" in refused(*plain, "--top-k", 3) and "nucleus" in refused(*plain, "--top-p", 0.5)
  assert "at most 12 tokens" in refused(*plain, "--max-tokens", 13)
  assert "we instead got speculative" in refused("--method", "speculative")
  assert "one text, we instead got 2" in fails("generate", *TEXTS, *over, *PLAIN, "--journal", "j")
  (tmp_path / "wrong").write_text("wrong")
  assert "not known" in refused(*plain, "--token-file", "wrong")
  (tmp_path / "two").write_text("one two")
  assert "one secret" in refused(*plain, "--token-file", "two")
  other = shutil.copytree(networks[0], tmp_path / "other")
  fake_bundle.save_random(other / "target", fake_language.TARGET, 9, scale=0.2)
  fake_language.tokenizer().save(str(other / "target" / "tokenizer.json"))
  elsewhere = [other if word == over[over.index("--checkpoint") + 1] else word for word in over]
  of_other = lambda *args: fails("generate", "--text", "on", "--max-tokens", 10, *elsewhere, *args)
  assert "networks of one bundle" in of_other(*plain)
  config = other / "target" / "config.json"
  (other / "target" / PARAMS_FILE).unlink()
  config.write_text(json.dumps({name: value for name, value in json.loads(config.read_text()).items() if name != "sha256"}))
  assert "or its sha256 in config.json" in of_other(*plain)


def test_options_that_do_not_go_together(fails):
  cloud = ("generate", "--text", "on", "--cloud", "grpc://127.0.0.1:1")
  for name, value in (("--compare", ()), ("--wire", ()), ("--network", ("4g",)), ("--repeats", (2,))):
    assert f"{name} needs the target in this process" in fails(*cloud, name, *value)
  for name in ("--token-file", "--ca", "--cert", "--key", "--journal", "--give-up"):
    assert f"{name} goes with --cloud" in fails("generate", "--text", "on", name, 1)
  assert "--insecure goes with --cloud" in fails("generate", "--text", "on", "--insecure")
  assert "Cannot read nowhere" in fails(*cloud, "--token-file", "nowhere")
  assert "Cannot read nowhere" in fails(*cloud, "--ca", "nowhere")
  assert "both --cert and --key, we instead got --cert alone" in fails(*cloud, "--cert", "nowhere")
  assert "no server replies at 127.0.0.1:1" in fails(*cloud)
  assert "grpcs://HOST:PORT" in fails("generate", "--text", "on", "--cloud", "127.0.0.1:1")
  assert "grpcs:// to send prompts" in fails("generate", "--text", "on", "--cloud", "grpc://example.org:1")


def test_a_certificate_of_the_edge(fails, networks, tmp_path):
  """A server that requires one; with another network, the error names the server's."""
  authority = trustme.CA()
  pair, own = authority.issue_cert("127.0.0.1"), authority.issue_cert("edge")
  authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
  own.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
  own.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
  pems = dict(certificate=pair.cert_chain_pems[0].bytes(), key=pair.private_key_pem.bytes())
  with Server(ToyEngine(), Listen(**pems, client_ca=authority.cert_pem.bytes())) as server:
    where = ("--checkpoint", networks[1], "--cloud", server.address, "--ca", "ca.pem")
    line = fails("generate", "--text", "on", *where, *PLAIN, "--cert", "cert.pem", "--key", "key.pem")
  assert "networks of one bundle" in line


@pytest.mark.slow
def test_rows_before_a_failure_are_written(run, over, monkeypatch):
  """They are printed and in the file, and the failure is one line at the end."""
  opened, whole = [], GrpcCloud.open

  def failing(self, *args, **kwargs):
    opened.append(args)
    if len(opened) > 2:
      raise CloudError(Status.PERMISSION_DENIED, "the token alice was revoked")
    return whole(self, *args, **kwargs)

  monkeypatch.setattr(GrpcCloud, "open", failing)
  outcome = run("generate", "--text", "once", "--samples", 4, "--batch", 3, *over, *PLAIN)
  document = decoded(outcome, code=2)
  (line,) = outcome.stderr.splitlines()
  assert "was revoked" in line and "2 of 4 texts were finished" in line
  assert document["warnings"] == [line.removeprefix("Error: ")]
  assert len(document["texts"]) == 2 and "2 texts of up to 10 tokens" in outcome.stdout
  opened.extend([()] * 3)
  outcome = run("generate", "--text", "once", *over, *PLAIN[:-2], "--json", "none.json")
  assert outcome.exit_code == 2 and len(outcome.stderr.splitlines()) == 1


@pytest.mark.slow
def test_rows_before_a_quota_is_used_up_are_written(run, networks, over, monkeypatch):
  """Another edge takes the only stream of a bearer token before the second row; the error is not about memory."""
  held, whole = [], GrpcCloud.open

  def late(self, handshake, *args, **kwargs):
    if handshake.stream not in held:
      held.append(handshake.stream)
      if len(held) == 2:
        whole(self, handshake._replace(stream=bytes(16)), timeout_s=10)
    return whole(self, handshake, *args, **kwargs)

  monkeypatch.setattr(GrpcCloud, "open", late)
  secret = ("--token-file", networks[0].parent / "of-one-stream", "--give-up", 2)
  outcome = run("generate", *TEXTS, *over, *secret, *PLAIN)
  document = decoded(outcome, code=2)
  (line,) = outcome.stderr.splitlines()
  assert "the quota of 1 streams is used up" in line and "1 of 2 texts were finished" in line and "memory" not in line
  assert document["warnings"] == [line.removeprefix("Error: ")] and len(document["texts"]) == 1


@pytest.mark.slow
def test_a_lost_stream_is_one_line(run, over, monkeypatch):
  """The server drops the stream before one of its calls: the edge resumes it, with one message."""
  wanted = decoded(run("generate", *TEXTS, *over, *PLAIN))
  asked, whole = [], GrpcCloud.verify

  def forgetful(self, stream, *args, **kwargs):
    asked.append(stream)
    if len(asked) in (3, 5):
      self.close(stream, timeout_s=10)
    return whole(self, stream, *args, **kwargs)

  monkeypatch.setattr(GrpcCloud, "verify", forgetful)
  outcome = run("generate", *TEXTS, *over, *PLAIN)
  document = decoded(outcome)
  assert rows_of(document, "ar") == rows_of(wanted, "ar")
  (line,) = outcome.stderr.splitlines()
  assert (
    line.startswith("Warning: The server lost the stream 2 times") and document["methods"]["ar"]["messages"]["resumes"] == 2
  )
  assert document["warnings"] == [line.removeprefix("Warning: ")] and not wanted["warnings"]


@pytest.mark.slow
def test_a_journal_goes_on(run, over, monkeypatch):
  """Answered calls are not repeated."""
  one = ("generate", "--text", "once", *over, *PLAIN, "--journal", "run.jrn", "--give-up", 5)
  first = decoded(run(*one))
  monkeypatch.setattr(GrpcCloud, "verify", None)
  assert rows_of(decoded(run(*one)), "ar") == rows_of(first, "ar")


def test_a_pipeline_without_its_target(networks):
  pipeline = jaxspec.load_pipeline(networks[1], target_weights=False)
  assert not pipeline.target.has_weights and jaxspec.load_pipeline(networks[0]).target.has_weights
  with pytest.raises(ValueError, match="the target's weights to decode here"):
    pipeline(["on"], key=jax.random.key(0), max_len=3)
  assert checkpoints.digest(networks[0] / "target") == checkpoints.digest(networks[1] / "target")


def test_a_secret_of_the_process(networks, tmp_path):
  new_token(tmp_path / "tokens.jsonl", "alice")
  tokens = TokenFile(tmp_path / "tokens.jsonl")
  secret = tokens.issue("this process")
  tokens.reload()
  assert tokens.tenant_of(secret).name == "this process" and secret not in (tmp_path / "tokens.jsonl").read_text()


class Supervised:
  """``jaxspec serve`` in a process that restarts at the same port when it ends."""

  def __init__(self, *arguments):
    with socket.create_server(("127.0.0.1", 0)) as free:
      self.host = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "jaxspec.cli.main", "serve", "--listen", self.host, *map(str, arguments)]
    self._command, self._ends, self.starts = command, False, 0
    self._up = threading.Event()
    self._thread = threading.Thread(target=self._run)
    self._thread.start()
    assert self._up.wait(120)

  def _run(self):
    while not self._ends:
      self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
      self.starts += 1
      if self.process.stdout.readline().startswith("serving at"):
        self._up.set()
      self.process.wait()

  def kill(self):
    self._up.clear()
    self.process.kill()

  def end(self):
    self._ends = True
    self.process.kill()
    self._thread.join()


@pytest.mark.slow
def test_a_server_that_is_killed_is_one_line(run, networks, monkeypatch):
  """kill -9 in the middle of a text; a supervisor starts it again. Same text, one line on stderr."""
  options = OPTIONS | dict(coding="lazy")
  settings = ("--method", "sqs", *flags(**options), "--max-tokens", 12, *JSON, "--matmul-precision", "float32")
  wanted = decoded(run("generate", *TEXTS, "--checkpoint", networks[0], *settings))
  profile = "sqs:" + ",".join(f"{name}={value}" for name, value in options.items())
  sizes = (
    "--max-prompt",
    8,
    "--max-len",
    12,
    "--max-streams",
    2,
    "--max-rows",
    2,
    "--widths",
    8,
    "--matmul-precision",
    "float32",
  )
  server = Supervised(networks[0], "--profile", profile, *sizes)
  asked, whole = [], GrpcCloud.verify

  def fatal(self, *args, **kwargs):
    asked.append(args)
    if len(asked) == 3:
      server.kill()
    return whole(self, *args, **kwargs)

  monkeypatch.setattr(GrpcCloud, "verify", fatal)
  try:
    where = ("--checkpoint", networks[1], "--cloud", f"grpc://{server.host}", "--give-up", 200)
    outcome = run("generate", *TEXTS, *where, *settings)
  finally:
    server.end()
  found = decoded(outcome)
  assert rows_of(found, "sqs") == rows_of(wanted, "sqs") and server.starts >= 2
  (line,) = outcome.stderr.splitlines()
  assert "lost the stream once" in line


@pytest.fixture(scope="module")
def images(tmp_path_factory):
  """A bundle with guidance, and the same without the weights of its target."""
  folder = tmp_path_factory.mktemp("images") / "pair"
  fake_bundle.make_fake_bundle(folder, cfg_scale=2.0, top_k=8)
  return folder, without_target(folder)


@pytest.mark.slow
def test_images_with_guidance(run, images):
  """The same pixels; captions are encoded on both sides."""
  folder, edge = images
  options = dict(verify="exact", tau=0.5, gamma=4)
  settings = ("red apple", "cat on blue", "--method", "ciar", *flags(**options), "--draft", "edge", *JSON)
  settings += ("--matmul-precision", "float32")
  with jaxspec.serve(folder, methods=[Ciar(**options)], matmul_precision="float32", **SIZES) as server:
    where = ("--checkpoint", edge, "--cloud", server.address)
    found = decoded(run("generate", *settings, *where, "--out", "far.png", "--heatmap", "map.png"))
  wanted = decoded(run("generate", *settings, "--checkpoint", folder, "--out", "near.png"))
  assert [row["ciar"]["tokens"] for row in found["images"]] == [row["ciar"]["tokens"] for row in wanted["images"]]
  assert found["cloud"] == wanted["cloud"]
  from PIL import Image

  pixels = [np.asarray(Image.open(file)) for file in ("far.png", "near.png")]
  np.testing.assert_array_equal(*pixels)


@pytest.mark.slow
def test_the_shipped_pair(run, tmp_path):
  """Cut to one block, eight seeds: over a server text and bits are those of one process that decodes row by row, as an
  edge does. tests/serving has all codings."""
  shallow.write(tmp_path, "wordnet")  # the name loads it here
  options = dict(coding="lazy", sparsifier="topk", support=32, max_drafts=6)
  texts = ("--checkpoint", "wordnet", "--text", "river: a", "--max-tokens", 24, "--samples", 8)
  settings = (*texts, "--method", "sqs", *flags(**options), *JSON, "--matmul-precision", "float32")
  sizes = dict(max_len=24, max_prompt=32, matmul_precision="float32", **SIZES)
  with jaxspec.serve("wordnet", methods=[Sqs(**options)], **sizes) as server:
    found = decoded(run("generate", *settings, "--cloud", server.address))
  wanted = decoded(run("generate", *settings, "--batch", 1))
  assert rows_of(found, "sqs") == rows_of(wanted, "sqs")
  assert len({entry["sqs"]["text"] for entry in found["texts"]}) > 4
  bits = [document["methods"]["sqs"]["compression"]["formula_bits"] for document in (found, wanted)]
  assert 0 < bits[0] == pytest.approx(bits[1])
