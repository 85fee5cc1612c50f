"""Reads requests. They are not trusted: every field is checked before it is used.

An invalid request raises a `CloudError` with the field and its limit.
"""

from __future__ import annotations

import functools
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from jaxspec.serving.server.dispatcher import VerifyCall, refusal_of
from jaxspec.serving.server.idempotency import Position
from jaxspec.serving.server.sampling_limits import sampling_requirements
from jaxspec.serving.server.versions import check_protocol, check_same
from jaxspec.serving.wire.ciar_message import CIAR
from jaxspec.serving.wire.cloud import CloudError, Description, Profile, Status
from jaxspec.serving.wire.distribution_bits import Limits as RecordLimits
from jaxspec.serving.wire.framing import MessageError, max_distribution_bytes, unframe
from jaxspec.serving.wire.handshake import DIGEST_BYTES, KEY_BYTES, MAX_END_TOKENS, STREAM_BYTES, Handshake, Resume
from jaxspec.serving.wire.reply_digest import DIGEST_BYTES as REPLIES_BYTES
from jaxspec.serving.wire.v1 import encoding
from jaxspec.serving.wire.v1 import jaxspec_link_pb2 as pb

Request = TypeVar("Request", bound=Message)
MAX_SEQ = 1 << 31
_CLIENT_BYTES = 200
_PENDING_COUNT = slice(2, 4)  # of a payload: the number of pending tokens


def max_request_bytes(served: Description) -> int:
  """Length of the longest valid request."""
  return max(max_frame_bytes(served) + 40, 300 + 5 * served.max_condition + 9 * served.max_len)


@functools.cache
def max_frame_bytes(served: Description) -> int:
  """Length of the longest valid frame of any profile, with the requested distribution of coding ``lazy``."""
  return max(max(each.max_frame, _distribution_bytes(each, served.vocab)) for each in served.profiles)


def read_describe(data: bytes) -> int:
  """The protocol version of an edge."""
  message = _parse(pb.DescribeRequest, data)
  _check(len(message.client.encode()) <= _CLIENT_BYTES, "client", f"at most {_CLIENT_BYTES} bytes")
  check_protocol(message.protocol)
  return message.protocol


def read_open(data: bytes, served: Description) -> tuple[Handshake, Resume | None]:
  """A handshake within the limits of the server.

  Raises:
    CloudError: ``INVALID_ARGUMENT`` with field and limit; ``FAILED_PRECONDITION`` for another protocol, model or numerics.
  """
  message = _parse(pb.OpenRequest, data)
  check_protocol(message.protocol)
  _check(len(message.stream_id) == STREAM_BYTES, "stream_id", f"{STREAM_BYTES} bytes")
  _check(len(message.key) == KEY_BYTES, "key", f"{KEY_BYTES} bytes")
  check_same("model", message.model, served.model)
  if message.need_numerics:
    _check(len(message.need_numerics) == DIGEST_BYTES, "need_numerics", f"{DIGEST_BYTES} bytes")
    check_same("numerics", message.need_numerics, served.numerics)
  profile = next((profile for profile in served.profiles if profile.id == message.profile), None)
  if profile is None:
    raise _invalid("profile", f"one of {', '.join(str(each.id) for each in served.profiles)}")
  _check(1 <= message.max_len <= served.max_len, "max_len", f"1 to {served.max_len}")
  for requirement in sampling_requirements(message, guided=profile.guided, nucleus=profile.nucleus):
    _check(*requirement)
  _check(len(message.end_ids) <= MAX_END_TOKENS, "end_ids", f"at most {MAX_END_TOKENS}")
  _check(all(token < served.vocab for token in message.end_ids), "end_ids", f"below {served.vocab}")
  _check_condition(message, served)
  if message.HasField("resume"):
    _check_resume(message.resume, message.max_len, served)
  return encoding.handshake_of(message)


