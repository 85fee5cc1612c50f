"""Traces recorded at a real server, and played against it."""

import json

import pytest

pytest.importorskip("grpc", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

import jaxspec
from experiments.server import load, record
from experiments.server.trace import read_traces
from tests.cli import fake_language
from tests.exit_status import status_of


@pytest.mark.slow
def test_a_recorded_decode_is_played(tmp_path, monkeypatch, capsys):
  """Every reply is the recorded one; compilation does not count as a pause of the edge."""
  monkeypatch.chdir(tmp_path)
  pair = fake_language.make(tmp_path / "pair")
  sizes = dict(max_streams=2, max_rows=2, widths=(8,), max_prompt=8, max_len=12)
  with jaxspec.serve(pair, methods=["ar"], matmul_precision="float32", **sizes) as server:
    words = [server.address, str(pair), "once", "on a", "--method", "ar", "--max-tokens", "10"]
    assert status_of(record.main, *words, "--number", 3) == 0
    assert [trace.num_tokens for trace in read_traces(tmp_path / "traces")] == [10, 10, 10]
    assert status_of(load.main, server.address, "--trace", "traces", "--devices", 2) == 0
    stage = json.loads(capsys.readouterr().out)["stages"][1]
    assert stage["differing"] == 0 and stage["tokens"] == 20 and 0 < stage["think_s"] < 5
    assert status_of(record.main, *words, "--set", "window=3") == 2
    assert status_of(record.main, *words[:-1], 13) == 2
  first, second = capsys.readouterr().err.splitlines()[-2:]
  assert first.startswith("Error: ") and "window" in first
  assert "at most 12 tokens" in second
