"""The notebook of the documentation, executed again and compared with its outputs.

    python -m tests.tour            # executes everything and compares; minutes
    python -m tests.tour --write    # stores the outputs

Rounding can change single tokens, so outputs are compared only if `tests.recorded_tokens` would compare tokens.
"""

from __future__ import annotations

import argparse
import base64
import io
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from nbclient import NotebookClient
from PIL import Image

from tests.recorded_tokens import difference, machine, use_all_cores

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tour.ipynb"
MACHINE = "recorded_on"  # among the metadata
LIMIT_S = 900  # of a cell


def read() -> nbformat.NotebookNode:
  """The notebook with its outputs."""
  return nbformat.read(NOTEBOOK, as_version=4)


def executed(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
  """The same cells with new outputs, in a separate process.

  Raises:
    nbclient.exceptions.CellExecutionError: for a cell that fails.
  """
  fresh = nbformat.from_dict(notebook)
  resources = {"metadata": {"path": str(NOTEBOOK.parents[1])}}
  return NotebookClient(fresh, timeout=LIMIT_S, kernel_name="python3", resources=resources).execute()


def outputs(notebook: nbformat.NotebookNode) -> list[list[Any]]:
  """Outputs of each code cell: its text, and its images as pixels."""
  return [[_shown(output) for output in _joined(cell.outputs)] for cell in notebook.cells if cell.cell_type == "code"]


def _joined(found: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
  """Outputs, with consecutive lines of text joined."""
  joined = []
  for output in found:
    last = joined[-1] if joined else {}
    if output.output_type == "stream" and last.get("name") == output.name:
      joined[-1] = nbformat.from_dict(last | {"text": last.text + output.text})
    else:
      joined.append(output)
  return joined


def _shown(output: nbformat.NotebookNode) -> Any:
  if output.output_type == "stream":
    return output.name, output.text
  if "image/png" in output.data:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))))
  return output.data["text/plain"]


def differences(recorded: nbformat.NotebookNode, fresh: nbformat.NotebookNode) -> list[str]:
  """Differences, one line for each cell."""
  found = []
  for number, (old, new) in enumerate(zip(outputs(recorded), outputs(fresh), strict=True), 1):
    same = len(old) == len(new) and all(type(a) is type(b) and np.array_equal(a, b) for a, b in zip(old, new))
    if not same:
      found.append(f"cell {number} shows {new} instead of {old}")
  return found


def write(notebook: nbformat.NotebookNode) -> None:
  """Stores the outputs and what they depend on; times are left out."""
  for cell in notebook.cells:
    cell.metadata.pop("execution", None)
    if cell.cell_type == "code":
      cell.outputs = _joined(cell.outputs)
    for output in cell.get("outputs", ()):
      if "image/png" in output.get("data", ()):
        output.data["text/plain"] = "<image>"
        output.data.pop("image/jpeg", None)
        output.data["image/png"] = base64.b64encode(_smaller(base64.b64decode(output.data["image/png"]))).decode()
  notebook.metadata = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
    MACHINE: machine(),
  }
  nbformat.write(notebook, NOTEBOOK)


def _smaller(data: bytes) -> bytes:
  file = io.BytesIO()
  Image.open(io.BytesIO(data)).save(file, "PNG", optimize=True)
  return file.getvalue()


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--write", action="store_true", help="store the outputs")
  args = parser.parse_args()
  use_all_cores()
  recorded = read()
  fresh = executed(recorded)
  if args.write:
    write(fresh)
    return
  if why := difference(recorded.metadata[MACHINE]):
    print(f"Outputs may differ: {why}")
    shapes = lambda notebook: [[getattr(shown, "shape", type(shown)) for shown in cell] for cell in outputs(notebook)]
    failed = [] if shapes(fresh) == shapes(recorded) else ["cells show something of another kind or size"]
  else:
    failed = differences(recorded, fresh)
  if failed:
    raise SystemExit("\n".join(failed))


if __name__ == "__main__":
  main()
