"""Front-end processes, as the engine's process sees them: they are started, asked, answered, replaced, and ended.

1. All listen on one port, which the system shares out by connection (``SO_REUSEPORT``).
2. One that has answered many calls is worn. Another one is started, and when that one serves, the worn one ends its calls
   and goes.
3. One that dies is replaced. Its edges ask again elsewhere: all that a call needs is with the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Coroutine

from jaxspec.serving.server import letters
from jaxspec.serving.server.backend import Answer, Backend
from jaxspec.serving.server.bearer_tokens import TokenFile
from jaxspec.serving.server.failure_log import log_failure
from jaxspec.serving.server.front_process import FrontProcess
from jaxspec.serving.server.letters import Kind, Setup
from jaxspec.serving.server.listen import Listen, reserve
from jaxspec.serving.server.metrics_hooks import CallReport
from jaxspec.serving.wire.cloud import CloudError, Description, Status
from jaxspec.serving.wire.frame_reader import readers_of

MAX_CALLS = 1_000_000  # gRPC's asyncio server keeps some memory of calls that were cut
_LOG = logging.getLogger(__name__)
_START_S, _PAUSE_S, _ATTEMPTS = 60.0, 0.5, 5
_WORN_GRACE_S = 10.0


class FrontEnds:
  """Front-end processes on one port; a door like `jaxspec.serving.server.grpc_server.Door`.

  Args:
    number: processes at the same time.
    backend: answers them.
    report: told what they count.
    tokens: who may open streams; they are told when the file is read again.
    max_calls: a front end that has answered so many is replaced.

  Attributes:
    failure: why there are no front ends any more; None while there are.
  """

  def __init__(
    self,
    number: int,
    backend: Backend,
    listen: Listen,
    served: Description,
    *,
    tokens: TokenFile | None = None,
    auth_every_call: bool = False,
    report: CallReport | None = None,
    max_calls: int = MAX_CALLS,
  ):
    self._number, self._backend, self._listen, self._served = number, backend, listen, served
    self._tokens, self._auth_every_call, self._max_calls = tokens, auth_every_call, max_calls
    self._report = CallReport() if report is None else report
    self._readers = readers_of(served)
    self._all: set[FrontProcess] = set()
    self._tasks: set[asyncio.Task] = set()
    self._port = 0
    self._is_closing = False
    self.failure: BaseException | None = None

  async def open(self) -> str:
    """Starts all; returns the address that a client connects to once each of them serves.

    Raises:
      OSError: in one line, if the port is not to be had.
    """
    with contextlib.ExitStack() as undo:
      self._reserved, self._port = reserve(self._listen)
      undo.callback(self._reserved.close)
      undo.callback(lambda: [each.kill() for each in self._all])
      started = await asyncio.gather(*(self._start() for _ in range(self._number)), return_exceptions=True)
      for failure in filter(lambda each: isinstance(each, BaseException), started):
        raise failure
      undo.pop_all()
    if self._tokens is not None:
      loop = asyncio.get_running_loop()
      self._unwatch = self._tokens.watch(lambda: loop.call_soon_threadsafe(self._tell_tokens))
    return self._listen.url(self._port)

  async def refuse(self) -> None:
    """See `Door.refuse`. Nobody is replaced any more."""
    self._is_closing = True
    for each in self._all:
      each.send(Kind.REFUSE)

  async def close(self, grace_s: float) -> None:
    """See `Door.close`; the processes are gone afterwards."""
    self._is_closing = True
    if self._tokens is not None:
      self._unwatch()
    gone = [each.gone for each in self._all]
    for each in self._all:
      each.send(Kind.STOP, letters.write_seconds(grace_s))
    with contextlib.suppress(TimeoutError):
      await asyncio.wait_for(asyncio.gather(*gone), grace_s + 1.0)
    for each in list(self._all):
      each.kill()
    for task in self._tasks:
      task.cancel()
    self._reserved.close()

  @property
  def processes(self) -> list[int]:
    """The ids of the processes."""
    return [each.process.pid for each in self._all]

  async def _start(self) -> FrontProcess:
    """A new front end that serves.

    Raises:
      OSError: if it does not come to that.
    """
    one = FrontProcess(self._received, self._lost)
    self._all.add(one)
    tokens = None if self._tokens is None else self._tokens.listed()
    listen = dataclasses.replace(self._listen, address=str(self._listen.where._replace(port=self._port)))
    setup = Setup(listen, self._served, tokens, self._auth_every_call, self._max_calls)
    try:
      await one.connect(letters.write_setup(setup))
      await asyncio.wait_for(asyncio.shield(one.ready), _START_S)
    except TimeoutError as error:
      raise OSError(f"A front end does not serve after {_START_S:g} s") from error
    finally:
      if not one.serves:
        one.kill()
    return one

  async def _replace(self, worn: FrontProcess | None = None) -> None:
    """Starts another front end, and then ends the worn one."""
    for attempt in range(_ATTEMPTS):
      try:
        await self._start()
        break
      except OSError as error:
        _LOG.error("%s", error)
        failure = error
        await asyncio.sleep(_PAUSE_S * 2**attempt)
    else:
      self.failure = failure  # the server ends: it does not go on with fewer and fewer
      return
    if worn is not None:
      worn.send(Kind.STOP, letters.write_seconds(_WORN_GRACE_S))

  def _lost(self, one: FrontProcess) -> None:
    """A process is gone, or about to be."""
    self._all.discard(one)
    if one.serves and not one.is_worn and not self._is_closing:
      _LOG.warning("Front end %d ended; another one is started", one.process.pid)
      self._spawn(self._replace())

  def _received(self, one: FrontProcess, data: bytes) -> None:
    kind, number, body = letters.opened(data)
    if kind in _ASKING:
      self._spawn(self._answer(one, kind, number, body))
    elif kind is Kind.COUNTS:
      self._count(letters.read_counts(body))
    elif kind is Kind.WORN and not self._is_closing:
      one.is_worn = True
      self._spawn(self._replace(one))
    elif kind is Kind.READY:
      one.serve()
    elif kind is Kind.FAILED:
      one.fail(bytes(body).decode())

  async def _answer(self, one: FrontProcess, kind: Kind, number: int, body: memoryview) -> None:
    try:
      answer = await _ASKING[kind](self, body)
    except CloudError as error:
      answer = error
    except Exception as error:
      log_failure(_LOG, "A call failed", error)
      answer = CloudError(Status.INTERNAL, "the server has an error")
    one.send(Kind.ANSWER, letters.write_answer(answer), number)

  async def _open(self, body: memoryview) -> Answer:
    call = letters.read_open(body)
    return Answer(await self._backend.open(call), call.opening.profile)

  async def _verify(self, body: memoryview) -> Answer:
    return await self._backend.verify(letters.read_verify(body, self._readers))

  async def _close(self, body: memoryview) -> Answer:
    await self._backend.close(*letters.read_close(body))
    return Answer(b"", None)

  async def _wrong_token(self, body: memoryview) -> Answer:
    return Answer(letters.write_seconds(await self._backend.wrong_token(bytes(body).decode())), None)

  def _count(self, counts: letters.Counts) -> None:
    for call in counts.calls:
      self._report.called(*call)
    for _ in range(counts.resumed):
      self._report.resumed()
    self._report.frames(counts.up, counts.down)

  def _tell_tokens(self) -> None:
    for each in self._all:
      each.send(Kind.TOKENS, self._tokens.listed().encode())

  def _spawn(self, work: Coroutine) -> None:
    task = asyncio.ensure_future(work)
    self._tasks.add(task)
    task.add_done_callback(self._tasks.discard)


_ASKING = {
  Kind.VERIFY: FrontEnds._verify,
  Kind.OPEN: FrontEnds._open,
  Kind.CLOSE: FrontEnds._close,
  Kind.WRONG_TOKEN: FrontEnds._wrong_token,
}
