"""The tables of continuous speculative decoding on random networks: what is kept, counted, compared and printed."""

import json

import numpy as np
import pytest

from experiments import cspd_acceptance, cspd_bench, cspd_marginals, cspd_speed
from experiments.cspd_bench import Bench, Row
from experiments.tables import write
from jaxspec.decode.state import Origin
from jaxspec.token_bundle import write_token_bundle
from tests.cli import fake_classes


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
  folder = tmp_path_factory.mktemp("cspd")
  networks = {"mar": fake_classes.MAR, "causal": fake_classes.CAUSAL}
  paths = {name: str(fake_classes.make(folder / name, network)) for name, network in networks.items()}
  return Bench(folder / "runs", paths)


@pytest.mark.slow
def test_what_was_drawn_is_kept_and_counted(bench):
  row = Row("mar", "exact", bench.method("mar", stop=1, rule="exact", gamma=2))
  labels = np.asarray([0, 2, 1, 0, 1], np.int32)
  drawn = bench.draw(row, labels, rows=2)
  assert drawn.out.tokens.shape == (5, 4, 2) and len(list(bench.folder.glob("*.npz"))) == 1
  assert (drawn.in_order[:, 0] == Origin.FIRST).all() and (np.sort(drawn.in_order) == np.sort(drawn.out.origin)).all()
  again = Bench(bench.folder, bench._paths).draw(row, labels, rows=2)
  np.testing.assert_array_equal(again.out.tokens, drawn.out.tokens)
  counted = cspd_bench.figures(drawn)
  kept, refused = ((drawn.in_order == origin).sum() for origin in (Origin.DRAFT, Origin.REPLACED))
  assert counted["accepted"] == kept and sum(counted["tries"]) == refused
  assert counted["alpha"]["value"] == pytest.approx(kept / max(kept + refused, 1))
  along = cspd_acceptance.along_the_row(drawn.in_order)
  assert sum(along["kept"]) == kept and sum(along["tested"]) == kept + refused and along["tested"][0] == 0
  assert bench.pixels(row, drawn.out.tokens, batch=2).shape == (5, 4, 4, 3)
  place = cspd_marginals.tokens_at(bench, row, labels, 2, 0)
  np.testing.assert_array_equal(place, drawn.out.tokens[drawn.out.origin == Origin.FIRST])


def test_rules_that_do_not_fit_chains_are_left_out(bench):
  rows = cspd_acceptance.rows_of(bench, "mar", cspd_acceptance.Walk(("published", "released", "exact"), (dict(stop=None),)))
  assert [rule for rule, _, _ in rows] == ["published", "released"]
  rows = cspd_acceptance.rows_of(bench, "causal", cspd_acceptance.Walk(("published", "released", "exact"), (dict(stop=1),)))
  assert {rule for rule, _, _ in rows} == {"published", "released", "exact"}
  with pytest.raises(ValueError, match="gamma, alignment"):
    cspd_acceptance.get_config("none", "mar")


def test_distances_tell_laws_apart():
  generator = np.random.default_rng(0)
  a, b = generator.normal(size=(2, 2000, 3))
  assert cspd_marginals.compare(a, b)["p"] > 0.01
  assert cspd_marginals.compare(a, b + np.array([0, 0, 0.3]))["p"] < 1e-6


@pytest.mark.slow
def test_race(capsys, tmp_path):
  path = fake_classes.make(tmp_path / "mar", fake_classes.MAR)
  write_token_bundle(path, defaults={"stop": 1})  # the exact rule needs chains that end with noise
  bench = Bench(tmp_path / "runs", {"mar": str(path)})
  rows = cspd_speed.race(bench, "mar", 2, [2], ["published", "exact"], repeats=1, seed=0)
  names = [row["name"] for row in rows]
  assert names[:3] == ["target", "draft", "parallel 1"] and {"published 2", "exact 2"} <= {*names}
  exact = rows[names.index("exact 2")]
  assert exact["rival"] in names and exact["predicted"] > 0 and rows[0]["over_target"]["median"] == 1
  rows = [{"command": "x", **row} for row in rows]
  document = {**cspd_bench.origin_of(bench, "mar"), "rows": rows}
  write("table", document, cspd_speed.render(document), tmp_path)
  assert "| 2 | exact 2 |" in capsys.readouterr().out and json.loads((tmp_path / "table.json").read_text())["rows"]


def test_speed_table_gathers_batch_sizes(tmp_path):
  file = tmp_path / "table.json"
  rows = lambda batch, name: [{"batch": batch, "name": name}]
  about = {"weights": "w", "machine": {"cpus": 2}}
  assert cspd_speed.gather(file, about, rows(8, "a")) == rows(8, "a")
  file.write_text(json.dumps(about | {"rows": rows(8, "a")}))
  assert cspd_speed.gather(file, about, rows(1, "b")) == rows(1, "b") + rows(8, "a")
  assert cspd_speed.gather(file, about, rows(8, "b")) == rows(8, "b")
  for other in ({"weights": "other"}, {"machine": {"cpus": 4}}):
    assert cspd_speed.gather(file, about | other, rows(1, "b")) == rows(1, "b")
