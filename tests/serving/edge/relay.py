"""A TCP relay between an edge and a server, which counts bytes, loses replies and cuts connections."""

from __future__ import annotations

from experiments.server import relay


class Relay(relay.Relay):
  """Forwards connections to a port of this machine.

  Attributes:
    swallow: whether bytes towards the edge are dropped, as if they were lost.
  """

  def __init__(self, address: str):
    super().__init__(address.partition("://")[2])
    self.address = f"grpc://{self.host}"
    self.swallow = False

  def passes(self, name: str, data: bytes) -> bool:
    return name == "up" or not self.swallow
