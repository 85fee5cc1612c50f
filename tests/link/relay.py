"""A TCP relay between an edge and a server, which counts bytes and cuts connections."""

from __future__ import annotations

import contextlib
import socket
import threading


class Relay:
  """Forwards connections to a port of this machine.

  Attributes:
    up: bytes towards the server; ``down`` away from it.
    swallow: whether bytes towards the edge are dropped, as if they were lost.
  """

  def __init__(self, address: str):
    self.port_behind = int(address.rpartition(":")[2])
    self._listener = socket.create_server(("127.0.0.1", 0))
    self.address = f"grpc://127.0.0.1:{self._listener.getsockname()[1]}"
    self.up = self.down = 0
    self.swallow = False
    self._open: list[socket.socket] = []
    threading.Thread(target=self._accept, daemon=True).start()

  def cut(self) -> None:
    """Resets every connection."""
    connections, self._open = self._open, []
    for each in connections:
      with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
      each.close()

  def close(self) -> None:
    """Ends the relay."""
    self._listener.close()
    self.cut()

  def _accept(self) -> None:
    with contextlib.suppress(OSError):
      while True:
        edge, _ = self._listener.accept()
        try:
          server = socket.create_connection(("127.0.0.1", self.port_behind))
        except OSError:
          edge.close()
          continue
        self._open += [edge, server]
        for source, target, name in ((edge, server, "up"), (server, edge, "down")):
          threading.Thread(target=self._forward, args=(source, target, name), daemon=True).start()

  def _forward(self, source: socket.socket, target: socket.socket, name: str) -> None:
    with contextlib.suppress(OSError):
      while data := source.recv(1 << 16):
        setattr(self, name, getattr(self, name) + len(data))
        if name == "up" or not self.swallow:
          target.sendall(data)
    for each in (source, target):
      with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
