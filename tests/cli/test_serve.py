"""``jaxspec serve``: errors are one line before loading; a server in a separate process."""

import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import jaxspec
from jaxspec.methods import Sqs
from jaxspec.serving.edge.edge_stream import Edge
from jaxspec.serving.edge.remote_decode import decode_over_cloud
from jaxspec.serving.server import from_bundle
from jaxspec.serving.server.bearer_tokens import TokenFile
from jaxspec.serving.server.quotas import Quota
from jaxspec.serving.wire.method_codecs import codec_of
from tests.cli import fake_language


def test_a_new_token_is_printed_once(run, fails, tmp_path):
  outcome = run("serve", "--new-token", "alice", "--token-file", "tokens.jsonl")
  secret = outcome.stdout.strip()
  assert outcome.exit_code == 0 and len(secret) > 40
  written = (tmp_path / "tokens.jsonl").read_text()
  assert '"alice"' in written and secret not in written
  assert "new name" in fails("serve", "--new-token", "alice", "--token-file", "tokens.jsonl")
  assert "--token-file FILE" in fails("serve", "--new-token", "bob")
  line = fails("serve", "--new-token", "bob", "--token-file", "none/tokens.jsonl")
  assert line.startswith("Error: No such file or directory: 'none/tokens.jsonl'")


def test_a_new_token_with_a_quota(run, fails, tmp_path):
  new = ("serve", "--token-file", "tokens.jsonl", "--new-token")
  outcome = run(*new, "alice", "--quota", "streams=2,fed_per_s=0.5")
  tokens = TokenFile(tmp_path / "tokens.jsonl")
  assert tokens.tenant_of(outcome.stdout.strip()) == ("alice", Quota(streams=2, fed_per_s=0.5))
  for wrong in ("streams=2.5", "streams=0", "fed_per_s=nan", "calls=3", "streams", "", "streams=1,streams=2"):
    assert "--quota streams=N,calls_per_s=X" in fails(*new, "bob", "--quota", wrong)
  assert len((tmp_path / "tokens.jsonl").read_text().splitlines()) == 1
  assert "--new-token NAME" in fails("serve", "--quota", "streams=1")


@pytest.mark.parametrize(
  "args, words",
  [
    (("--listen", "0.0.0.0:1"), "--insecure"),
    (("--listen", "8443"), "HOST:PORT"),
    (("--listen", "127.0.0.1:99999"), "a port from 0 to 65535"),
    (("--listen", "::1:18711"), "in brackets"),
    (("--tls-cert", "/nowhere"), "Cannot read /nowhere: No such file"),
    (("--tls-cert", "missing.pem"), "missing.pem"),
    (("--widths", "8;32"), "--widths W1,W2"),
    (("--metrics", "9464"), "--metrics HOST:PORT"),
    (("--metrics", "127.0.0.1:99999"), "a port from 1 to 65535"),
    (("--profile", "sq"), "sqs"),
    (("--profile", "sqs:coding"), "NAME=VALUE"),
    (("--profile", "sqs:colour=red"), "NAME=VALUE"),
    (("--profile", "sqs:coding=lazy,coding=dense"), "coding twice in 'sqs:coding=lazy,coding=dense'"),
    (("--profile", "sqs:ell=much"), "much"),
    (("--profile", "sqs:ell=0"), "ell of at least"),
    (("--token-file", "missing.jsonl"), "missing.jsonl"),
    (("--mesh", "rows=2"), "a mesh such as data=2,model=4"),
    (("--mesh", "model=4096"), "4096 devices for the mesh"),
    (("--max-decode-ms", "0"), "max-decode-ms"),
    (("--max-wait-ms", "inf"), "Must have a finite number as --max-wait-ms, we instead got inf"),
    (("/nowhere",), "/nowhere"),
  ],
)
def test_what_does_not_fit_is_one_line(fails, args, words):
  assert words in fails("serve", "--listen", "127.0.0.1:0", *args)


