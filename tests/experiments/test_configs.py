"""Every table names methods, options and rows that exist; names, files and labels are unique."""

import pytest

from experiments import run
from experiments.configs import cspd, scenes_ciar
from experiments.engine.race import Race
from experiments.engine.rows import OPEN, PLAIN, code, row
from jaxspec.core.options import options_of
from jaxspec.core.overrides import override
from jaxspec.methods import METHODS
from jaxspec.sampling import SAMPLING_TYPES

TABLES = run.tables()


def rows_of(table):
  if isinstance(table, Race):
    return [entry for heat in table.heats for entry in heat.rows]
  return list(getattr(table, "rows", ()))


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_methods_with_options_that_exist(name):
  for entry in rows_of(TABLES[name]):
    method = entry.plain_value()
    assert entry.method in METHODS
    known = set().union(*(options_of(kind).keys() for tokens, kind in SAMPLING_TYPES.items() if method.fits(tokens)))
    assert dict(entry.sampling).keys() <= known
    if entry.rate is not None:
      assert "tau" in options_of(type(method)) and 0 < entry.rate < 1 and "tau" not in dict(entry.options)


def test_tables_have_titles_files_and_labels_of_their_own():
  assert len({table.title for table in TABLES.values()}) == len(TABLES)
  assert len({run.file_name(name) for name in TABLES}) == len(TABLES)
  for name, table in TABLES.items():
    groups = [heat.rows for heat in table.heats] if isinstance(table, Race) else [rows_of(table)]
    walked = getattr(table, "walked", ())
    for group in groups:
      labels = [(entry.name, *(dict((*entry.options, *entry.sampling)).get(key) for key in walked)) for entry in group]
      assert len(set(labels)) == len(labels), name


def test_a_bad_row_says_what_is_wrong():
  for bad, words in ((row("gds"), "method"), (row("gsd", group=3), "group"), (row("gsd", group_size=0), "group_size")):
    with pytest.raises(ValueError, match=words):
      bad.plain_value()


def test_labels_say_what_differs():
  assert PLAIN.name == "ar" and PLAIN.but(seed=1).name == "ar, seed 1"
  assert row("gsd", group_size=3, max_distance=4.0).name == "gsd, group size 3, max distance 4.0"
  assert row("sjd", sampling={"temperature": 0.5}).name == "sjd, temperature 0.5"
  assert row("lantern", "LANTERN++", factor=2.0).but(draft="draft-1").name == "LANTERN++"
  assert dict(code(0.3).options) == {"tau": OPEN, "target_prefix": 77 / 256}


def test_chains_that_end_in_a_mean_have_no_exact_rule():
  rows = cspd.TABLES["ends_mar"].rows
  assert [entry.label for entry in rows] == ["published", "released", "published", "released", "exact"]
  assert {dict(entry.sampling)["stop"] for entry in rows} == {None, 5}
  table = override(cspd.TABLES["gamma_causal"], ["steps=1,1,1", "stop=7"])
  assert dict(table.placed(table.rows[0]).sampling) == {"steps": "1,1,1", "stop": 7}


def test_edges_race_at_one_rate():
  for heat in scenes_ciar.TABLES["speed"].heats:
    plain, *windows, alone, relaxed, tree = heat.rows
    assert plain.method == "ar" and dict(alone.options)["tau"] == OPEN
    assert (relaxed.method, tree.method) == ("lantern", "eagle")
    assert {dict(entry.options)["cloud_rate"] for entry in windows} == {scenes_ciar.RATE}


def test_sizes_are_checked():
  for field in ("batch", "scorer.num"):
    with pytest.raises(ValueError, match=field.rpartition(".")[2]):
      override(TABLES["scenes:gsd_groups"], [f"{field}=0"])
