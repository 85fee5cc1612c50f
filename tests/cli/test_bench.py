"""`jaxspec bench`: whatever is wrong shows before anything is measured."""

import json
import shutil
from pathlib import Path

import pytest

from jaxspec.cli import bench


@pytest.fixture
def measured(monkeypatch):
  """Nothing is timed; the test reads what would be."""
  calls = []
  monkeypatch.setattr(bench, "_scoring", lambda loaded, repeats: {"target_ms": {}, "target_ratio": {}, "draft_ratio": {}})

  def record(loaded, name, rows, gamma, repeats, seed):
    calls.append((name, rows, gamma))
    return {}

  monkeypatch.setattr(bench, "_decoding", record)
  monkeypatch.setattr(bench, "render", lambda report: f"draft {report['draft']}")
  return calls


@pytest.mark.parametrize(
  ("options", "words"),
  [
    (["--batch", 0], "batch from 1 to 1024"),
    (["--batch", 100_000], "batch from 1 to 1024"),
    (["--gamma", 0], "gamma of at least 1"),
    (["--gamma", 3, "--gamma", 16], "gamma below the 16 tokens"),
    (["--repeats", 0], "--repeats"),
    (["--seed", -1], "--seed"),
    (["--seed", 10**30], "--seed"),
    (["--draft", "huge"], "small, distilled"),
    (["--draft", "device"], "has a inter_head as device"),
    (["--out", "file.txt"], "Cannot write to file.txt"),
    (["--out", "/proc/results"], "Cannot write to /proc/results"),
    (["--checkpoint", "none"], "No checkpoint folder at none"),
  ],
)
def test_options(fails, bundle, measured, tmp_path, options, words):
  (tmp_path / "file.txt").write_text("mine")
  assert words in fails("bench", "--checkpoint", bundle, *options)
  assert not measured


def test_damaged_bundles(fails, bundle, tmp_path, measured):
  copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
  document = json.loads((copy / "bundle.json").read_text())
  (copy / "bundle.json").write_text(json.dumps(document | {"defaults": {"gamma": "three"}}))
  assert "'three' as gamma" in fails("bench", "--checkpoint", copy)
  (copy / "target" / "params.safetensors").write_text("hello")
  assert "Corrupt" in fails("bench", "--checkpoint", copy)


def test_files_and_defaults(run, bundle, tmp_path, measured):
  """A bundle that names only some defaults gets those of `jaxspec generate` for the rest."""
  outcome = run("bench", "--checkpoint", bundle, "--batch", 2, "--out", "results")
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  assert measured == [("small", 2, 3)] and "draft small" in outcome.stdout
  report = json.loads((tmp_path / "results" / "bench.json").read_text())
  assert report["settings"] == {"cfg_scale": 1.0, "top_k": 8, "top_p": 1.0, "temperature": 1.0}
  assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["bench.json", "bench.md"]
