"""A TCP relay that is as slow as a network: delay, jitter, loss and a rate, for every connection and both ways.

    python -m experiments.server.relay 127.0.0.1:8443 --network 4g --listen 127.0.0.1:9000

A chunk of bytes waits until the link is free, takes ``size / rate``, and arrives one way later; that is what `link_seconds`
adds up. Bytes stay in order, as TCP keeps them: a lost chunk comes after the time of a retransmission, and holds up what
follows it. Connections do not share the link, for every device has its own.

In a separate process (`relaying`) its clock does not depend on the caller's computations.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from jaxspec.core.command_line import script
from jaxspec.serving.wire.address import parse_address
from jaxspec.serving.wire.link_model import NETWORKS, Network

_CHUNK, _MOST_WAITING = 1 << 16, 64
_TICK_S = 1e-3  # to which the timers of an event loop are rounded up
RETRANSMISSION_S = 0.2  # the shortest timeout of TCP on common systems


class Shape(NamedTuple):
  """What a relay makes of a connection; by default nothing.

  Attributes:
    bits_per_s: of either direction.
    delay_s: one way.
    jitter_s: more delay, uniform between 0 and this.
    loss: probability that a chunk must be sent again.
  """

  bits_per_s: float = math.inf
  delay_s: float = 0.0
  jitter_s: float = 0.0
  loss: float = 0.0

  @classmethod
  def of(cls, network: Network, *, jitter_s: float = 0.0, loss: float = 0.0) -> Shape:
    """That of a network whose latency is paid once an exchange, half each way."""
    return cls(network.bits_per_s, network.latency_s / 2, jitter_s, loss)


class Link:
  """One direction of a connection: arrival times of sent bytes.

  Args:
    uniform: random numbers in [0, 1).
  """

  def __init__(self, shape: Shape, uniform: Callable[[], float] = random.random):
    self._shape, self._uniform = shape, uniform
    self._free = self._newest = -math.inf

  def due(self, size: int, now: float) -> float:
    """When ``size`` bytes arrive that are sent now, in seconds on the same clock; never before what was sent earlier."""
    shape = self._shape
    self._free = max(now, self._free) + 8 * size / shape.bits_per_s
    late = shape.delay_s + shape.jitter_s * self._uniform()
    if shape.loss and self._uniform() < shape.loss:
      late += RETRANSMISSION_S + 2 * shape.delay_s
    self._newest = max(self._newest, self._free + late)
    return self._newest


class Relay:
  """Forwards the connections to a port of this machine, from a thread.

  Args:
    target: ``HOST:PORT`` behind it.
    listen: ``HOST:PORT``; port 0 takes a free one.
  Attributes:
    host: ``HOST:PORT`` where it listens.
    up: bytes towards the target; ``down`` away from it.
  Raises:
    OSError: for a port that is taken, or a host that is not here.
  """

  def __init__(self, target: str, shape: Shape = Shape(), *, listen: str = "127.0.0.1:0"):
    self._target, self._shape = parse_address(target, "a target HOST:PORT"), shape
    self._silent: set[asyncio.StreamWriter] = set()
    where = parse_address(listen, "an address HOST:PORT to listen on", free=True)
    self._listener = socket.create_server(where, family=where.resolve()[0][0])
    self.host = str(where._replace(port=self._listener.getsockname()[1]))
    self.up = self.down = 0
    self._loop = asyncio.new_event_loop()
    self._open: set[asyncio.StreamWriter] = set()
    self._thread = threading.Thread(target=self._run, name="jaxspec-relay", daemon=True)
    self._thread.start()

  def cut(self) -> None:
    """Resets every connection."""
    with contextlib.suppress(RuntimeError):  # it has ended
      self._loop.call_soon_threadsafe(self._abort)

  def silence(self) -> None:
    """Drops all later bytes of the open connections without an error; new ones work."""
    with contextlib.suppress(RuntimeError):
      self._loop.call_soon_threadsafe(lambda: self._silent.update(self._open))

  def point(self, target: str) -> None:
    """New connections go to ``HOST:PORT``."""
    self._target = parse_address(target, "a target HOST:PORT")

  def close(self) -> None:
    """Ends the relay."""
    with contextlib.suppress(RuntimeError):
      self._loop.call_soon_threadsafe(self._loop.stop)
    self._thread.join()

  def __enter__(self) -> Relay:
    return self

  def __exit__(self, *_) -> None:
    self.close()

  def passes(self, name: str, data: bytes) -> bool:
    """Whether a chunk goes on, ``up`` or ``down``; one that does not is gone for good."""
    return True

  def _run(self) -> None:
    asyncio.set_event_loop(self._loop)
    server = self._loop.run_until_complete(asyncio.start_server(self._connected, sock=self._listener))
    self._loop.run_forever()
    server.close()
    self._abort()
    tasks = asyncio.all_tasks(self._loop)
    for task in tasks:
      task.cancel()
    self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    self._loop.close()

  def _abort(self) -> None:
    for each in self._open:
      each.transport.abort()

  async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
      far_reader, far_writer = await asyncio.open_connection(*self._target)
    except OSError:
      writer.transport.abort()  # no listener
      return
    both = (writer, far_writer)
    self._open.update(both)
    try:
      async with asyncio.TaskGroup() as group:
        self._carry(group, "up", reader, far_writer)
        self._carry(group, "down", far_reader, writer)
      for each in both:
        each.close()
    except* OSError:
      pass  # one end is closed; the other one is closed below
    except* asyncio.CancelledError:
      pass
    finally:
      self._open.difference_update(both)
      self._silent.difference_update(both)
      for each in both:
        if not each.is_closing():
          each.transport.abort()

  def _carry(self, group: asyncio.TaskGroup, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction until its end."""
    link, waiting = Link(self._shape), asyncio.Queue(_MOST_WAITING)

    async def read() -> None:
      while data := await reader.read(_CHUNK):
        setattr(self, name, getattr(self, name) + len(data))
        if writer not in self._silent and self.passes(name, data):
          await waiting.put((link.due(len(data), self._loop.time()), data))
      await waiting.put((link.due(0, self._loop.time()), b""))

    async def write() -> None:
      while True:
        due, data = await waiting.get()
        if (wait_s := due - self._loop.time() - _TICK_S / 2) > 0:
          await asyncio.sleep(wait_s)
        if not data:
          writer.write_eof()
          return
        writer.write(data)
        await writer.drain()

    group.create_task(read())
    group.create_task(write())


