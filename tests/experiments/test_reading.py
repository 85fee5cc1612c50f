"""Work of a server on a frame before its network runs, for small frames."""

import time

import pytest

pytest.importorskip("google.protobuf", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from experiments.bench.reading import Reading
from experiments.configs.bench import TABLES
from experiments.engine.experiment import Lab


def test_every_coding_is_read(tmp_path):
  table = Reading(
    title="small", vocab=300, window=3, frames=tuple((coding, 8) for coding, _ in TABLES["reading"].frames), repeats=2
  )
  document = table.measure(Lab(tmp_path))
  rows = [row["cells"] for row in document["rows"]]
  assert [tuple(row[:2]) for row in rows] == [(coding, "8") for coding, _ in table.frames]
  assert all(len(row) == len(document["head"]) and int(row[2]) > 0 for row in rows)


def test_the_first_time_does_not_count():
  runs = []
  found = Reading(title="times", repeats=3).milliseconds(lambda: runs.append(time.sleep(0.005 * (not runs))))
  assert len(runs) == 4 and len(found) == 3 and max(found) < 5
