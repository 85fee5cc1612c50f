"""The notebook docs/tour.ipynb: complete, small, with valid links, and with the same outputs when executed again."""

import json
import re
from pathlib import Path

import pytest

from tests.recorded_tokens import run_as_recorded

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tour.ipynb"


def _cells(kind):
  return [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def test_every_cell_was_executed_and_says_something():
  """In order, without errors or warnings; a cell of definitions may have no output."""
  code = _cells("code")
  assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
  for cell in code:
    kinds = {(output["output_type"], output.get("name")) for output in cell["outputs"]}
    assert kinds <= {("stream", "stdout"), ("execute_result", None)}
    assert kinds or cell["source"][-1].lstrip().startswith("return"), cell["source"]
  shown = [output for cell in code for output in cell["outputs"]]
  assert sum("image/png" in output.get("data", ()) for output in shown) >= 4


def test_the_notebook_is_small_and_names_no_machine():
  text = NOTEBOOK.read_text(encoding="utf-8")
  assert len(text) < 500_000
  written = "".join("".join(cell["source"]) for cell in _cells("code") + _cells("markdown"))
  assert not re.search(r"/(home|root|work|tmp)/", written + json.dumps([cell["metadata"] for cell in _cells("code")]))


def test_links_of_the_notebook_lead_somewhere():
  found = 0
  for cell in _cells("markdown"):
    for target in re.findall(r"\]\(([^)#\s]+)", "".join(cell["source"])):
      found += 1
      assert (NOTEBOOK.parent / target).resolve().exists(), target
  assert found >= 6


@pytest.mark.slow
def test_executed_anew_it_shows_the_same():
  for module in ("nbclient", "ipykernel"):
    pytest.importorskip(module, reason="needs the docs extra: pip install 'jaxspec-decoding[docs]'")
  done = run_as_recorded("tests.tour")
  assert done.returncode == 0, done.stdout + done.stderr