@contextlib.contextmanager
def relaying(target: str, shape: Shape) -> Iterator[str]:
  """A relay in a separate process, which ends with this one; gives its ``HOST:PORT``.

  Raises:
    OSError: where it does not start.
  """
  command = [sys.executable, "-c", "from experiments.server.relay import child; child()", target, json.dumps(shape)]
  # Ctrl-C goes to the processes of a group; this one ends with its input.
  pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
  process = subprocess.Popen(command, process_group=0, cwd=Path(__file__).parents[2], **pipes)
  try:
    host = process.stdout.readline().strip()
    if not host:
      raise OSError("Cannot start a relay")
    yield host
  finally:
    process.stdin.close()
    process.wait()
    process.stdout.close()


def child() -> None:
  """The process of `relaying`: relays until the other end of its standard input is closed."""
  with Relay(sys.argv[1], Shape(*json.loads(sys.argv[2]))) as relay:
    print(relay.host, flush=True)
    sys.stdin.read()


@script(__doc__)
@click.argument("target", metavar="HOST:PORT")
@click.option("--network", type=click.Choice(tuple(NETWORKS)), required=True, help="Whose delay and rates the relay has.")
@click.option("--jitter-ms", default=0.0, metavar="T", help="Random delay on top, each way, at most.")
@click.option("--loss", default=0.0, metavar="P", help="Share of chunks that are sent again.")
@click.option("--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="Address; port 0 is a free one.")
def main(target: str, network: str, jitter_ms: float, loss: float, listen: str) -> None:
  shape = Shape.of(NETWORKS[network], jitter_s=jitter_ms / 1e3, loss=loss)
  parse_address(target, "a target HOST:PORT").resolve()  # a thread that had begun to listen would end in a traceback
  with Relay(target, shape, listen=listen) as relay, contextlib.suppress(KeyboardInterrupt):
    print(f"relaying at {relay.host}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
  main()
