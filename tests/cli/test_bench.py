"""`jaxspec bench`: errors are raised before the measurement."""

import json
import shutil
from pathlib import Path

import pytest

from jaxspec.cli import bench_table
from jaxspec.run import chain_bench, measure
from jaxspec.run.loading import load_pipeline


@pytest.fixture
def measured(monkeypatch):
  """Nothing is timed; the test reads what would be."""
  calls = []
  scoring = {"target_ms": {}, "target_ratio": {}, "draft_ratio": {}}
  monkeypatch.setattr(chain_bench, "scoring", lambda job, repeats: scoring)

  def record(job, plain, rows, repeats):
    calls.append((job.method.draft, rows, job.method.gamma))
    return {}

  monkeypatch.setattr(chain_bench, "decoding", record)
  monkeypatch.setattr(bench_table, "render", lambda report: f"draft {report['draft']}")
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
    (["--draft", "edge"], "a inter_head as edge"),
    (["--out", "file.txt"], "Cannot write to file.txt"),
    (["--out", "/proc/results"], "Cannot write to /proc/results"),
    (["--model", "none"], "Must have one --model or --checkpoint, we instead got"),
  ],
)
def test_options(fails, bundle, measured, tmp_path, options, words):
  (tmp_path / "file.txt").write_text("mine")
  assert words in fails("bench", "--checkpoint", bundle, *options)
  assert not measured


def test_damaged_bundles(fails, bundle, tmp_path, measured):
  assert "No checkpoint folder at none" in fails("bench", "--checkpoint", "none")
  copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
  document = json.loads((copy / "bundle.json").read_text())
  (copy / "bundle.json").write_text(json.dumps(document | {"defaults": {"options": {"gamma": "three"}}}))
  assert "'three' as gamma" in fails("bench", "--checkpoint", copy)
  (copy / "target" / "params.safetensors").write_text("hello")
  assert "Corrupt" in fails("bench", "--checkpoint", copy)


@pytest.mark.parametrize(
  ("draft", "expected"),
  [
    (None, ("small", "speculative")),
    ("distilled", ("distilled", "speculative")),
    ("feature", ("feature", "eagle-chain")),
  ],
)
def test_the_chain_of_a_draft(bundle, draft, expected):
  assert chain_bench.chain_of(load_pipeline(bundle), draft) == expected


@pytest.mark.parametrize(("draft", "named"), [(None, ["small"]), ("distilled", ["distilled"]), ("feature", [])])
def test_only_the_measured_draft_has_a_cost(bundle, monkeypatch, draft, named):
  """A head has none: it does not run alone."""
  monkeypatch.setattr(measure, "alternate", lambda calls, repeats: dict.fromkeys(calls, [1.0]))
  pipe = load_pipeline(bundle)
  name, method = chain_bench.chain_of(pipe, draft)
  job = pipe.job(["a red heart"], method=pipe.method(method, draft=name))
  scoring = chain_bench.scoring(job, 1)
  assert list(scoring["draft_ratio"]) == named and list(scoring["target_ms"]) == ["1", "2", "4", "8", "16"]
  about = dict.fromkeys(("device", "dtype", "matmul_precision", "method", "draft", "repeats"), "any")
  about |= {"settings": {}, "versions": {"jax": "any"}, "machine": {"cpus": 1}, "decoding": [], "scoring": scoring}
  table = bench_table.render(about)
  assert ("| draft | cost" in table) == bool(named)


def test_files_and_defaults(run, bundle, tmp_path, measured):
  """A bundle that names only some defaults gets those of `jaxspec generate` for the rest."""
  outcome = run("bench", "--checkpoint", bundle, "--batch", 2, "--out", "results")
  assert outcome.exit_code == 0, (outcome.output, outcome.exception)
  assert measured == [("small", 2, 3)] and "draft small" in outcome.stdout
  report = json.loads((tmp_path / "results" / "bench.json").read_text())
  assert report["settings"] == {"cfg_scale": 1.0, "cfg_interval": -1, "top_k": 8, "top_p": 1.0, "temperature": 1.0}
  assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["bench.json", "bench.md"]


def test_classes_of_a_converted_network(run, class_models, tmp_path, measured):
  """Default classes are evenly spaced; rows repeat cyclically."""
  folders = {"--model": "target", "--tokenizer": "vq", "--draft-model": "draft"}
  networks = [word for name, folder in folders.items() for word in (name, class_models / folder)]
  for asked, prompts in (((), ["class 0", "class 1", "class 2", "class 3"]), (("--class", 4), ["class 4"])):
    outcome = run("bench", *networks, *asked, "--batch", 6, "--gamma", 2, "--out", "results")
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    assert measured.pop() == ("draft", 6, 2) and not measured
    assert json.loads((tmp_path / "results" / "bench.json").read_text())["prompts"] == prompts


def test_finished_measurements_are_kept(fails, bundle, measured, tmp_path, monkeypatch):
  def second_fails(job, plain, rows, repeats):
    if rows == 2:
      raise ValueError("no memory for 2 rows")
    return {"batch": rows}

  monkeypatch.setattr(chain_bench, "decoding", second_fails)
  assert "no memory" in fails("bench", "--checkpoint", bundle, "--batch", 1, "--batch", 2, "--out", tmp_path / "out")
  report = json.loads((tmp_path / "out" / "bench.json").read_text())
  assert report["decoding"] == [{"batch": 1}]
  assert (tmp_path / "out" / "bench.md").is_file()
