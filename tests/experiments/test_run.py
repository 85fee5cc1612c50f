"""The runner: lists, errors of one line, and a table of tiny random networks from end to end."""

import dataclasses
import json
import logging
import sys

import jax
import numpy as np
import pytest

from experiments import run
from experiments.engine import experiment
from experiments.engine.bench import Bench, make_batches
from experiments.engine.classes import Acceptance, ClassTable, fit_judge
from experiments.engine.experiment import Lab
from experiments.engine.quality import Quality
from experiments.engine.race import ContinuousRace, Heat, Race
from experiments.engine.rows import CLOSED, PLAIN, row
from experiments.engine.scene_images import Scenes
from experiments.engine.tables import render
from jaxspec.core.state import Origin
from tests.cli import fake_classes
from tests.cli.fake_bundle import DRAFT, SCENE_TOKENIZER, TARGET, make_fake_bundle
from tests.exit_status import status_of


def test_list_names_every_table(capsys):
  assert status_of(run.main, "--list") == 0
  out = capsys.readouterr().out
  assert (
    "scenes:gsd_groups" in out and "GSD on scenes over the group size" in out and len(out.splitlines()) == len(run.tables())
  )


@pytest.mark.parametrize(
  "arguments, words",
  [
    (["scenes:gsd_group"], "scenes:gsd_groups, scenes:gsd_thresholds"),
    (["nothing"], "bench:codec"),
    (["scenes:gsd_groups", "--set", "num_images=256"], "scorer"),
    (["scenes:gsd_groups", "--set", "batch=many"], "type int"),
    (["scenes:gsd_groups", "--set", "batch=0"], "batch"),
    (["scenes:gsd_groups", "--set", "bundle=nowhere"], "nowhere"),
    (["--render", "cspd:gamma_mar"], "cspd_gamma_mar"),
    (["scenes:speed", "--outlook"], "scenes:speed"),
    (["--render"], "documents of tables"),
    (["--list", "--render"], "one of --list, --render and --outlook"),
    (["--set", "batch=2"], "with the names of tables"),
    (["--render", "scenes:*", "--set", "batch=2"], "with the names of tables"),
    (["scenes:gsd_groups", "--set", "subject=nothing"], "a subject in plain decoding"),
    (["scenes:gsd_groups", "--set", "layout=nothing"], "a layout in calls, cloud"),
    (["scenes:gsd_groups", "--set", "wanted=0"], "wanted above 0"),
  ],
  ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_one_line_and_status_2(arguments, words, capsys, tmp_path):
  assert status_of(run.main, *arguments, "--runs", tmp_path, "--results", tmp_path) == 2
  found = capsys.readouterr()
  assert found.err.startswith("Error: ") and found.err.count("\n") == 1 and words in found.err


@pytest.mark.parametrize("option", ["--runs", "--results"])
def test_a_folder_that_cannot_be_written_is_found_before_the_work(option, capsys, tmp_path):
  (file := tmp_path / "file").touch()
  folders = {"--runs": tmp_path, "--results": tmp_path} | {option: file / "below"}
  assert status_of(run.main, "bench:codec", *(word for pair in folders.items() for word in pair)) == 2
  assert capsys.readouterr().err == f"Error: Cannot write to {file / 'below'}: Not a directory, choose another {option}\n"


def test_a_truncated_document_is_named(capsys, tmp_path):
  (tmp_path / "scenes_exact.json").write_text('{"kind": ')
  assert status_of(run.main, "--render", "--results", tmp_path) == 2
  assert f"Corrupt {tmp_path / 'scenes_exact.json'}: " in capsys.readouterr().err


def test_a_pattern_renders_its_documents(tmp_path):
  for name in ("scenes_exact", "scenes_rows", "sqs_budget"):
    (tmp_path / f"{name}.json").write_text((run.RESULTS / f"{name}.json").read_text())
  assert status_of(run.main, "--render", "scenes:*", "--results", tmp_path) == 0
  assert sorted(path.name for path in tmp_path.glob("*.md")) == ["scenes_exact.md", "scenes_rows.md"]


def test_patterns_stand_for_tables():
  assert run.chosen(["scenes:*", "scenes:exact"]) == [name for name in run.tables() if name.startswith("scenes:")]
  assert run.command_of("ciar:solvers", ["a=b & c"]) == "python -m experiments.run ciar:solvers --set 'a=b & c'"
  with pytest.raises(ValueError, match="we instead got 'scenes:exat': did you mean scenes:exact"):
    run.chosen(["scenes:exat"])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
  return str(make_fake_bundle(tmp_path_factory.mktemp("bundle")))


@pytest.fixture
def tiny(monkeypatch, bundle):
  """A tiny table of alternating timings, with prompts of its vocabulary."""
  rows = (PLAIN.but(label="plain decoding"), row("ar", "cooler", sampling={"temperature": 0.5}), row("sqs", draft="nobody"))
  table = Race(title="A tiny race", bundle=bundle, heats=(Heat(2, 2, rows),), notes=("A note.",))
  monkeypatch.setattr(run, "tables", lambda: {"tiny:race": table})
  monkeypatch.setattr(experiment, "keep_compiled", lambda: None)
  return table


def test_a_run_writes_json_and_markdown(tiny, tmp_path, capsys):
  arguments = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
  assert status_of(run.main, "tiny:race", "--set", "turns=1", *arguments) == 0
  document = json.loads((tmp_path / "results" / "tiny_race.json").read_text())
  text = (tmp_path / "results" / "tiny_race.md").read_text()
  assert document["command"] == "python -m experiments.run tiny:race --set turns=1" and document["command"] in text
  assert [entry["label"] for entry in document["rows"]] == ["plain decoding", "cooler"]
  assert document["rows"][1]["sampling"]["temperature"] == 0.5 and document["rows"][1]["draft"] is None
  assert document["rows"][0]["target_calls"] == [16, 16] and all(len(entry["seconds"]) == 1 for entry in document["rows"])
  assert "Left out sqs" in text and "nobody" in text and "A note." in text and "shows no difference" in text
  assert document["machine"]["cpus"] and document["versions"]["jax"] == jax.__version__
  (tmp_path / "results" / "tiny_race.md").unlink()
  assert status_of(run.main, "--render", *arguments) == 0  # makes the same table without networks
  assert (tmp_path / "results" / "tiny_race.md").read_text() == text


def test_an_image_has_its_key_whatever_the_batch():
  condition = {"ids": np.arange(3)}
  one, two = (make_batches(condition, samples=2, seed=5, rows=rows) for rows in (1, 4))
  assert one.num == two.num == 6 and len(two.key_data) == 2
  np.testing.assert_array_equal(np.concatenate(one.key_data), np.concatenate(two.key_data)[:6])
  np.testing.assert_array_equal(np.concatenate([part["ids"] for part in two.condition])[:6], [0, 0, 1, 1, 2, 2])
  assert len(np.unique(np.concatenate(one.key_data), axis=0)) == 6


@pytest.mark.slow
def test_decodes_are_kept_and_read_back(bundle, tmp_path, monkeypatch):
  lab, prompts = Lab(tmp_path), ["red apple", "blue cat", "red cat"]
  bench = Bench(lab.pipeline(bundle), prompts, lab.decodes, batch=2)
  assert not bench.is_decoded(PLAIN)
  drawn = bench.decode(PLAIN)
  assert drawn.tokens.shape == (3, 16) and bench.is_decoded(PLAIN) and len(list(tmp_path.rglob("*.pickle"))) == 2
  again, made = Bench(lab.pipeline(bundle), prompts, lab.decodes, batch=2), []
  monkeypatch.setattr("experiments.engine.bench.prepare", lambda *args: made.append(args))
  np.testing.assert_array_equal(again.decode(PLAIN).tokens, drawn.tokens)
  assert not made
  # Other settings, prompts and seeds give other names.
  assert not again.is_decoded(PLAIN.but(seed=1)) and not again.is_decoded(PLAIN.but(sampling={"temperature": 0.5}))
  assert not Bench(lab.pipeline(bundle), prompts[::-1], lab.decodes, batch=2).is_decoded(PLAIN)
  # A setting of all rows equals the setting in each row, and a row's own takes precedence.
  cool = Bench(lab.pipeline(bundle), prompts, lab.decodes, batch=2, sampling=(("temperature", 0.5),))
  own, back = (PLAIN.but(sampling={"temperature": heat}) for heat in (0.5, 1.0))
  assert cool.weights(PLAIN) == again.weights(PLAIN) and cool.settings(PLAIN) == again.settings(own)
  assert not cool.is_decoded(PLAIN) and cool.settings(back) == again.settings(back)


@pytest.mark.slow
def test_rates_of_stored_thresholds(tmp_path):
  """A table with the checkpoint's thresholds: no search; rows of other settings are skipped by name."""
  target, draft = (dataclasses.replace(config, num_tokens=36) for config in (TARGET, DRAFT))
  path = make_fake_bundle(tmp_path / "bundle", target=target, draft=draft, tokenizer=SCENE_TOKENIZER, method="ar")
  file = path / "edge" / "config.json"
  document = json.loads(file.read_text(encoding="utf-8"))
  stored = {"gamma": 1, "target_prefix": 0.0, "inject": "none", "verify": "exact"}
  document["meta"]["calibration"] = stored | {"thresholds": [{"achieved": 0.2, "tau": 0.5}, {"achieved": 0.4, "tau": 0.125}]}
  file.write_text(json.dumps(document), encoding="utf-8")
  settings = {"stored": {}, "longer": {"gamma": 2}, "other": {"score": "entropy"}}
  rows = tuple(row("ciar", label, rate=0.3, **({"gamma": 1} | given)) for label, given in settings.items())
  sizes = dict(scorer=Scenes(4), batch=2, timings=0, draft="edge")
  table = Quality(title="t", rows=rows, bundle=str(path), stored_thresholds=True, **sizes)
  lab = Lab(tmp_path / "runs")
  found = table.measure(lab)
  assert found["left_out"] == [
    "Left out longer: Must have thresholds for gamma 2, we instead got some for 1.",
    "Left out other: Must have the score interval of stored thresholds, we instead got entropy.",
  ]
  assert found["rows"][-1]["options"]["tau"] == pytest.approx(0.25) and found["rows"][-1]["wanted_rate"] == 0.3
  # Cached decodes of a former threshold are not used.
  rate = row("ciar", draft="edge", cloud_rate=0.3, gamma=1)
  names = table.bench(lab)._names(rate)
  document["meta"]["calibration"]["thresholds"][0]["tau"] = 0.7
  file.write_text(json.dumps(document), encoding="utf-8")
  assert set(names).isdisjoint(table.bench(Lab(tmp_path / "runs"))._names(rate))


@pytest.mark.slow
def test_a_search_matches_the_rate_and_starts_again_from_what_it_kept(bundle, tmp_path, caplog):
  lab = Lab(tmp_path)
  table = Quality(title="t", rows=(), bundle=bundle, scorer=Scenes(32), batch=16)
  bench = table.bench(lab)
  wanted = table.placed(row("ciar", "CIAR", target_prefix=0.125), bench).but(rate=0.35)
  programs = bench.pipeline.programs
  before = len(programs)
  found = bench.matched(wanted)
  calls, drawn = bench.calls(found), bench.decode(found)
  assert abs(calls.call_rate - 0.35) <= 0.02 and 0 < dict(found.options)["tau"]  # few tokens: few reachable rates
  assert len(programs) == 1 + before  # thresholds share a program
  np.testing.assert_array_equal((drawn.origin == Origin.LOCAL).sum(1), drawn.counters.local)
  # A second bench, with one batch lost: it decodes only that batch again, with the same result.
  lost = tmp_path / "decodes" / f"{bench._names(found)[1]}.pickle"
  lost.unlink()
  again = Bench(lab.pipeline(bundle), bench.prompts, lab.decodes, batch=16)
  with caplog.at_level(logging.INFO):
    assert again.matched(wanted) == found
  assert sum("decoding" in line for line in caplog.messages) == 1
  np.testing.assert_array_equal(again.decode(found).tokens, drawn.tokens)
  assert (again.decode(found.but(tau=CLOSED)).origin != Origin.LOCAL).all()
  # A search that begins on some of the images ends on all of them.
  near = Bench(lab.pipeline(bundle), bench.prompts, lab.decodes, batch=16).matched(wanted, 16)
  assert abs(bench.calls(near).call_rate - 0.35) <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("network", [fake_classes.MAR, fake_classes.CAUSAL], ids=["mar", "causal"])
def test_tables_of_classes(network, tmp_path):
  """Acceptance of both kinds of networks, whose orders differ; a race of the masked one, which has rivals, too."""
  path = str(fake_classes.make(tmp_path / "bundle", network, steps="ddim5"))
  rows = (row("cspd", "exact", gamma=2, exact=True, sampling={"stop": 1}),)  # the race has the published rule
  table = Acceptance(title="t", bundle=path, rows=rows, num_images=5, batch=2, walked=("gamma", "stop"))
  lab = Lab(tmp_path / "runs")
  document = run.finite(table.frame("t", "c") | table.measure(lab))
  (exact,) = document["rows"]
  assert exact["walked"] == {"gamma": 2, "stop": 1} and exact["figures"]["images"] == 5
  accepted, rejected = (sum(exact["figures"]["per_image"][name]) for name in ("accepted", "rejected"))
  assert exact["figures"]["accepted"] == accepted and sum(exact["figures"]["tries"]) == rejected
  assert sum(exact["along"]["accepted"]) == accepted and sum(exact["along"]["tested"]) == accepted + rejected
  assert exact["along"]["tested"][0] == 0  # the first token is the target's
  bench, labels = ClassTable.bench(table, lab)
  placed = table.placed(rows[0])
  assert table.pixels(bench, placed, bench.decode(placed)).shape == (5, 4, 4, 3) and len(labels) == 5
  if network is fake_classes.CAUSAL:
    return
  heat = Heat(2, 1, (row("ar", "target"), row("ar", "draft", alone=True), row("cspd", "published 2", gamma=2)))
  race = ContinuousRace(title="t", bundle=path, heats=(heat,))
  document = run.finite(race.frame("t", "c") | race.measure(lab))
  found = {entry["label"]: entry for entry in document["rows"]}
  assert {"target", "draft", "published 2"} <= found.keys() and found["published 2"]["predicted"] > 0
  assert found["published 2"]["rival"] in found and found["target"]["parallel"] == "parallel 1"


@pytest.mark.slow
def test_a_table_of_scenes(tmp_path, caplog):
  """Random networks draw no correct images; every kind of row has its figures, and a second run reads the cache."""
  target, draft = (dataclasses.replace(config, num_tokens=36) for config in (TARGET, DRAFT))
  path = str(make_fake_bundle(tmp_path / "bundle", target=target, draft=draft, tokenizer=SCENE_TOKENIZER, method="ar"))
  rows = (
    dataclasses.replace(row("speculative", gamma=2), audit=True), row("gsd", "static", variant="static", window=3),
    row("eagle-chain", "nobody", draft="none"), row("ciar", "CIAR", rate=0.5),
  )  # fmt: skip
  sizes = dict(scorer=Scenes(6), batch=1, timings=1, margin=0.02, first_search=2)  # timings are of batch 1, too
  table = Quality(title="t", rows=rows, bundle=path, **sizes)
  lab = Lab(tmp_path / "runs")
  with caplog.at_level(logging.INFO):
    first, second, *_ = table.outlook(lab).lines()
  assert "5 rows of 6 images" in first and "comparisons" in second
  document = run.finite(table.frame("t", "c") | table.measure(lab))
  labels = [entry["label"] for entry in document["rows"]]
  assert labels[:4] == ["plain decoding", "plain decoding, another seed", "speculative, gamma 2", "static"]
  assert document["kind"] == "scenes" and document["left_out"][0].startswith("Left out nobody")
  audited = document["rows"][2]
  assert audited["audit"]["tv"]["value"] == pytest.approx(0, abs=1e-5)  # an exact method
  assert audited["metrics"]["right"]["value"] == 0 and audited["open"] is None
  assert len(audited["per_image"]["right"]) == len(audited["per_image"]["target_calls"]) == 6
  text = render(json.loads(json.dumps(document)))
  assert "TV per token" in text and "Computed before the rows were drawn, from 6 captions" in text
  assert "Left out nobody" in text
  caplog.clear()
  with caplog.at_level(logging.INFO):
    again = run.finite(table.frame("t", "c") | table.measure(Lab(tmp_path / "runs")))
  assert again == document and not any(line.startswith("decoding") for line in caplog.messages)


def test_the_judge_of_digits_names_its_extra(monkeypatch):
  monkeypatch.setitem(sys.modules, "sklearn.svm", None)
  with pytest.raises(ValueError, match=r"pip install 'jaxspec-decoding\[eval\]'"):
    fit_judge()
