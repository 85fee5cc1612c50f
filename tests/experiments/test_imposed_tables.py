"""Gains over acceptance, recorded acceptance and the parts of a round, on tiny networks; no timing is asserted."""

import json

import pytest

from experiments import run
from experiments.bench.gains import Gains
from experiments.bench.recorded import Recorded
from experiments.bench.round_parts import Of, RoundParts
from experiments.engine import experiment
from experiments.engine.experiment import Lab
from experiments.engine.rows import row
from experiments.engine.tables import render
from tests.cli.fake_bundle import make_fake_bundle

CELL = dict(
  over_plain={"median": 1.5, "low": 1.25, "high": 1.75}, over_lock_step=None, tokens_per_call=2.0, accepted_of_tested=None,
  round_ms=2.0, read_bytes=4e6, operations=1.0, memory_floor_ms=1.0, arithmetic_floor_ms=0.5, floor_ms=1.0, break_even=None,
  loop_efficiency={"median": 0.9, "low": 0.9, "high": 0.9},
)  # fmt: skip


@pytest.fixture
def make(monkeypatch, tmp_path):
  """Makes a table; returns its document and its text."""
  monkeypatch.setattr(experiment, "keep_compiled", lambda: None)

  def made(table, name="tiny:table"):
    monkeypatch.setattr(run, "tables", lambda: {name: table})
    results = tmp_path / "results"
    run.make(name, (), Lab(tmp_path / "runs"), results)
    path = results / run.file_name(name)
    return json.loads(path.with_suffix(".json").read_text()), path.with_suffix(".md").read_text()

  return made


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
  return make_fake_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.mark.slow
def test_gains_are_measured_once_and_drawn(bundle, make, tmp_path, monkeypatch):
  methods = (row("speculative", "two", gamma=2),)
  table = Gains(
    title="T", model=str(bundle / "target"), tokens=16, methods=methods, batches=(1, 2), acceptances=(0.5, 1.0), repeats=1
  )
  found, text = make(table, "bench:gains")
  assert [(one["batch"], one["acceptance"]) for one in found["rows"]] == [(1, 0.5), (1, 1.0), (2, 0.5), (2, 1.0)]
  assert [one["over_lock_step"] is None for one in found["rows"]] == [True, True, False, False]
  # Token 0 is the prefill's; six rounds of three tokens yield the other fifteen.
  assert found["rows"][1]["tokens_per_call"] == pytest.approx(16 / 6) and "**Acceptance is imposed**" in text
  monkeypatch.delattr("experiments.bench.gains.ImposedBench.figures")  # measurements are cached
  assert make(table, "bench:gains")[0]["rows"] == found["rows"]
  pytest.importorskip("matplotlib")
  from experiments.figures import gains

  gains.draw(found, tmp_path / "gains.png")
  assert (tmp_path / "gains.png").stat().st_size > 5000


@pytest.mark.slow
def test_recorded_acceptance_predicts_the_passes(bundle, make):
  """Random weights need the same number of passes as the networks with the recorded acceptance, up to other images. The
  batch is that of the recording: one program less."""
  methods = (row("speculative", "speculative", draft="small", gamma=2), row("ciar", draft="edge", tau=0.3, gamma=2))
  found, text = make(Recorded(title="T", bundle=str(bundle), methods=methods, batches=(8,), samples=1, turns=2))
  one, edge = found["rows"]
  assert 16 / 3 <= one["predicted"]["target_calls"] <= 16 and 0 <= one["acceptance"] <= 1
  assert one["predicted"]["target_calls"] == pytest.approx(one["measured"]["target_calls"], rel=0.5)
  assert "| speculative | 8 | " in text and "| predicted / measured | by the means over plain | " in text
  # Means of the recording are imposed too: for CIAR its share of calls.
  assert one["calls"] is None and one["by_means"]["target_calls"] == pytest.approx(one["measured"]["target_calls"], rel=0.5)
  assert 0 < edge["calls"] <= 1 and edge["by_means"]["target_calls"] == pytest.approx(16 * edge["calls"], rel=0.5)


@pytest.mark.slow
def test_parts_of_a_round(bundle, make):
  """For a head on features, and for CIAR, with rounds that do not call the target."""
  methods = (
    Of(str(bundle), row("eagle-chain", draft="feature", gamma=2)),
    Of(str(bundle), row("ciar", draft="edge", tau=0.5, gamma=2)),
  )
  found, text = make(RoundParts(title="T", methods=methods, turns=1))
  chain, gated = found["rows"]
  assert set(chain["parts"]) == set(gated["parts"])
  assert set(chain["parts"]) == {"draft", "draft network", "target", "target network", "rest", "round"}
  assert chain["counts"] == {"draft passes": 2, "target passes": 1}
  # Local tokens, and two drafts of a window.
  assert 0 <= gated["counts"]["target passes"] <= 1 <= gated["counts"]["draft passes"] <= 18
  assert chain["parts"]["round"]["median"] > 0 and text.count("- its network alone") == 4


def test_methods_whose_networks_are_not_there_are_left_out(make):
  found, text = make(RoundParts(title="T", methods=(Of("runs/none", row("cspd", "vectors")),), turns=1))
  assert found["rows"] == [] and "Left out vectors: there is no runs/none." in text


def test_a_table_of_gains():
  plain = {"tokens_per_s": 10.0, "step_ms": 4.0, "memory_floor_ms": 3.0, "arithmetic_floor_ms": 1.0}
  document = dict(
    kind="gains", title="T", command="c", notes=[], model="m", parameters=2e6, dtype="float32", num_tokens=16, repeats=3,
    bytes_per_s=1e9, operations_per_s=1e9, plain={"1": plain}, rows=[{"label": "sjd", "batch": 1, "acceptance": 0.5} | CELL],
  )  # fmt: skip
  text = render(document)
  assert "| sjd | 1 | 0.5 | 1.50 [1.25, 1.75] | 2.00 | 2.0 | 4 | 50 % | 25 % | none | 0.90 [0.90, 0.90] |" in text
  assert "75 % of the memory floor" in text


def test_whether_a_prediction_holds():
  ratio = lambda low, high: {"median": (low + high) / 2, "low": low, "high": high, "target_calls": 10.0}
  row_of = lambda label, measured, predicted: dict(
    label=label, batch=1, acceptance=0.5, measured=ratio(*measured), predicted=ratio(*predicted)
  )
  rows = [row_of("one", (1.0, 1.5), (1.5, 2.0)), row_of("other", (1.0, 1.5), (1.6, 2.0))]
  text = render(dict(kind="recorded", title="T", command="c", notes=[], source="s", num_tokens=16, turns=2, rows=rows))
  lines = [line for line in text.splitlines() if line.startswith("| o")]
  assert "| yes |" in lines[0] and "| **no** |" in lines[1]
