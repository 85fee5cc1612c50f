"""A server in a separate process, to be killed and restarted at the same port, and clouds with faults."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.server.decodes import Case
from experiments.server.trace import Trace
from jaxspec.core import precision
from jaxspec.serving.wire.cloud import Cloud, Description
from jaxspec.serving.wire.handshake import Handshake, HandshakeReply, Resume

SMALL = ("--max-streams", "16", "--max-rows", "4", "--widths", "8")  # a server of a small machine
COMMAND = (str(Path(sysconfig.get_path("scripts")) / "jaxspec"),)
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ServerProcess:
  """``jaxspec serve`` of the cases of one bundle.

  Args:
    options: others of the command.

  Attributes:
    host: ``HOST:PORT``; ``metrics`` where it answers for its counters.
    start_s: how long the newest start took, until it answered.
  """

  def __init__(self, cases: Sequence[Case], *options: str):
    self.host, self.metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
    self.address = f"grpc://{self.host}"
    first = cases[0]
    chosen = ["--listen", self.host, "--metrics", self.metrics, "--max-len", str(max(case.tokens for case in cases))]
    chosen += [] if first.max_prompt is None else ["--max-prompt", str(first.max_prompt)]
    chosen += ["--matmul-precision", precision.preferred("float32")]  # as the edges of `Lab` compute
    chosen += [word for profile in dict.fromkeys(case.profile for case in cases) for word in ("--profile", profile)]
    self._command = [*COMMAND, "serve", first.bundle, *chosen, *options]
    self.process: subprocess.Popen | None = None
    self.start_s = 0.0

  def start(self) -> None:
    """Starts it, and waits until it serves.

    Raises:
      ValueError: where it does not.
    """
    began = time.monotonic()
    self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
    if not self.process.stdout.readline().startswith("serving"):
      self.kill()
      raise ValueError("Must have a server that starts, we instead got one that ended")
    self.start_s = time.monotonic() - began

  def kill(self) -> None:
    """Ends it at once, as ``kill -9`` does."""
    self.process.kill()
    self.process.wait()
    self.process.stdout.close()

  def is_alive(self) -> bool:
    """Whether it runs."""
    return self.process.poll() is None

  def memory(self) -> int:
    """Resident bytes, of its child processes too; Linux only."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE for pid in _family(self.process.pid))

  def __enter__(self) -> ServerProcess:
    self.start()
    return self

  def __exit__(self, *_: Any) -> None:
    if self.is_alive():
      self.process.terminate()
      with contextlib.suppress(subprocess.TimeoutExpired):
        self.process.wait(15)
    self.kill()


def _family(pid: int) -> Iterator[int]:
  """A process and its descendants."""
  yield pid
  for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
    yield from _family(int(child))


def free_ports(number: int) -> list[int]:
  """Free ports of this machine."""
  with contextlib.ExitStack() as stack:
    sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
    return [each.getsockname()[1] for each in sockets]


def without_pauses(trace: Trace) -> Trace:
  """A device that thinks in no time."""
  return trace._replace(calls=tuple(call._replace(think_s=0.0) for call in trace.calls))


@dataclasses.dataclass
class Disturbed:
  """A `Cloud` that calls ``before`` ahead of the first attempt of every call, with its number from 1."""

  cloud: Cloud
  before: Callable[[int], None]
  _calls: int = 0
  _newest: tuple[int, int] = (0, 0)

  @property
  def description(self) -> Description:
    return self.cloud.description

  def open(self, handshake: Handshake, resume: Resume | None = None, *, timeout_s: float) -> HandshakeReply:
    return self.cloud.open(handshake, resume, timeout_s=timeout_s)

  def verify(self, stream: bytes, seq: int, part: int, frame: bytes, *, timeout_s: float) -> bytes:
    if (seq, part) > self._newest:
      self._newest, self._calls = (seq, part), self._calls + 1
      self.before(self._calls)
    return self.cloud.verify(stream, seq, part, frame, timeout_s=timeout_s)

  def close(self, stream: bytes, *, timeout_s: float) -> None:
    self.cloud.close(stream, timeout_s=timeout_s)


def later(seconds: float, run: Callable[[], None]) -> None:
  """Runs something after a while, in a thread."""
  timer = threading.Timer(seconds, run)
  timer.daemon = True
  timer.start()
