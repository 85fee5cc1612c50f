"""A front-end process: TLS, tokens, sizes, protobuf and reading frames, for an engine in another process. No JAX.

It keeps nothing that another one could not do without: who loses it asks again. It ends with the engine's process, of which
it has one end of a socket.

Command, which only `jaxspec.serving.server.front_ends` gives::

    python -m jaxspec.serving.server.front_end DESCRIPTOR
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

from jaxspec.serving.server import letters
from jaxspec.serving.server.bearer_tokens import Tokens
from jaxspec.serving.server.channel import Channel
from jaxspec.serving.server.grpc_server import Door
from jaxspec.serving.server.letters import Kind
from jaxspec.serving.server.remote import RemoteBackend, RemoteReport
from jaxspec.serving.server.servicer import Front


class FrontEnd:
  """The process of one socket to the engine's process."""

  def __init__(self):
    self._letters: asyncio.Queue[tuple[Kind, int, memoryview]] = asyncio.Queue()
    self._backend: RemoteBackend | None = None

  async def run(self, sock: socket.socket) -> None:
    """Serves until it is told to stop."""
    channel = await Channel.over(sock, self._receive, lambda: os._exit(1))  # an engine that is gone has no calls to end
    kind, _, body = await self._letters.get()
    assert kind is Kind.SETUP, kind
    setup = letters.read_setup(body)
    self._backend, report = RemoteBackend(channel, setup.served), RemoteReport(channel, setup.max_calls)
    tokens = None if setup.tokens is None else Tokens(setup.tokens)
    kwargs = dict(tokens=tokens, auth_every_call=setup.auth_every_call, report=report, reads_ahead=True)
    front = Front(self._backend, setup.served, **kwargs)
    door = Door(front, setup.listen, setup.served, shared=True)
    try:
      await door.open()
    except OSError as error:
      channel.send(letters.letter(Kind.FAILED, 0, str(error).encode()))
    else:
      channel.send(letters.letter(Kind.READY))
      await self._serve(front, door)
    report.flush()
    channel.close()
    await asyncio.Event().wait()  # until what was sent is on its way: the loss of the channel ends the process

  async def _serve(self, front: Front, door: Door) -> None:
    while True:
      kind, _, body = await self._letters.get()
      if kind is Kind.TOKENS:
        front.tokens = Tokens(bytes(body).decode())
      elif kind is Kind.REFUSE:
        await door.refuse()
      elif kind is Kind.STOP:
        await door.close(letters.read_seconds(body))
        return

  def _receive(self, data: bytes) -> None:
    kind, number, body = letters.opened(data)
    if kind is Kind.ANSWER:
      self._backend.answered(number, body)
    else:
      self._letters.put_nowait((kind, number, body))


def main() -> None:
  """Serves at the descriptor that is given."""
  for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(each, signal.SIG_IGN)  # a whole group may get them; the engine's process says what follows
  asyncio.run(FrontEnd().run(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
  main()
