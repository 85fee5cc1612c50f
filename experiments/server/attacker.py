"""Hostile clients of a server, in a process without JAX: bytes, messages, frames, tokens, and connections that go nowhere.

``python -m experiments.server.attacker`` reads one line of JSON, a `Plan`; it prints a line for every hundredth of its
inputs, and at last its report.

==========  ===================================================================================================
kind        an input
==========  ===================================================================================================
noise       any bytes as the message of any method
message     a valid message with flipped bits, a part cut off, something at its end, or twice
field       a message of the protocol with fields out of range
frame       a frame of a real decode, damaged, under a checksum that is right again, in a stream that is open
order       a valid frame as another call, part or stream
exchange    several of these in one long call
token       no token, or a wrong one
large       a message or headers above the limit
socket      a connection that sends noise, or a damaged conversation of HTTP/2, and hangs up
==========  ===================================================================================================
"""

from __future__ import annotations

import asyncio
import collections
import json
import random
import secrets
import sys
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from experiments.server.trace import Trace, read_traces
from jaxspec.serving.wire.address import SERVICE
from jaxspec.serving.wire.handshake import STREAM_BYTES
from jaxspec.serving.wire.v1 import encoding
from jaxspec.serving.wire.v1 import jaxspec_link_pb2 as pb

_METHODS_OF = f"/{SERVICE}/"
METHODS = ("Describe", "Open", "Verify", "Close")
# Shares of the kinds; sockets and tokens are dear, for each is a connection or is slowed down by the server.
SHARES = {
  "noise": 15, "message": 25, "field": 15, "frame": 25, "order": 10, "exchange": 5, "token": 0.05, "large": 1, "socket": 4,
}  # fmt: skip
DEADLINE_S = 20.0
NEVER = ("INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED", "UNAVAILABLE", "ABORTED")  # no input should get them
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
_WORKERS, _CHANNELS = 24, 4


class Plan(NamedTuple):
  """What a process does.

  Attributes:
    host: ``HOST:PORT`` of a server without TLS.
    token: of somebody who may open a few streams; "" where there are no tokens.
    traces: folder of decodes of this very server.
    number: inputs.
    slow: connections that stay open meanwhile: silent ones, prefaces, bytes one by one, a second apart, and 50 calls each
      with half a body.
    alone_s: how long these are there before the inputs begin.
  """

  host: str
  token: str
  traces: str
  number: int
  slow: int
  alone_s: float
  seed: int


def half_call(stream: int) -> bytes:
  """A call of `Verify` in frames of HTTP/2, without the end of its message."""
  literal = lambda name, value: b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
  headers = {
    b":method": b"POST", b":scheme": b"http", b":path": f"{_METHODS_OF}Verify".encode(), b":authority": b"x",
    b"content-type": b"application/grpc", b"te": b"trailers",
  }  # fmt: skip
  block = b"".join(literal(*header) for header in headers.items())
  number = stream.to_bytes(4)
  return len(block).to_bytes(3) + b"\1\4" + number + block + b"\0\0\7\0\0" + number + b"\0\0\0\0\x20ab"


