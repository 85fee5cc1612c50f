"""A command in a pseudo terminal."""

from __future__ import annotations

import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Variables of the terminal around the tests.
_OUTSIDE = ("COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
# Makes the terminal that of the new session, then becomes the command.
_BEGIN = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def run_in_terminal(
  args: Sequence[str],
  *,
  columns: int = 80,
  lines: int = 24,
  env: Mapping[str, str] | None = None,
  cwd: Path | None = None,
  limit_s: float = 240,
) -> tuple[str, int]:
  """What ``python ARGS`` prints in a terminal of this size, and its exit code."""
  import fcntl
  import pty
  import termios

  ours, theirs = pty.openpty()
  fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))
  clean = {name: value for name, value in os.environ.items() if name not in _OUTSIDE}
  clean |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)} | dict(env or {})
  ends = dict(stdin=theirs, stdout=theirs, stderr=theirs)
  process = subprocess.Popen([sys.executable, "-c", _BEGIN, *args], env=clean, cwd=cwd, start_new_session=True, **ends)
  os.close(theirs)
  printed, end = b"", time.monotonic() + limit_s
  try:
    while time.monotonic() < end and select.select([ours], [], [], max(end - time.monotonic(), 0))[0]:
      try:
        piece = os.read(ours, 65536)
      except OSError:  # the process ended
        break
      printed += piece
    return printed.decode(), process.wait(10)
  finally:
    process.kill()
    process.wait()
    os.close(ours)
