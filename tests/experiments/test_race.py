"""Alternating timings of every kind of networks, from the turns to the printed table; decodes are fake, so nothing is
compiled."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments import run
from experiments.engine.bench import Bench
from experiments.engine.experiment import Lab
from experiments.engine.race import Heat, Race
from experiments.engine.rows import PLAIN, row
from experiments.engine.tables import render
from jaxspec.core.options import options_of
from jaxspec.core.state import Counters
from jaxspec.methods import METHODS
from tests.helpers import slow_but
from tests.methods.networks import CAUSAL, MAR, SMALL
from tests.run import test_denoising as test_states
from tests.run import tiny

# Formats of networks, and their kinds of results.
KINDS = {
  "captions": (tiny.captions, "red apple"),
  "texts": (lambda path: tiny.texts(path) / "target", "on"),
  "causal": (lambda path: tiny.vectors(path, CAUSAL), "animal-bird"),
  "mar": (lambda path: tiny.vectors(path, MAR), "animal-bird"),
  "maps": (tiny.scales, 1),
  "states": (test_states.write_tiny, 1),
}
TURNS, BATCH = 2, 2
PLAIN_LENGTHS, OWN_LENGTHS = np.array([[8, 4], [4, 8]]), np.array([[2, 4], [4, 2]])


def drawn(lengths):
  """Results of turns, with rows of 1 call for 2 tokens."""
  counts = [np.array(each) for each in lengths]
  return [SimpleNamespace(lengths=one, counters=Counters(*(one // 2,) * 6)) for one in counts]


@pytest.mark.parametrize("kind", slow_but(KINDS, ["captions"]))
def test_a_race_of_every_method_is_printed(kind, tmp_path, monkeypatch):
  """Texts differ in length, so their time is per token; rows of images have one length."""
  write, prompt = KINDS[kind]
  path, lab = str(write(tmp_path / "networks")), Lab(tmp_path)
  is_text = kind == "texts"
  methods = [name for name in lab.pipeline(path).methods() if name != PLAIN.method]
  chosen = lambda name: {key: value for key, value in SMALL.get(name, {}).items() if key in options_of(METHODS[name])}
  rows = (PLAIN.but(label="plain decoding"), *(row(name, name, **chosen(name)) for name in methods))
  rows = tuple(entry.but(max_len=8 if is_text else None) for entry in rows)

  def race(self, entered, *, turns, batch):
    lengths = [PLAIN_LENGTHS, *(OWN_LENGTHS,) * (len(entered) - 1)]
    return [[4.0, 4.0]] + [[2.0, 2.0]] * (len(entered) - 1), [drawn(each) for each in lengths]

  monkeypatch.setattr(Bench, "race", race)
  table = Race(title="t", bundle=path, heats=(Heat(BATCH, TURNS, rows),), texts=(prompt,))
  document = run.finite(table.frame("t", "c") | table.measure(lab))
  text = render(document)
  assert len(document["rows"]) > 1 and document["ends"] == is_text
  head, _, *lines = [line for line in text.splitlines() if line.startswith("|")]
  assert len(lines) == len(document["rows"])
  if is_text:  # half the time for half the tokens is not a gain
    assert "ms per token" in head and "333.33" in lines[0] and all("| 333.33 | 1 |" in line for line in lines[1:])
    assert "| 3.0 | 2.00 |" in lines[0] and "seconds per token" in text and "other texts" in text
    assert "Left out gsd" in text and all("gsd" not in line for line in lines)
  else:
    assert "ms per image" in head and all("| 1000 | 2.00 |" in line for line in lines[1:]) and "other images" in text
