"""What front-end processes and the engine's process write to each other: fields in fixed places, nothing is ever unpickled.

A letter begins with its `Kind` and the number of a call, which its answer has too; 0 where there is none.

=====================  ===================  ====================================================================
engine's process       front end            means
=====================  ===================  ====================================================================
`SETUP`                                     what a front end serves, and where; once, first
..                     `READY`, `FAILED`    it serves; or a line that says why it cannot
`ANSWER`               `OPEN`, `VERIFY`,    a call, and its answer; a wrong token is answered by how long to wait
                       `CLOSE`,
                       `WRONG_TOKEN`
..                     `COUNTS`             calls for metrics, a few at once
..                     `WORN`               so many calls that another process should take over
`TOKENS`                                    those of a file that was read again
`REFUSE`                                    the health is ``NOT_SERVING`` from now on
`STOP`                                      no new calls; those that run may take so long; then the process ends
=====================  ===================  ====================================================================
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import struct
from typing import NamedTuple

from jaxspec.serving.server.backend import Answer
from jaxspec.serving.server.dispatcher import OpenCall, Tenant, VerifyCall
from jaxspec.serving.server.engine_interface import Ahead
from jaxspec.serving.server.idempotency import Position
from jaxspec.serving.server.listen import Listen
from jaxspec.serving.server.quotas import Quota
from jaxspec.serving.wire.cloud import STREAM_BYTES, CloudError, Description, Status
from jaxspec.serving.wire.frame_reader import FrameReader
from jaxspec.serving.wire.v1 import encoding


class Kind(enum.IntEnum):
  """The first byte."""

  SETUP = enum.auto()
  READY = enum.auto()
  FAILED = enum.auto()
  OPEN = enum.auto()
  VERIFY = enum.auto()
  CLOSE = enum.auto()
  WRONG_TOKEN = enum.auto()
  ANSWER = enum.auto()
  COUNTS = enum.auto()
  WORN = enum.auto()
  TOKENS = enum.auto()
  REFUSE = enum.auto()
  STOP = enum.auto()


METHODS = ("Describe", "Open", "Verify", "Close", "Exchange")
STATUSES = ("OK", "CANCELLED", *(status.name for status in Status))
_HEAD, _LENGTH, _SECONDS = struct.Struct(">BI"), struct.Struct(">H"), struct.Struct(">d")
_QUOTA, _CALL = struct.Struct(">ddd"), struct.Struct(f">{STREAM_BYTES}sIBIdIi")
_ANSWER, _COUNTS, _COUNT = struct.Struct(">Bdi"), struct.Struct(">IQQ"), struct.Struct(">BBd")
_NONE = 0xFFFF  # length of the name of no tenant
_NO_PROFILE = -1


class Setup(NamedTuple):
  """What a front-end process must know."""

  listen: Listen
  served: Description
  tokens: str | None  # `Tokens.listed`; None where everybody is let in
  auth_every_call: bool
  max_calls: int


class Counts(NamedTuple):
  """What was counted since the last letter."""

  resumed: int
  up: int
  down: int
  calls: tuple[tuple[str, str, float], ...]  # method, status, seconds


def letter(kind: Kind, number: int = 0, body: bytes = b"") -> bytes:
  """A letter."""
  return _HEAD.pack(kind, number) + body


def opened(data: bytes) -> tuple[Kind, int, memoryview]:
  """Kind, number and body of a letter."""
  kind, number = _HEAD.unpack_from(data)
  return Kind(kind), number, memoryview(data)[_HEAD.size :]


def write_setup(setup: Setup) -> bytes:
  """The body of `SETUP`."""
  listen = {name: value.hex() if isinstance(value, bytes) else value for name, value in vars(setup.listen).items()}
  fields = setup._asdict() | {"listen": listen, "served": encoding.describe_reply(setup.served).hex()}
  return json.dumps(fields).encode()


def read_setup(body: memoryview) -> Setup:
  """Reads `write_setup`."""
  fields = json.loads(bytes(body))
  listen = fields["listen"]
  for name in ("certificate", "key", "client_ca"):
    listen[name] = None if listen[name] is None else bytes.fromhex(listen[name])
  served = encoding.description_of(bytes.fromhex(fields["served"]))
  return Setup(**(fields | {"listen": Listen(**listen), "served": served}))


def write_open(call: OpenCall) -> bytes:
  """The body of `OPEN`: who asks, until when, and what the edge sent."""
  return _SECONDS.pack(call.deadline) + _tenant(call.tenant) + call.request


def read_open(body: memoryview) -> OpenCall:
  """Reads `write_open`."""
  tenant, at = _read_tenant(body, _SECONDS.size)
  request = bytes(body[at:])
  opening, resume = encoding.opening_of(encoding.pb.OpenRequest.FromString(request))
  return OpenCall(tenant, opening, resume, encoding.open_request(opening), request, *_SECONDS.unpack_from(body))


def write_verify(call: VerifyCall, readers: dict[int, FrameReader]) -> bytes:
  """The body of `VERIFY`; ``readers`` by profile."""
  ahead = call.ahead
  profile = _NO_PROFILE if ahead is None else ahead.profile
  numbers = (call.stream, *call.position, call.fed, call.deadline, len(call.frame), profile)
  arrays = b"" if ahead is None else readers[profile].pack(ahead.reading)
  return b"".join((_CALL.pack(*numbers), _tenant(call.tenant), call.frame, arrays))


def read_verify(body: memoryview, readers: dict[int, FrameReader]) -> VerifyCall:
  """Reads `write_verify`."""
  stream, seq, part, fed, deadline, length, profile = _CALL.unpack_from(body)
  tenant, at = _read_tenant(body, _CALL.size)
  frame, arrays = bytes(body[at : at + length]), body[at + length :]
  ahead = None if profile == _NO_PROFILE else Ahead(profile, readers[profile].unpack(arrays, part))
  return VerifyCall(stream, Position(seq, part), frame, fed, tenant, deadline, ahead)


def write_close(tenant: Tenant | None, stream: bytes) -> bytes:
  """The body of `CLOSE`."""
  return stream + _tenant(tenant)


def read_close(body: memoryview) -> tuple[Tenant | None, bytes]:
  """Reads `write_close`."""
  return _read_tenant(body, STREAM_BYTES)[0], bytes(body[:STREAM_BYTES])


def write_answer(answer: Answer | CloudError) -> bytes:
  """The body of `ANSWER`."""
  if isinstance(answer, CloudError):
    pushback = math.nan if answer.pushback_s is None else answer.pushback_s
    return _ANSWER.pack(answer.status.value, pushback, _NO_PROFILE) + answer.detail.encode()
  return _ANSWER.pack(0, math.nan, _NO_PROFILE if answer.profile is None else answer.profile) + answer.frame


def read_answer(body: memoryview) -> Answer | CloudError:
  """Reads `write_answer`."""
  status, pushback, profile = _ANSWER.unpack_from(body)
  rest = bytes(body[_ANSWER.size :])
  if status:
    return CloudError(Status(status), rest.decode(), None if math.isnan(pushback) else pushback)
  return Answer(rest, None if profile == _NO_PROFILE else profile)


def write_counts(counts: Counts) -> bytes:
  """The body of `COUNTS`."""
  calls = (_COUNT.pack(METHODS.index(method), STATUSES.index(status), s) for method, status, s in counts.calls)
  return _COUNTS.pack(counts.resumed, counts.up, counts.down) + b"".join(calls)


def read_counts(body: memoryview) -> Counts:
  """Reads `write_counts`."""
  calls = _COUNT.iter_unpack(body[_COUNTS.size :])
  return Counts(*_COUNTS.unpack_from(body), tuple((METHODS[method], STATUSES[status], s) for method, status, s in calls))


def write_seconds(seconds: float) -> bytes:
  """A body that is a time."""
  return _SECONDS.pack(seconds)


def read_seconds(body: bytes | memoryview) -> float:
  """Reads `write_seconds`."""
  return _SECONDS.unpack(body)[0]


def _tenant(tenant: Tenant | None) -> bytes:
  if tenant is None:
    return _LENGTH.pack(_NONE)
  name = tenant.name.encode()
  return _LENGTH.pack(len(name)) + name + _QUOTA.pack(*dataclasses.astuple(tenant.quota))


def _read_tenant(body: memoryview, at: int) -> tuple[Tenant | None, int]:
  """A tenant, and where it ends."""
  (length,) = _LENGTH.unpack_from(body, at)
  at += _LENGTH.size
  if length == _NONE:
    return None, at
  name = bytes(body[at : at + length]).decode()
  at += length
  return Tenant(name, Quota(*_QUOTA.unpack_from(body, at))), at + _QUOTA.size