@pytest.mark.parametrize(
  "args, precision",
  [((), "float32"), (("--matmul-precision", "bfloat16"), "bfloat16"), (("--dtype", "bfloat16"), None)],
)
def test_products_are_those_of_edges(fails, monkeypatch, args, precision):
  """By default a server does not round where edges do not, whatever its processor is fast at."""

  def serve(bundle, *, matmul_precision, **options):
    raise ValueError(f"products in {matmul_precision}")

  monkeypatch.setattr(from_bundle, "serve", serve)
  with jax.default_matmul_precision(None):
    assert f"products in {precision}" in fails("serve", *args)
  with jax.default_matmul_precision("bfloat16"):  # JAX's own variable takes precedence
    assert f"products in {precision if args[:1] == ('--matmul-precision',) else None}" in fails("serve", *args)


@pytest.mark.parametrize("host, family", [("127.0.0.1", socket.AF_INET), ("[::1]", socket.AF_INET6)])
def test_ports_that_are_taken_show_before_anything_is_loaded(fails, host, family):
  with socket.create_server((host.strip("[]"), 0), family=family) as taken:
    address = f"{host}:{taken.getsockname()[1]}"
    assert f"--metrics {address}: the port is taken" in fails("serve", "/nowhere", "--metrics", address)
    assert f"Cannot listen on {address}: the port is taken" in fails("serve", "/nowhere", "--listen", address)


def test_certificates_that_are_none_show_before_anything_is_loaded(fails, tmp_path):
  (tmp_path / "junk").write_text("junk")
  pair = ("--tls-cert", "junk", "--tls-key", "junk")
  assert "a certificate in PEM in --tls-cert" in fails("serve", "/nowhere", "--listen", "127.0.0.1:0", *pair)
  assert "--tls-cert goes with --tls-key" in fails("serve", "/nowhere", *pair[:2])


def test_without_the_extra(fails, monkeypatch):
  for name in ("server", "grpc_server", "servicer"):  # what is imported already would not miss it
    monkeypatch.delitem(sys.modules, f"jaxspec.serving.server.{name}", raising=False)
  monkeypatch.setitem(sys.modules, "grpc", None)
  assert "pip install 'jaxspec-decoding[serve]'" in fails("serve")


@pytest.mark.slow
def test_a_server_in_a_process(tmp_path):
  """Its tokens are those of one process; SIGTERM ends it."""
  folder = fake_language.make(tmp_path / "language")
  options = "coding=lazy,sparsifier=topk,support=4,max_drafts=4"
  command = [sys.executable, "-m", "jaxspec.cli.main", "serve", str(folder), "--listen", "127.0.0.1:0"]
  command += ["--profile", f"sqs:{options}", "--max-prompt", "8", "--max-len", "12", "--max-streams", "2"]
  command += ["--max-rows", "2", "--widths", "8", "--no-cache", "--matmul-precision", "float32"]
  process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
  cloud = jaxspec.connect(process.stdout.readline().removeprefix("serving at ").strip())
  pipeline = jaxspec.load_pipeline(folder, matmul_precision="float32")
  method = pipeline.method(Sqs(coding="lazy", sparsifier="topk", support=4, max_drafts=4))
  parts, encoded = pipeline.decoder(method).parts, pipeline.encode(["once"])
  with pipeline.context():
    edge = Edge(parts.params.draft, parts.drafter, codec_of(method, 259), 12, end_token=pipeline.family.end_token)
    out, _ = decode_over_cloud(edge, jax.random.key(0), encoded.condition, cloud)
  wanted = pipeline(encoded, key=jax.random.key(0), method=method, max_len=12)
  np.testing.assert_array_equal(out.tokens, wanted.tokens)
  cloud.hang_up()
  process.send_signal(signal.SIGTERM)
  assert process.wait(20) == 0
