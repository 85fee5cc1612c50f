"""The target side in a process of its own: serves cases over stdin and stdout, one stream each.

Each stream is preceded by a line with the name of its case. `TargetProcess` is the other end.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
Transport = Callable[[bytes], bytes]


def main() -> None:
  # What is printed must not come between the replies.
  replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
  os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

  import tests.conftest  # noqa: F401  settings of numerics, as in the tests
  from jaxspec.serving.edge.pipe import serve
  from tests.serving.edge.pairs import case_named

  requests = sys.stdin.buffer
  while name := requests.readline().decode().strip():
    serve(case_named(name).target_endpoint(), requests, replies, max_streams=1)


class TargetProcess:
  """Runs `main` in another process, started at the first stream and again after one that failed."""

  def __init__(self):
    self._process: subprocess.Popen | None = None

  @contextlib.contextmanager
  def serving(self, name: str) -> Iterator[Transport]:
    """The transport to a case, for one stream."""
    from jaxspec.serving.edge.pipe import pipe_transport

    if self._process is None:
      command = [sys.executable, "-m", "tests.serving.edge.target_process"]
      self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    process = self._process
    process.stdin.write(f"{name}\n".encode())
    try:
      yield pipe_transport(process.stdin, process.stdout)
    except BaseException:
      process.kill()
      self._process = None
      raise

  def close(self) -> None:
    """Ends the process, which must have nothing left to say."""
    if self._process is not None:
      self._process.stdin.close()
      assert self._process.wait(60) == 0 and not self._process.stdout.read()


if __name__ == "__main__":
  main()
