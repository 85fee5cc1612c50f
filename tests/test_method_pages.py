"""The pages of the methods equal the output of their script, and every method has a page and a picture."""

import re

import pytest

from experiments.figures import exchange, rounds
from jaxspec.methods import METHODS
from tests.site_modules import site_module

_PAGES = site_module("method_pages")
PAGES, figures, filled = _PAGES.PAGES, _PAGES.figures, _PAGES.filled


def test_every_method_has_a_page_of_all_parts():
  assert {path.stem for path in PAGES.glob("*.md")} == {"index", *METHODS}
  for name, cls in METHODS.items():
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert text.splitlines()[0].endswith(f"(`{name}`)")
    assert f"](../images/rounds/{name}.svg)" in text and f"<!-- options: {name} -->" in text and f"--method {name}" in text
    assert f"methods.{cls.__name__}(" in text
    headings = re.findall(r"^## (.*)$", text, re.M)
    assert headings == ["Use", "Guarantee", "Cost", "Options", "Source"][: 5 if cls.source else 4]
    assert ("**Not exact.**" in text or "**not exact**" in text or "**Not exact**" in text) != cls.exact
    for paper in re.findall(r"arXiv (\d{4}\.\d{5})", cls.source):
      assert f"https://arxiv.org/abs/{paper}" in text


def test_tables_are_those_of_the_declarations_and_results():
  for path in _PAGES.filled_pages():
    text = path.read_text(encoding="utf-8")
    assert filled(text, path.parent) == text, f"{path.name} is not what `python docs/_ext/method_pages.py` writes"


@pytest.mark.parametrize(
  ("name", "rows", "columns", "message"),
  [
    ("scenes_speed", ["sdj"], ["decode"], "rows.*'sdj'"),
    ("scenes_speed", ["EAGLE-2"], ["decode", "ms"], "columns.*'ms'"),
    ("scenes_ciar_comparison_30", ["CIAR"], ["decode", "p"], "one column.*several 'p'"),
  ],
)
def test_figures_that_are_not_there(name, rows, columns, message):
  with pytest.raises(ValueError, match=message):
    figures(name, rows, columns)


def test_a_table_that_is_not_there():
  with pytest.raises(ValueError, match="a table in.*'nothing'"):
    _PAGES.whole("nothing")


def test_pictures_are_what_their_script_draws():
  assert exchange.IMAGE.read_text(encoding="utf-8") == exchange.render()
  assert set(rounds.PICTURES) == set(METHODS)
  for name in METHODS:
    assert (rounds.IMAGES / f"{name}.svg").read_text(encoding="utf-8") == rounds.render(name)


def test_pictures_commit_what_was_accepted():
  """In the picture of a chain, committed tokens are the accepted drafts and one token of the target."""
  for name, picture in rounds.PICTURES.items():
    if len(picture.steps) < 3:
      continue
    judged, committed = picture.steps[1], picture.steps[2]
    passed = sum((judged.tokens + judged.branch).count(kind) for kind in "VG")
    assert committed.tokens.count("A") == passed and committed.tokens.endswith("T"), name
