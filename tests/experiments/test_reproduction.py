"""docs/reproducing.md: its commands exist, its figures are those of the tables, and orders stand on differences."""

import importlib.util
import pkgutil
import re

import pytest

from experiments import papers, run
from experiments.engine import reproduction
from tests.site_modules import site_module

PAGE = run.RESULTS.parents[1] / "docs" / "reproducing.md"
TABLES, DOCUMENTS = run.tables(), run.documents(run.RESULTS)
PAPERS = {
  info.name: importlib.import_module(f"experiments.papers.{info.name}").ITEMS
  for info in pkgutil.iter_modules(papers.__path__)
}
ITEMS = [(name, item) for name, items in PAPERS.items() for item in items]
# An interval, a p value, a test by intervals, or a mark of `sqs:sweep`.
DIFFERENCE = re.compile(r"[+-]\d[\d.]* \[|\bp [\d.]|brackets|slower|difference in points")


@pytest.fixture(scope="module")
def rendered():
  """The cells of every item, by paper and name."""
  found = {}
  for paper, items in PAPERS.items():
    _, _, *lines = reproduction.table(items, run.RESULTS, DOCUMENTS, "results").splitlines()
    assert len(lines) == len(items)
    found |= {(paper, item.name, item.made_by): line.split(" | ") for item, line in zip(items, lines)}
  return found


def test_the_page_has_every_paper():
  text = PAGE.read_text()
  assert re.findall(r"<!-- paper: (\w+) -->", text) == ["ciar", "sqs", "cspd", "gsd"] and set(PAPERS) == {
    "ciar", "sqs", "cspd", "gsd"
  }  # fmt: skip
  assert "reproducing" in site_module("navigation").NAVIGATION["Results"]


@pytest.mark.parametrize("paper, item", ITEMS, ids=lambda one: one if isinstance(one, str) else one.name)
def test_an_item_names_what_makes_it(paper, item):
  tables = [name for name in item.made_by if not name.startswith("figures.")]
  modules = [name for name in item.made_by if name.startswith("figures.")]
  assert set(tables) <= TABLES.keys() and all(importlib.util.find_spec(f"experiments.{name}") for name in modules)
  assert all(run.file_name(name) in DOCUMENTS for name in tables)
  assert item.state == reproduction.IMPOSSIBLE or item.made_by


def test_orders_stand_on_differences(rendered):
  for paper, item in ITEMS:
    assert item.state in reproduction.STATES and item.why, item.name
    *_, ours, why = rendered[paper, item.name, item.made_by]
    if item.state in reproduction.STATED:
      assert "[[" in item.ours + item.why and DIFFERENCE.search(f"{ours} {why}"), item.name
    if item.state == reproduction.REVERSED:
      words = set(re.findall(r"\w+", ours))
      ratios = [float(low) > 1 for low in re.findall(r"\[([\d.]+), ", why)] if "are above 1" in why else []
      stands = "reversed (" in why or "do not overlap" in why or {"faster", "slower"} <= words
      assert stands or ratios and all(ratios), item.name
    if item.state == reproduction.SAME:
      assert "holds (" in why or "do not overlap" in why or DIFFERENCE.search(why), item.name


def test_figures_here_are_looked_up():
  """Numbers of our texts, besides settings, come from tables."""
  for _, item in ITEMS:
    typed = re.sub(r"\[\[.*?\]\]|\]\(.*?\)", "", item.ours)
    assert not re.search(r"\d\.\d{4}|\d\d\.\d", typed), item.name


@pytest.mark.parametrize(
  "lookup, message",
  [
    ("nothing | CIAR | correct, %", "a table in.*'nothing'"),
    ("scenes_ciar_tau | CIAR at 31 % | correct, %", "one row of scenes_ciar_tau.*'CIAR at 31 %'"),
    ("scenes_ciar_tau | CIAR at 30 % | right", "one column of scenes_ciar_tau.*'right'"),
    ("scenes_speed | EAGLE-2 | target calls", "one row of scenes_speed.*'EAGLE-2'"),
    ("mean | scenes_ciar_depth | 5 layers", "a setting of a training.*5 layers"),
    ("order | all is well", "a published order.*'all is well'"),
  ],
)
def test_lookups_without_a_figure(lookup, message):
  item = reproduction.Item("x", (), "", f"[[{lookup}]]", reproduction.NO_ORDER, "y")
  with pytest.raises(ValueError, match=message):
    reproduction.table((item,), run.RESULTS, DOCUMENTS, "results")


def test_lookups():
  get = lambda text: reproduction.table(
    (reproduction.Item("x", (), "", f"[[{text}]]", reproduction.NO_ORDER, "y"),), run.RESULTS, DOCUMENTS, "results"
  ).splitlines()[2].split(" | ")[3]  # fmt: skip
  assert get("scenes_speed | EAGLE-2 | target calls | batch=8") == "21.7"
  tokens = "lifted_groups | {} | tokens per call"
  assert get(f"apart | {tokens.format('SJD')} ;; {tokens.format('GSD, G 100')}") == "the brackets do not overlap"
  assert get(f"apart | {tokens.format('SJD')} ;; {tokens.format('GSD, G 10')}") == "the brackets overlap"
  with pytest.raises(ValueError, match="a paper in experiments/papers.*'nothing'"):
    site_module("method_pages").paper("nothing", PAGE.parent)
