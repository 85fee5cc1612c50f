"""What ``jaxspec generate`` prints below its images and texts."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from jaxspec.cli.summary import figure_table, say, verdict
from jaxspec.core.state import Counters, DecodeResult
from jaxspec.methods import Plain, Speculative
from jaxspec.run.batches import Batches
from jaxspec.run.figures import figures, speedup
from jaxspec.run.generation import Generation

WORDS = "a small bundle  3 images of 144 tokens  float32, bfloat16 products, on cpu"


@pytest.mark.parametrize("terminal", [True, False])
def test_lines_break_between_words_in_a_terminal_and_nowhere_in_a_file(terminal):
  out = io.StringIO()
  say(Console(file=out, width=20, force_terminal=terminal, color_system=None), Text(WORDS))
  lines = out.getvalue().splitlines()
  assert (len(lines) > 1) == terminal and " ".join(lines).split() == WORDS.split()
  assert not terminal or max(map(len, lines)) <= 20


def _run(method, lengths, seconds) -> Generation:
  lengths = np.asarray(lengths)
  blank = np.zeros((len(lengths), int(lengths.max())), int)
  result = DecodeResult(blank, lengths, Counters(*(lengths,) * 6), blank > 0, blank, blank)
  family = SimpleNamespace(decode=lambda tokens, lengths, **_: ["" for _ in lengths])
  job = SimpleNamespace(method=method, noun="text", sampling=None, pipeline=SimpleNamespace(family=family))
  batches = Batches(np.arange(len(lengths)), np.zeros(len(lengths), int), [blank], [blank])
  return Generation(job, batches, [result], 0.0, seconds)


@pytest.mark.parametrize(("seconds", "words"), [([0.7, 0.8, 0.6], "0.71x its speed"), ([0.4, 0.25, 0.2], "2.00x as fast")])
def test_texts_of_different_lengths_are_compared_by_the_token(seconds, words):
  """Speculation took less time than plain decoding because its texts were shorter: the verdict agrees with the table."""
  runs = [_run(Speculative(), [4, 6], seconds), _run(Plain(), [12, 8], [1.0, 1.1, 0.9])]
  fast, plain = map(figures, runs)
  assert speedup(runs) == pytest.approx(fast["tokens_per_s"] / plain["tokens_per_s"])
  assert words in verdict(speedup(runs), 3).plain and "wall time per token" in verdict(speedup(runs), 3).plain
  assert verdict(2.0, 3, "Method rows").plain.startswith("Method rows was 2.00x as fast as plain decoding")
  console = Console(file=io.StringIO(), width=80)
  console.print(figure_table("text", runs))
  (line,) = [line.split() for line in console.file.getvalue().splitlines() if line.startswith("tokens per second")]
  assert line == ["tokens", "per", "second", f"{fast['tokens_per_s']:,.0f}", "20"]
