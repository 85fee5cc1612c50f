"""What ``jaxspec generate`` prints below its images and texts."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from jaxspec.cli.summary import say

WORDS = "a small bundle  3 images of 144 tokens  float32, bfloat16 products, on cpu"


@pytest.mark.parametrize("terminal", [True, False])
def test_lines_break_between_words_in_a_terminal_and_nowhere_in_a_file(terminal):
  out = io.StringIO()
  say(Console(file=out, width=20, force_terminal=terminal, color_system=None), Text(WORDS))
  lines = out.getvalue().splitlines()
  assert (len(lines) > 1) == terminal and " ".join(lines).split() == WORDS.split()
  assert not terminal or max(map(len, lines)) <= 20
