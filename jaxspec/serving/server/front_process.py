"""One front-end process, as the engine's process sees it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jaxspec
from jaxspec.serving.server import letters
from jaxspec.serving.server.channel import Channel
from jaxspec.serving.server.letters import Kind

_ROOT = Path(jaxspec.__file__).parents[1]


class FrontProcess:
  """One process, and the socket to it.

  Attributes:
    ready: a future that ends when it serves, with an OSError if it does not come to that.
    gone: a future that ends with the process.
    serves: whether it has served.
    is_worn: whether another one takes over.
  """

  def __init__(self, received: Callable[[FrontProcess, bytes], None], lost: Callable[[FrontProcess], None]):
    loop = asyncio.get_running_loop()
    self._received, self._on_lost = received, lost
    self._sock, theirs = socket.socketpair()
    self.ready, self.gone = loop.create_future(), loop.create_future()
    self.serves = self.is_worn = False
    self._channel: Channel | None = None
    command = [sys.executable, "-P", "-m", "jaxspec.serving.server.front_end", str(theirs.fileno())]
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    with theirs:
      self.process = subprocess.Popen(
        command,
        pass_fds=(theirs.fileno(),),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": path},
        process_group=0,  # Ctrl-C goes to the processes of a group; this one ends with its socket
      )

  async def connect(self, setup: bytes) -> None:
    """Says what it serves."""
    self._channel = await Channel.over(self._sock, lambda data: self._received(self, data), self._lost)
    self.send(Kind.SETUP, setup)

  def send(self, kind: Kind, body: bytes = b"", number: int = 0) -> None:
    """Sends a letter, as far as the process is there."""
    if self._channel is not None:
      self._channel.send(letters.letter(kind, number, body))

  def serve(self) -> None:
    """It says that it serves."""
    self.serves = True
    if not self.ready.done():
      self.ready.set_result(None)

  def fail(self, reason: str) -> None:
    """It says why it cannot serve."""
    if not self.ready.done():
      self.ready.set_exception(OSError(reason))
      self.ready.exception()  # it may be that nobody asks

  def kill(self) -> None:
    """Ends the process at once."""
    self.process.kill()
    self.process.wait()
    if self._channel is None:
      self._sock.close()
    else:
      self._channel.close()

  def _lost(self) -> None:
    self.fail("A front end ended before it served")
    self.kill()
    if not self.gone.done():
      self.gone.set_result(None)
    self._on_lost(self)