class Attacker:
  """Sends the inputs of a plan."""

  def __init__(self, plan: Plan):
    self._plan, self._random = plan, random.Random(plan.seed)
    self._traces = [trace for trace in read_traces(Path(plan.traces)) if trace.calls]
    self._metadata = (("authorization", f"Bearer {plan.token}"),) if plan.token else ()
    self.statuses: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in SHARES}
    self.unexpected: collections.Counter[str] = collections.Counter()
    self.slowest = dict.fromkeys(SHARES, 0.0)
    self._left = plan.number
    self._streams: list[list[Any]] = []  # trace, stream, call that comes next

  async def run(self) -> dict[str, Any]:
    """Sends everything; the report."""
    backoff = tuple((f"grpc.{name}_reconnect_backoff_ms", 50) for name in ("initial", "min", "max"))
    options = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1), *backoff)
    began = time.monotonic()
    slow = [asyncio.create_task(self._slow(index)) for index in range(self._plan.slow)]
    await asyncio.sleep(self._plan.alone_s)
    print(json.dumps({"done": 0}), flush=True)
    channels = [grpc.aio.insecure_channel(self._plan.host, options) for _ in range(_CHANNELS)]
    await asyncio.gather(*(self._work(channels[index % _CHANNELS]) for index in range(_WORKERS)))
    for task in slow:
      task.cancel()
    ended = sum(task.done() for task in slow)
    await asyncio.gather(*slow, return_exceptions=True)
    for channel in channels:
      await channel.close()
    statuses = {kind: dict(found) for kind, found in self.statuses.items() if found}
    return {
      "statuses": statuses,
      "unexpected": self.unexpected,
      "slowest_s": self.slowest,
      "seconds": time.monotonic() - began,
      "slow_ended": ended,
    }

  async def _work(self, channel: grpc.aio.Channel) -> None:
    kinds, shares = list(SHARES), list(SHARES.values())
    while self._left > 0:
      self._left -= 1
      done = self._plan.number - self._left
      if done % max(1, self._plan.number // 100) == 0:
        print(json.dumps({"done": done}), flush=True)
      (kind,) = self._random.choices(kinds, shares)
      began = time.monotonic()
      status = await getattr(self, f"_{kind}")(channel)
      self.statuses[kind][status] += 1
      self.slowest[kind] = max(self.slowest[kind], time.monotonic() - began)

  async def _call(self, channel: grpc.aio.Channel, method: str, data: bytes, metadata: tuple | None = None) -> str:
    metadata = self._metadata if metadata is None else metadata
    try:
      await channel.unary_unary(_METHODS_OF + method)(data, timeout=DEADLINE_S, metadata=metadata)
    except grpc.RpcError as error:
      return self._status(error)
    return "OK"

  async def _opens(self, channel: grpc.aio.Channel, data: bytes) -> str:
    """Opens a stream; one that came to be is closed at once, or the quota of streams would end the attack."""
    status = await self._call(channel, "Open", data)
    if status == "OK":
      await self._call(channel, "Close", encoding.close_request(encoding.stream_of(data)))
    return status

  def _status(self, error: grpc.RpcError) -> str:
    return self._told(error.code().name, error.details())

  def _told(self, name: str, details: str) -> str:
    if name in NEVER:
      self.unexpected[f"{name}: {details}"[:300]] += 1
    return name

  async def _noise(self, channel: grpc.aio.Channel) -> str:
    return await self._call(channel, self._random.choice(METHODS), self._random.randbytes(self._random.randint(0, 200)))

  async def _message(self, channel: grpc.aio.Channel) -> str:
    method, data = self._valid()
    data = self._damaged(data)
    return await (self._opens(channel, data) if method == "Open" else self._call(channel, method, data))

  async def _field(self, channel: grpc.aio.Channel) -> str:
    pick = self._random.choice
    numbers, sizes = (0, 1, 2, 1 << 15, (1 << 31) - 1, 1 << 31, (1 << 32) - 1), (0, 1, 8, 15, 16, 17, 32, 300)
    floats = (0.0, -1.0, 1e-40, 1e38, float("nan"), float("inf"), 1.0)
    some = lambda: self._random.randbytes(pick(sizes))
    many = lambda: [pick(numbers) for _ in range(pick((0, 1, 5, 300)))]
    if self._random.random() < 0.4:
      message = pb.VerifyRequest(stream_id=some(), seq=pick(numbers), part=pick(numbers), frame=some())
      return await self._call(channel, "Verify", message.SerializeToString())
    message = pb.OpenRequest.FromString(encoding.open_request(self._handshake()))
    for _ in range(self._random.randint(1, 4)):
      name = pick([field.name for field in message.DESCRIPTOR.fields])
      if name in ("stream_id", "model", "key", "need_numerics"):
        setattr(message, name, some())
      elif name in ("temperature", "top_p", "cfg_scale"):
        setattr(message, name, pick(floats))
      elif name == "caption":
        message.caption = "x" * pick((0, 1, 5000))
      elif name == "prompt":
        message.prompt.ids.extend(many())
      elif name == "end_ids":
        message.end_ids.extend(many())
      elif name == "resume":
        values = dict(next_seq=pick(numbers), round=pick(numbers), tokens=many(), gained=many(), fed=many())
        message.resume.CopyFrom(pb.Resume(**values))
      else:
        setattr(message, name, pick(numbers))
    return await self._opens(channel, message.SerializeToString())

  async def _frame(self, channel: grpc.aio.Channel) -> str:
    if len(self._streams) < 4:
      trace = self._random.choice(self._traces)
      handshake = self._handshake(trace)
      status = await self._call(channel, "Open", encoding.open_request(handshake))
      if status == "OK":
        self._streams.append([trace, handshake.stream, 0])
      return status
    held = self._random.choice(self._streams)
    trace, stream, index = held
    call, goes_on = trace.calls[index], self._random.random() < 0.05  # now and then the decode goes on
    frame = call.frame if goes_on else self._resealed(call.frame)
    status = await self._call(channel, "Verify", encoding.verify_request(stream, call.seq, call.part, frame))
    if (status == "OK" or status not in ("INVALID_ARGUMENT", "DATA_LOSS")) and held in self._streams:
      held[2] += 1
      if status != "OK" or not goes_on or held[2] == len(trace.calls):
        self._streams.remove(held)
        await self._call(channel, "Close", encoding.close_request(stream))
    return status

  async def _order(self, channel: grpc.aio.Channel) -> str:
    trace = self._random.choice(self._traces)
    call = self._random.choice(trace.calls)
    stream = self._random.choice([trace.handshake.stream, *(held[1] for held in self._streams), secrets.token_bytes(16)])
    seq = max(0, call.seq + self._random.randint(-3, 3))
    request = encoding.verify_request(stream, seq, self._random.randint(0, 1), call.frame)
    return await self._call(channel, "Verify", request)

  async def _exchange(self, channel: grpc.aio.Channel) -> str:
    call = channel.stream_stream(_METHODS_OF + "Exchange")(timeout=DEADLINE_S, metadata=self._metadata)
    try:
      for _ in range(self._random.randint(1, 5)):
        await call.write(self._damaged(self._valid()[1]))
        if await call.read() is grpc.aio.EOF:
          break
      await call.done_writing()
    except (grpc.RpcError, asyncio.InvalidStateError):
      pass  # it ended before
    call.cancel()
    code = await call.code()
    return code.name if code.name not in NEVER else self._told(code.name, await call.details())

  async def _token(self, channel: grpc.aio.Channel) -> str:
    wrong = self._random.choice(((), (("authorization", "Bearer guess"),), (("authorization", "Basic eA=="),)))
    return await self._call(channel, "Open", encoding.open_request(self._handshake()), wrong)

  async def _large(self, channel: grpc.aio.Channel) -> str:
    if self._random.random() < 0.5:
      return await self._call(channel, "Verify", bytes(200_000))
    return await self._call(channel, "Describe", b"", (*self._metadata, ("junk", "x" * 9000)))

  async def _socket(self, channel: grpc.aio.Channel) -> str:
    host, _, port = self._plan.host.rpartition(":")
    data = self._random.randbytes(self._random.randint(1, 200))
    if self._random.random() < 0.8:
      data = self._damaged(PREFACE + b"".join(self._http2_frame() for _ in range(self._random.randint(0, 5))))
    try:
      reader, writer = await asyncio.open_connection(host, int(port))
      writer.write(data)
      await writer.drain()
      if self._random.random() < 0.5:
        await asyncio.wait_for(reader.read(100), 0.05)
      writer.close()
    except TimeoutError:
      writer.close()
    except OSError:
      return "refused"
    return "sent"

  async def _slow(self, index: int) -> None:
    host, _, port = self._plan.host.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
      if index % 4 == 1:
        writer.write(PREFACE)
      elif index % 4 == 3:
        writer.write(PREFACE + b"".join(half_call(stream) for stream in range(1, 100, 2)))
      while True:  # until the server has enough of it
        if index % 4 == 2:
          at = int(time.monotonic()) % len(PREFACE)
          writer.write(PREFACE[at : at + 1])
        try:
          if not await asyncio.wait_for(reader.read(1000), 1.0):
            return
        except TimeoutError:
          continue
    except OSError:
      return
    finally:
      writer.close()

  def _http2_frame(self) -> bytes:
    payload = self._random.randbytes(self._random.randint(0, 60))
    kind, flags = self._random.choice((0, 1, 2, 3, 4, 6, 7, 8, 9, 77)), self._random.choice((0, 1, 4, 5, 255))
    return len(payload).to_bytes(3) + bytes((kind, flags)) + self._random.choice((0, 1, 3, 1 << 30)).to_bytes(4) + payload

  def _handshake(self, trace: Trace | None = None):
    trace = self._random.choice(self._traces) if trace is None else trace
    return trace.handshake._replace(stream=secrets.token_bytes(STREAM_BYTES))

  def _valid(self) -> tuple[str, bytes]:
    """A method and a message that it would read."""
    trace = self._random.choice(self._traces)
    call = self._random.choice(trace.calls)
    stream = self._random.choice([*(held[1] for held in self._streams), secrets.token_bytes(STREAM_BYTES)])
    return self._random.choice((
      ("Describe", encoding.describe_request(1, "x")),
      ("Open", encoding.open_request(self._handshake(trace), self._random.choice((None, trace.resume)))),
      ("Verify", encoding.verify_request(stream, call.seq, call.part, call.frame)),
      ("Close", encoding.close_request(secrets.token_bytes(STREAM_BYTES))),
    ))  # fmt: skip

  def _damaged(self, data: bytes) -> bytes:
    """Other bytes."""
    changed = bytearray(data or b"\0")
    for _ in range(self._random.randint(1, 4)):
      changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
    change = self._random.random()
    if change < 0.2:
      del changed[self._random.randrange(len(changed)) :]
    elif change < 0.4:
      changed += self._random.randbytes(self._random.randint(1, 40))
    elif change < 0.5:
      changed *= 2
    return bytes(changed)

  def _resealed(self, frame: bytes) -> bytes:
    """A damaged frame, mostly with a recomputed checksum."""
    body = self._damaged(frame[:-4])
    return body + (zlib.crc32(body) if self._random.random() < 0.9 else self._random.getrandbits(32)).to_bytes(4)


def main() -> int:
  """Runs the plan of the first line of the standard input."""
  plan = Plan(**json.loads(sys.stdin.readline()))
  print(json.dumps(asyncio.run(Attacker(plan).run())), flush=True)
  return 0


if __name__ == "__main__":
  sys.exit(main())
