"""The page about the cost of lossy decoding agrees with its tables."""

import json

import pytest

from experiments import run
from experiments.engine import claims, lossy, published
from experiments.engine.rows import CLOSED, OPEN, PAPER_PREFIX
from experiments.engine.tables import render
from tests.experiments.painted_tables import NUM, document
from tests.site_modules import site_module

LOSSY = run.RESULTS.parents[1] / "docs" / "results" / "lossy.md"


@pytest.mark.slow
def test_points_of_the_figure():
  smaller = document() | {"rows": [entry | {"images": 8} for entry in document()["rows"]]}
  found = lossy.points({"b": document(), "a": smaller, "other": {"kind": "race", "rows": []}})
  assert [point.label for point in found] == ["harmless", "wrong", "white"]
  assert {point.table for point in found} == {"b"}  # the one with the most images
  named = {point.label: point for point in found}
  assert named["harmless"].family == lossy.EXACT and named["wrong"].family == "static groups"
  assert named["wrong"].saved == pytest.approx(0.75) and named["wrong"].loses
  assert named["wrong"].change.value < named["wrong"].change.high < 0
  assert not named["harmless"].loses and named["white"].open_p < 0.05
  with pytest.raises(ValueError, match="tables of images of scenes"):
    lossy.points({"other": {"kind": "race", "rows": []}})


@pytest.mark.slow
def test_tables_of_other_sampling_have_points_of_their_own():
  whole = document() | {"sampling": {"top_p": 1.0}}
  tables = {"a": document(), "b": whole}
  assert {point.table for point in lossy.points(tables)} == {"a"}
  textured = {"captions": {"materials": ["flat", "wood"]}}
  lifted = tables | {"c": document() | {"lift": {"twins": 64}}, "d": document() | textured}
  assert lossy.points(lifted) == lossy.points(tables)  # rows of other worlds are never joined with these
  assert {point.table for point in lossy.points(tables, lossy.WITHOUT_TOP_P)} == {"b"}
  assert lossy.settings_without_top_p(tables) == lossy.settings({"a": document()})
  assert "all of them with top_p 1. Correct" in render(whole) and "all of them" not in render(document())


@pytest.mark.parametrize(
  "options, family",
  [
    ({"tau": OPEN, "target_prefix": 0.0, "score": "interval"}, "the edge alone"),
    ({"tau": OPEN, "target_prefix": 0.3, "score": "interval"}, "CoDe"),
    ({"tau": CLOSED, "target_prefix": 0.0, "score": "interval"}, lossy.EXACT),
    ({"tau": 0.1, "target_prefix": 0.0, "score": "entropy"}, "Entropy"),
    ({"tau": None, "target_prefix": PAPER_PREFIX, "score": "interval"}, "CIAR"),
    ({"tau": 0.1, "target_prefix": 0.0, "score": "interval"}, "CIAR with other prefixes"),
    ({"tau": 0.1, "target_prefix": 0.0, "score": "interval:paper"}, "other scores of intervals"),
  ],
)
def test_families_of_edges(options, family):
  assert lossy.family_of({"method": "ciar", "options": options}) == family


@pytest.mark.slow
def test_published_orders(monkeypatch):
  orders = (
    published.Order("harmless is better", "s", "scenes_lossy", "harmless", "wrong"),
    published.Order("wrong is better", "s", "scenes_lossy", "wrong", "harmless"),
    published.Order("another seed is better", "s", "scenes_lossy", f"{claims.PLAIN}, another seed", claims.PLAIN),
    published.Order("it takes fewer calls", "s", "scenes_lossy", "wrong", "harmless", "calls"),
    published.Order("nobody knows", "s", "scenes_none", "a", "b"),
  )
  monkeypatch.setattr(published, "ORDERS", orders)
  text = published.table({"scenes_lossy": document()})
  cells = {line.split(" | ")[0].strip("| "): line.split(" | ")[2:] for line in text.splitlines()[2:]}
  assert cells["harmless is better"][0] == "holds" and cells["wrong is better"][0] == "**reversed**"
  assert cells["another seed is better"][0] == "not significant" and cells["nobody knows"][0] == "not measured"
  assert cells["it takes fewer calls"][:2] == ["holds", "+36.0 calls an image"]
  with pytest.raises(ValueError, match="rows of scenes_lossy"):
    published.difference(published.Order("", "s", "scenes_lossy", "harmless", "nobody"), document())


def test_published_orders_name_rows_that_tables_have():
  tables = {run.file_name(name): table for name, table in run.tables().items()}
  for order in published.ORDERS:
    rows = tables[order.table].rows
    known = {entry.name for entry in rows} | {entry.setting for entry in rows} | {claims.PLAIN}
    assert {order.better, order.worse} <= known, order


@pytest.mark.slow
def test_the_page_is_filled_from_results_alone(tmp_path, monkeypatch):
  """On a small recorded result."""
  pages = site_module("method_pages")
  (tmp_path / "scenes_lossy.json").write_text(json.dumps(document()))
  for quoted in (*pages.RESULTS.glob("lifted_*.md"), pages.RESULTS / "scenes_long_windows.md"):  # rows of these are quoted
    (tmp_path / quoted.name).write_text(quoted.read_text())
  monkeypatch.setattr(pages, "RESULTS", tmp_path)
  text = pages.filled(LOSSY.read_text())
  assert "| static groups | none |" in text and f"wrong ({NUM} images; plain decoding)" in text
  assert "not measured" in text and "rows differ significantly from plain decoding in correct images" in text
  assert pages.filled(text) == text
  with pytest.raises(ValueError, match="settings, without top-p, orders, limits"):
    pages.filled("<!-- lossy: weather -->\n<!-- end -->")


def test_the_page_is_in_the_documentation():
  """Its tables are compared in tests/test_method_pages.py, as those of all pages."""
  assert f"results/{LOSSY.stem}" in {page for pages in site_module("navigation").NAVIGATION.values() for page in pages}
  assert LOSSY in site_module("method_pages").filled_pages()


@pytest.mark.slow
def test_the_figure_is_drawn(tmp_path):
  pytest.importorskip("matplotlib")
  from experiments.figures import lossy as figure

  figure.draw(lossy.points({"scenes_lossy": document()}), tmp_path / "lossy.png")
  assert (tmp_path / "lossy.png").stat().st_size > 5000


@pytest.mark.slow
def test_the_figure_of_the_audit_is_drawn(tmp_path):
  pytest.importorskip("matplotlib")
  from experiments.figures import audit as figure

  bias = {"tv": {"value": 0.02, "low": 0.01, "high": 0.03}}
  rows = [row | {"audit": None if row["method"] == "ar" else bias} for row in document()["rows"]]
  figure.draw(document() | {"rows": rows}, tmp_path / "audit.png")
  assert (tmp_path / "audit.png").stat().st_size > 5000
