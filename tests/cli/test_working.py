"""Progress of long commands: finished share, rate, and remaining time."""

import io
import re
import time

import pytest
from rich.console import Console

from jaxspec.render import working
from jaxspec.render.working import Working, pace


@pytest.mark.parametrize(
  "done, total, seconds, words",
  [
    (0, 8, 3.0, ""),
    (2, 8, 4.0, "  2.0 s/image  0:00:12 left"),
    (300, 1000, 60.0, "  5.0 images/s  0:02:20 left"),
    (8, 8, 4.0, "  2.0 images/s  0:00:00 left"),
  ],
)
def test_pace(done, total, seconds, words):
  assert pace(done, total, "image", seconds) == words


def lines(monkeypatch, every, **kwargs):
  """Lines of progress for four steps of 10 s each."""
  monkeypatch.setattr(working, "LINE_EVERY_S", every)
  now, out = [0.0], io.StringIO()
  with Working("Loading", console=Console(file=out, width=20, **kwargs), clock=lambda: now[0]) as report:
    now[0] += 100.0
    report("Decoding [x]")
    for done in range(1, 5):
      now[0] += 10.0
      report.step(done, 4, "image", at_most=done == 3)
  return out.getvalue()


def test_lines_where_there_is_no_terminal(monkeypatch):
  """Now and then; what came before a phase does not count as its time."""
  assert lines(monkeypatch, 15.0).splitlines() == [
    "Decoding [x]",
    "Decoding [x]  2 of 4 images  10.0 s/image  0:00:20 left",
    "Decoding [x]  4 of 4 images  10.0 s/image  0:00:00 left",
  ]
  assert "3 of at most 4 images  10.0 s/image  at most 0:00:10 left" in lines(monkeypatch, 5.0)
  assert lines(monkeypatch, 1000.0) == ""


def test_a_bar_in_a_terminal_that_goes_when_all_is_done(monkeypatch):
  shown = lines(monkeypatch, 5.0, force_terminal=True, _environ={"COLUMNS": "110", "TERM": "xterm"})
  assert "\r\x1b[2K" in shown and not re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", shown.split("\r")[-1]).strip()


def test_what_was_done_before_a_stage_began_has_no_rate(monkeypatch):
  monkeypatch.setattr(working, "LINE_EVERY_S", 0.0)
  now, out = [0.0], io.StringIO()
  with Working("Training", console=Console(file=out), clock=lambda: now[0]) as report:
    now[0] += 10.0
    report.step(3, 6, "update", since=2)
  assert out.getvalue() == "Training  3 of 6 updates  10.0 s/update  0:00:30 left\n"


def test_a_silent_stage_prints_its_time(monkeypatch):
  """A compiler reports nothing: without a terminal a thread prints how long it has been running."""
  monkeypatch.setattr(working, "LINE_EVERY_S", 15.0)
  now, out = [0.0], io.StringIO()
  with Working("Loading", console=Console(file=out), clock=lambda: now[0]) as report:
    now[0] += 20.0
    report("Compiling")
    now[0] += 10.0
    report.tell_time()  # a line was printed 10 s ago
    now[0] += 21.0
    report.tell_time()
  assert out.getvalue().splitlines() == ["Compiling", "Compiling  for 0:00:31"]
  monkeypatch.setattr(working, "LINE_EVERY_S", 0.01)
  monkeypatch.setattr(working, "CHECK_EVERY_S", 0.01)
  out = io.StringIO()
  with Working("Compiling", console=Console(file=out)):
    deadline = time.monotonic() + 10
    while not out.getvalue() and time.monotonic() < deadline:
      time.sleep(0.01)
  assert out.getvalue().startswith("Compiling  for 0:00:00")
