"""Which images the terminal shows that stdout goes to, by its environment and by what it answers.

1. ``JAXSPEC_SHOW`` names a protocol; then nothing is asked, and stdout may be anything.
2. What is no terminal, or says that it is a dumb one, shows nothing.
3. A terminal whose name is known has its protocol. tmux and screen hide the terminal around them.
4. Others are asked whether they know kitty's protocol or sixels. The last question is for the attributes that every terminal
   tells: nobody waits for an answer that does not come, and none is left for the shell.
5. All others show half blocks, unless ``NO_COLOR`` forbids colours.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rich.color import ColorSystem
from rich.console import Console

PROTOCOLS = ("kitty", "iterm2", "sixel", "blocks")
VARIABLE = "JAXSPEC_SHOW"
_WAIT_S = 1.0  # a round trip over a slow connection
_CELL = (10, 20)  # pixels of a character where nobody says
_ASK_KITTY = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
_ASK_CELL, _ASK_ATTRIBUTES = "\x1b[16t", "\x1b[c"
_ATTRIBUTES = re.compile(r"\x1b\[\?([\d;]*)c")
_SIXEL = "4"  # among the attributes
_OF_KITTY = ("xterm-kitty", "xterm-ghostty")
_OF_ITERM2 = {"TERM_PROGRAM": ("iTerm.app", "mintty"), "LC_TERMINAL": ("iTerm2",)}
_PRINTS_QUESTIONS = {"TERM_PROGRAM": ("Apple_Terminal",), "TERM": ("linux",)}


class NotShown(ValueError):
  """Why there is nothing to show images on; one line."""


class Screen(NamedTuple):
  """How images are shown."""

  protocol: str  # one of PROTOCOLS
  colours: ColorSystem  # of half blocks
  cell: tuple[int, int]  # width and height of a character, in pixels


def find_screen(console: Console, env: Mapping[str, str] = os.environ, ask: Callable[[str], str] | None = None) -> Screen:
  """How to show images on stdout.

  Args:
    console: of stdout.
    ask: writes a question to the terminal and returns what it answers; by default to the terminal of this process.
  Raises:
    NotShown: where they cannot be shown.
    ValueError: for a protocol that is not there.
  """
  forced = env.get(VARIABLE, "")
  if forced and forced not in PROTOCOLS:
    raise ValueError(f"Must have {VARIABLE} {', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]}, we instead got {forced!r}")
  true = console.color_system == "truecolor" or env.get("COLORTERM") in ("truecolor", "24bit")
  colours = ColorSystem.TRUECOLOR if true else ColorSystem.EIGHT_BIT
  if forced:
    return Screen(forced, colours, _cell_of(console) or _CELL)
  if not console.is_terminal:
    raise NotShown(f"stdout is not a terminal; {VARIABLE}=blocks writes half blocks there")
  if console.is_dumb_terminal:
    raise NotShown(f"the terminal says TERM={env.get('TERM')}, that it draws nothing")
  protocol, cell = _by_name(env), _cell_of(console)
  if protocol is None and (question := _question(env)) and console.file.isatty():
    answers = (ask or ask_terminal)(question)
    protocol, cell = by_answers(answers), cell or cell_by_answers(answers)
  if protocol is None and console.no_color:
    raise NotShown(f"NO_COLOR is set, and half blocks are nothing but colours; {VARIABLE}=blocks shows them")
  return Screen(protocol or "blocks", colours, cell or _CELL)


def by_answers(answers: str) -> str | None:
  """The best protocol that a terminal said it has."""
  if "\x1b_Gi=31;OK\x1b\\" in answers:
    return "kitty"
  told = _ATTRIBUTES.search(answers)
  return "sixel" if told is not None and _SIXEL in told[1].split(";")[1:] else None


def cell_by_answers(answers: str) -> tuple[int, int] | None:
  """Width and height of a character in pixels, if a terminal said so."""
  told = re.search(r"\x1b\[6;([1-9]\d*);([1-9]\d*)t", answers)
  return None if told is None else (int(told[2]), int(told[1]))


def ask_terminal(question: str, wait_s: float = _WAIT_S) -> str:
  """What the terminal of this process answers, its attributes last; less or nothing where it does not answer in time."""
  with contextlib.suppress(ImportError, OSError), _quiet_terminal() as terminal:
    os.write(terminal, question.encode())
    answers, end = "", time.monotonic() + wait_s
    while not _ATTRIBUTES.search(answers) and select.select([terminal], [], [], max(end - time.monotonic(), 0))[0]:
      answers += os.read(terminal, 1024).decode("latin-1")
    return answers
  return ""


@contextlib.contextmanager
def _quiet_terminal() -> Iterator[int]:
  """The terminal of this process, which neither shows what it answers nor waits for the end of a line.

  Raises:
    OSError: where there is none, or it belongs to another process now: asking would stop this one.
    ImportError: where terminals are of another kind (Windows).
  """
  import termios
  import tty

  terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
  try:
    if os.tcgetpgrp(terminal) != os.getpgrp():
      raise OSError("in the background")
    before = termios.tcgetattr(terminal)
    try:
      tty.setcbreak(terminal, termios.TCSANOW)
      yield terminal
    finally:
      termios.tcsetattr(terminal, termios.TCSANOW, before)
  except termios.error as error:
    raise OSError(str(error)) from error
  finally:
    os.close(terminal)


def _is_nested(env: Mapping[str, str]) -> bool:
  return bool(env.get("TMUX") or env.get("STY")) or env.get("TERM", "").startswith(("tmux", "screen"))


def _matches(env: Mapping[str, str], names: Mapping[str, tuple[str, ...]]) -> bool:
  return any(env.get(variable) in values for variable, values in names.items())


def _by_name(env: Mapping[str, str]) -> str | None:
  """The protocol of a terminal that is known by its environment."""
  if _is_nested(env):
    return None
  if env.get("TERM") in _OF_KITTY:
    return "kitty"
  return "iterm2" if _matches(env, _OF_ITERM2) else None


def _question(env: Mapping[str, str]) -> str:
  """What a terminal may be asked; some would print the question, and tmux would make a title of it."""
  if _matches(env, _PRINTS_QUESTIONS):
    return ""
  return ("" if _is_nested(env) else _ASK_KITTY) + _ASK_CELL + _ASK_ATTRIBUTES


def _cell_of(console: Console) -> tuple[int, int] | None:
  """Width and height of a character, where the system knows the pixels of the terminal."""
  try:
    import fcntl
    import struct
    import termios

    rows, columns, width, height = struct.unpack("4H", fcntl.ioctl(console.file.fileno(), termios.TIOCGWINSZ, b"\0" * 8))
  except (ImportError, OSError, AttributeError, ValueError):
    return None
  return (width // columns, height // rows) if min(rows, columns) and width >= columns and height >= rows else None