def read_verify(data: bytes, served: Description, *, stream: bytes = b"") -> VerifyCall:
  """One call, without its tenant; length, header and checksum of its frame are checked.

  Args:
    stream: replaces an empty stream_id.
  Raises:
    CloudError: ``INVALID_ARGUMENT`` with field and limit; ``DATA_LOSS`` for a damaged frame.
  """
  message = _parse(pb.VerifyRequest, data)
  message.stream_id = message.stream_id or stream
  _check(len(message.stream_id) == STREAM_BYTES, "stream_id", f"{STREAM_BYTES} bytes")
  _check(1 <= message.seq < MAX_SEQ, "seq", f"1 to {MAX_SEQ - 1}")
  _check(message.part <= 1, "part", "0 or 1")
  try:
    frame = unframe(message.frame, max_frame_bytes(served))
  except MessageError as error:
    raise refusal_of(error) from error
  if frame.kind == CIAR:
    fed = frame.number + int.from_bytes(frame.payload[_PENDING_COUNT])
  else:
    fed = 0 if message.part else frame.number + 1
  return VerifyCall(message.stream_id, Position(message.seq, message.part), frame, fed)


def read_close(data: bytes) -> bytes:
  """The stream to close."""
  message = _parse(pb.CloseRequest, data)
  _check(len(message.stream_id) == STREAM_BYTES, "stream_id", f"{STREAM_BYTES} bytes")
  return message.stream_id


def _parse(kind: type[Request], data: bytes) -> Request:
  try:
    return kind.FromString(data)
  except DecodeError as error:
    raise CloudError(Status.INVALID_ARGUMENT, f"these bytes are not a {kind.DESCRIPTOR.name}") from error


def _check(holds: bool, field: str, limit: str) -> None:
  if not holds:
    raise _invalid(field, limit)


def _invalid(field: str, limit: str) -> CloudError:
  return CloudError(Status.INVALID_ARGUMENT, f"{field} must be {limit}")


def _check_condition(message: pb.OpenRequest, served: Description) -> None:
  kind, limit = message.WhichOneof("condition"), served.max_condition
  _check(kind is not None, "condition", "a prompt, a label or a caption")
  if kind == "prompt":
    _check(1 <= len(message.prompt.ids) <= limit, "prompt", f"1 to {limit} ids")
    _check(all(token < served.vocab for token in message.prompt.ids), "prompt", f"ids below {served.vocab}")
  elif kind == "caption":
    _check(len(message.caption.encode()) <= limit, "caption", f"at most {limit} bytes")
  else:
    _check(message.label < 1 << 31, "label", f"below {1 << 31}")


def _check_resume(resume: pb.Resume, max_len: int, served: Description) -> None:
  calls, most = resume.next_seq, max(max_len, served.max_condition)  # call 0 read the condition
  _check(1 <= calls < MAX_SEQ, "resume.next_seq", f"1 to {MAX_SEQ - 1}")
  _check(resume.round < MAX_SEQ, "resume.round", f"below {MAX_SEQ}")
  _check(1 <= len(resume.tokens) <= max_len, "resume.tokens", f"1 to {max_len}")
  _check(all(token < served.vocab for token in resume.tokens), "resume.tokens", f"below {served.vocab}")
  for name, counts in (("gained", resume.gained), ("fed", resume.fed)):
    _check(1 <= len(counts) <= calls, f"resume.{name}", f"1 to {calls} counts, one for each call that was not void")
    _check(all(count <= most for count in counts), f"resume.{name}", f"at most {most} each")
  _check(len(resume.gained) == len(resume.fed), "resume.gained", f"{len(resume.fed)} counts, as many as fed")
  _check(len(resume.replies) in (0, REPLIES_BYTES), "resume.replies", f"0 or {REPLIES_BYTES} bytes")
  _check(sum(resume.gained) == len(resume.tokens), "resume.gained", f"{len(resume.tokens)} in all, one for each token")


def _distribution_bytes(profile: Profile, vocab: int) -> int:
  """Length of the longest frame of part 1; 0 for a profile without requests."""
  if profile.coding != "lazy":
    return 0
  return max_distribution_bytes(
    RecordLimits(vocab, profile.ell, "lazy", profile.max_support, profile.window, profile.sends_size)
  )
