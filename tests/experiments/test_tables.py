"""Every committed table equals `experiments.engine.tables.render` of its JSON, and names its command."""

import json
import shlex

import pytest

from experiments import run
from experiments.engine import claims, statistics
from experiments.engine.cells import interval, spread
from experiments.engine.tables import KINDS, render
from jaxspec.core.overrides import override

RESULTS, TABLES = run.RESULTS, run.tables()
DOCUMENTS = run.documents(RESULTS)
# Written by ``jaxspec bench``, and tested there.
BY_THE_COMMAND_LINE = {"bench"}


def test_every_table_has_its_document():
  assert {path.stem for path in RESULTS.glob("*.md")} - BY_THE_COMMAND_LINE == DOCUMENTS.keys()
  assert all(name == document["name"] for name, document in DOCUMENTS.items())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_rendered_table_is_that_of_its_figures(name):
  text = render(DOCUMENTS[name])
  assert text == (RESULTS / f"{name}.md").read_text()
  lines = [line for line in text.splitlines() if line.startswith("|")]
  assert len({line.count("|") for line in lines}) == 1 and "nan" not in text and "[0.0, 0.0]" not in text


@pytest.mark.parametrize("name", DOCUMENTS)
def test_command_makes_this_table(name):
  document = DOCUMENTS[name]
  words = shlex.split(document["command"])
  assert words[:3] == ["python", "-m", "experiments.run"] and run.file_name(words[3]) == name
  assert document["command"] == run.command_of(words[3], words[5::2])
  table = override(TABLES[words[3]], words[5::2])
  assert (document["kind"], document["title"], document["notes"]) == (table.kind, table.title, list(table.notes))


def labels_of(table):
  if hasattr(table, "heats"):
    return [entry.name for heat in table.heats for entry in heat.rows]
  return [entry.name for entry in getattr(table, "rows", ())]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_rows_are_those_of_the_config(name):
  key = next((key for key in TABLES if run.file_name(key) == name), None)
  if key is None or not labels_of(TABLES[key]) or DOCUMENTS[name]["kind"] in ("codecs", "marginals"):
    return
  found = [
    entry["label"] for entry in DOCUMENTS[name]["rows"] if entry["method"] != "parallel" or not name.startswith("cspd_speed")
  ]
  if DOCUMENTS[name]["kind"] == "scenes":
    assert found[:2] == ["plain decoding", "plain decoding, another seed"]
    found = found[2:]
  left_out = DOCUMENTS[name].get("left_out", [])
  is_drawn = lambda label: not any(line.startswith(f"Left out {label}:") for line in left_out)
  assert found == [label for label in labels_of(TABLES[key]) if is_drawn(label)]


@pytest.mark.parametrize("name", [name for name, document in DOCUMENTS.items() if document["kind"] == "scenes"])
def test_rows_are_compared_with_the_rows_that_the_config_names(name):
  """Lossy rows with their exact method, by the figures of single images."""
  table = next(table for key, table in TABLES.items() if run.file_name(key) == name)
  declared = {entry.name: entry.against for entry in table.rows if entry.against}
  assert {row["label"]: row["against"] for row in DOCUMENTS[name]["rows"] if "against" in row} == declared
  found = claims.verdicts(DOCUMENTS[name])
  assert all(found[label, "right"].reference == other for label, other in declared.items())
  assert {verdict.reference for (_, metric), verdict in found.items() if metric != "right"} == {
    claims.subject_of(DOCUMENTS[name])
  }


def test_unknown_kinds_are_refused():
  with pytest.raises(ValueError, match="kind scenes"):
    render({"kind": "x"})
  assert {document["kind"] for document in DOCUMENTS.values()} <= KINDS.keys()


def test_cells():
  assert interval({"value": 0.5, "low": 0.25, "high": 1.0}, 100, 1) == "50.0 [25.0, 100.0]"
  assert interval((1.0, 1.0, 1.0)) == "1.00" and interval([None] * 3) == "" and interval(None) == ""
  assert (
    spread(None) == ""
    and spread(statistics.Ratio(1, 1, 1)) == "1"
    and spread(statistics.Ratio(2, 1, 3)) == "2.00 [1.00, 3.00]"
  )


def figure(label, unfaithful, right):
  metrics = {"unfaithful": unfaithful, "right": right}
  return {
    "label": label,
    "metrics": {name: dict(value=value, low=value - 0.01, high=value + 0.01) for name, value in metrics.items()},
    "images": 64,
  }


def test_an_order_is_claimed_where_it_stays_after_the_correction():
  rows = [figure("CIAR", 0.10, 0.8), figure("Random", 0.2, 0.6), figure("Entropy", 0.105, 0.8)]
  document = {"kind": "scenes", "subject": "CIAR", "rows": [*rows, figure("CIAR, volume", 0.5, 0.1)]}
  found = claims.verdicts(document)
  assert {label for label, _ in found} == {"Random", "Entropy"} and len(found) == 2 * len(claims.METRICS["scenes"])
  assert found["Random", "unfaithful"].order == 1 == found["Random", "right"].order
  assert found["Entropy", "unfaithful"].order == 0 and 0 < found["Entropy", "unfaithful"].detectable < 0.05
  smallest, shown = claims.sentences(document)
  assert smallest.startswith("Smallest true difference detectable with 80 % power, by comparison: correct images ")
  assert shown.startswith("Against CIAR, after Holm's correction over 4 comparisons: Random is worse by correct images")
  assert "Entropy" not in shown and "volume" not in shown and shown.endswith("No other difference is significant.")
  assert "no difference is significant" in claims.sentences(document | {"rows": rows[::2]})[1]
  assert claims.sentences(document | {"rows": rows[1:]}) == []
  assert claims.subject_of({"rows": [figure("plain decoding", 0, 0)]}) == "plain decoding"


def test_rows_with_figures_of_every_image_are_compared_pair_by_pair():
  spread_out = [0.1 * number for number in range(20)]
  rows = [figure("a", 0.95, 0.5), figure("b", 1.05, 0.5)]
  for entry, shift in zip(rows, (0.0, 0.1)):
    entry["metrics"]["unfaithful"] = {"value": 0.95 + shift, "low": 0.6 + shift, "high": 1.3 + shift}
  document = {"kind": "scenes", "subject": "a", "rows": rows}
  order = lambda: claims.verdicts(document)["b", "unfaithful"].order
  assert order() == 0  # the summaries are too wide
  for entry, shift, step in zip(rows, (0.0, 0.1), (1, -1)):
    noise = [0.001 * (number % 3) for number in range(20)][::step]
    entry["per_image"] = {"unfaithful": [x + shift + e for x, e in zip(spread_out, noise)]}
  assert order() == 1
  rows[0]["per_image"]["unfaithful"][3] = None  # a prompt without this attribute
  assert order() == 1


def test_documents_are_json():
  assert json.dumps(run.finite({"a": [float("nan"), (1.0, float("inf"))]})) == '{"a": [null, [1.0, null]]}'
