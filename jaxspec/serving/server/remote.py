"""The engine's side of calls for a front end in a process of its own: a `Backend` that writes letters. No JAX."""

from __future__ import annotations

import asyncio
import itertools
import time

from jaxspec.serving.server import letters
from jaxspec.serving.server.backend import Answer
from jaxspec.serving.server.channel import Channel
from jaxspec.serving.server.dispatcher import OpenCall, Tenant, VerifyCall
from jaxspec.serving.server.letters import Counts, Kind
from jaxspec.serving.server.metrics_hooks import CallReport
from jaxspec.serving.wire.cloud import CloudError, Description, Status
from jaxspec.serving.wire.frame_reader import readers_of

_NUMBERS = 1 << 32


class RemoteBackend:
  """Asks the engine's process.

  Args:
    channel: to that process.
    served: what it serves.
  """

  clock = staticmethod(time.monotonic)  # of the machine: the engine's process has the same

  def __init__(self, channel: Channel, served: Description):
    self._channel = channel
    self._readers = readers_of(served)
    self._numbers = itertools.count(1)
    self._waiting: dict[int, asyncio.Future[Answer]] = {}

  def answered(self, number: int, body: memoryview) -> None:
    """An `ANSWER` came. Nobody may be waiting for it any more: its retry finds the reply in the table."""
    future = self._waiting.pop(number, None)
    if future is None or future.done():
      return
    answer = letters.read_answer(body)
    if isinstance(answer, CloudError):
      future.set_exception(answer)
    else:
      future.set_result(answer)

  async def open(self, call: OpenCall) -> bytes:
    """See `Backend.open`."""
    return (await self._ask(Kind.OPEN, letters.write_open(call))).frame

  async def verify(self, call: VerifyCall) -> Answer:
    """See `Backend.verify`."""
    return await self._ask(Kind.VERIFY, letters.write_verify(call, self._readers))

  async def close(self, tenant: Tenant | None, stream: bytes) -> None:
    """See `Backend.close`."""
    await self._ask(Kind.CLOSE, letters.write_close(tenant, stream))

  async def wrong_token(self, peer: str) -> float:
    """See `Backend.wrong_token`."""
    return letters.read_seconds((await self._ask(Kind.WRONG_TOKEN, peer.encode())).frame)

  async def _ask(self, kind: Kind, body: bytes) -> Answer:
    await self._channel.room()
    number = next(self._numbers) % _NUMBERS
    if number in self._waiting:
      raise CloudError(Status.UNAVAILABLE, "too many calls are waiting")
    future = self._waiting[number] = asyncio.get_running_loop().create_future()
    self._channel.send(letters.letter(kind, number, body))
    try:
      return await future
    finally:
      self._waiting.pop(number, None)


class RemoteReport(CallReport):
  """Counts for the metrics of the engine's process: what happens in one turn of the loop goes into one letter.

  Args:
    max_calls: after so many the process is worn: it says so once.
  """

  def __init__(self, channel: Channel, max_calls: int):
    self._channel, self._left = channel, max_calls
    self._resumed = self._up = self._down = 0
    self._calls: list[tuple[str, str, float]] = []

  def called(self, method: str, status: str, seconds: float) -> None:
    self._calls.append((method, status, seconds))
    self._left -= 1
    if self._left == 0:
      self._channel.send(letters.letter(Kind.WORN))
    if len(self._calls) == 1:
      asyncio.get_running_loop().call_soon(self.flush)

  def resumed(self) -> None:
    self._resumed += 1

  def frames(self, up: int, down: int) -> None:
    self._up, self._down = self._up + up, self._down + down

  def flush(self) -> None:
    """Sends what was counted."""
    if self._calls:
      counts = Counts(self._resumed, self._up, self._down, tuple(self._calls))
      self._channel.send(letters.letter(Kind.COUNTS, 0, letters.write_counts(counts)))
      self._resumed = self._up = self._down = 0
      self._calls = []
