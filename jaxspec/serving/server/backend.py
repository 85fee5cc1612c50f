"""What a front end knows of the rest of the server: the engine's side of a call, wherever the engine is. No JAX."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from jaxspec.serving.server.dispatcher import OpenCall, Tenant, VerifyCall


class Answer(NamedTuple):
  """The reply to a call of a stream."""

  frame: bytes
  profile: int | None  # how the stream is decoded; None where nobody knows it any more


class Backend(Protocol):
  """Answers calls whose fields were checked. Every method may raise a `CloudError`."""

  def clock(self) -> float:
    """Seconds, on the clock of deadlines."""
    ...

  async def open(self, call: OpenCall) -> bytes:
    """See `jaxspec.serving.server.dispatcher.Desk.open`; the frame of token 0."""
    ...

  async def verify(self, call: VerifyCall) -> Answer:
    """See `jaxspec.serving.server.dispatcher.Desk.verify`."""
    ...

  async def close(self, tenant: Tenant | None, stream: bytes) -> None:
    """See `jaxspec.serving.server.dispatcher.Desk.close`."""
    ...

  async def wrong_token(self, peer: str) -> float:
    """Counts a wrong token of a peer; how many seconds to wait before saying so."""
    ...
