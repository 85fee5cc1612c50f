"""How a terminal is found to show images: by its environment, and by its answers."""

import io
import sys
import time

import pytest
from rich.color import ColorSystem
from rich.console import Console

from jaxspec.cli import terminal
from tests.cli.pseudo_terminal import run_in_terminal

KITTY, SIXEL, NEITHER = "\x1b_Gi=31;OK\x1b\\\x1b[?62c", "\x1b[6;18;9t\x1b[?62;4;22c", "\x1b[?64;1;2c"
NEVER = lambda question: pytest.fail(f"was asked {question!r}")


class _Terminal(io.StringIO):
  def isatty(self):
    return True


def find(env, ask=NEVER, file=None):
  """What is chosen for stdout that is a terminal, or ``file``."""
  console = Console(file=file or _Terminal(), _environ=env)
  return terminal.find_screen(console, env, ask)


@pytest.mark.parametrize(
  "env, answers, protocol",
  [
    ({"TERM": "xterm-kitty"}, None, "kitty"),
    ({"TERM": "xterm-ghostty"}, None, "kitty"),
    ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, None, "iterm2"),
    ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, None, "iterm2"),  # what ssh hands over
    ({"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"}, None, "blocks"),
    ({"TERM": "linux"}, None, "blocks"),
    ({"TERM": "xterm-256color"}, KITTY, "kitty"),
    ({"TERM": "xterm-256color"}, SIXEL, "sixel"),
    ({"TERM": "xterm-256color"}, NEITHER, "blocks"),
    ({"TERM": "xterm-256color"}, "", "blocks"),
    ({"TERM": "xterm-256color"}, "\x1b[?4c", "blocks"),  # the first number is a model, no attribute
    ({"TERM": "tmux-256color", "TMUX": "/tmp/tmux", "LC_TERMINAL": "iTerm2"}, NEITHER, "blocks"),
    ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, SIXEL, "sixel"),
    ({"TERM": "screen", "STY": "1.x"}, NEITHER, "blocks"),
  ],
)
def test_protocols(env, answers, protocol):
  """A known terminal is not asked; inside of tmux the question for kitty's protocol, which it would show, is left out."""
  asked = []
  ask = NEVER if answers is None else lambda question: asked.append(question) or answers
  assert find(env, ask).protocol == protocol
  for question in asked:
    assert question.endswith("\x1b[c") and ("\x1b_G" in question) == ("TMUX" not in env and "STY" not in env)


def test_colours_and_characters():
  found = find({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, lambda _: SIXEL)
  assert found == ("sixel", ColorSystem.TRUECOLOR, (9, 18))
  assert find({"TERM": "xterm"}, lambda _: NEITHER) == ("blocks", ColorSystem.EIGHT_BIT, (10, 20))


def test_nothing_is_shown_where_nothing_can_be():
  """A pipe, a dumb terminal, and no colours where there is nothing but colours."""
  with pytest.raises(terminal.NotShown, match="stdout is not a terminal; JAXSPEC_SHOW=blocks"):
    find({"TERM": "xterm-256color"}, file=io.StringIO())
  with pytest.raises(terminal.NotShown, match="TERM=dumb"):
    find({"TERM": "dumb"})
  without = {"TERM": "xterm-256color", "NO_COLOR": "1"}
  with pytest.raises(terminal.NotShown, match="NO_COLOR is set"):
    find(without, lambda _: NEITHER)
  assert find(without, lambda _: SIXEL).protocol == "sixel"  # pixels are no colours of a text


def test_the_variable_names_a_protocol():
  for name in terminal.PROTOCOLS:
    assert find({"JAXSPEC_SHOW": name, "TERM": "dumb"}, file=io.StringIO()).protocol == name
  with pytest.raises(ValueError, match="Must have JAXSPEC_SHOW kitty, iterm2, sixel or blocks, we instead got 'x'"):
    find({"JAXSPEC_SHOW": "x"})


def test_a_pipe_that_wants_colours_has_half_blocks():
  """As rich decides it for tables: FORCE_COLOR. Nobody is asked."""
  assert find({"FORCE_COLOR": "1", "TERM": "xterm-256color"}, file=io.StringIO()).protocol == "blocks"


_ASK = "from jaxspec.cli.terminal import *; a = ask_terminal('\\x1b[c'); print(repr(a)); print(by_answers(a))"


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo terminals")
@pytest.mark.parametrize("answers, protocol", [(SIXEL, "sixel"), (KITTY, "kitty")])
def test_a_terminal_is_asked(answers, protocol):
  """What it says is neither shown nor left over."""
  printed, code = run_in_terminal(["-c", _ASK], answers=answers.encode())
  assert code == 0 and printed.split("\r\n")[-2] == protocol
  assert printed.replace("\x1b[c", "", 1).split("\r\n")[0] == repr(answers)


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo terminals")
def test_a_terminal_that_says_nothing_is_not_waited_for_longer_than_asked():
  code = "from jaxspec.cli.terminal import ask_terminal; print(repr(ask_terminal('\\x1b[c', wait_s=0.1)))"
  start = time.monotonic()
  printed, _ = run_in_terminal(["-c", code])
  assert printed.endswith("''\r\n") and time.monotonic() - start < 30
