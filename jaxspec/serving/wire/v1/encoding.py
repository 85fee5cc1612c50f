"""The types of `jaxspec.serving.wire.cloud` as messages of the protocol, and back. Values are not checked here."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from jaxspec.serving.wire.cloud import Description, Profile
from jaxspec.serving.wire.handshake import Handshake, HandshakeReply, Resume
from jaxspec.serving.wire.v1 import jaxspec_link_pb2 as pb


def open_request(handshake: Handshake, resume: Resume | None = None) -> bytes:
  """The bytes that open or resume a stream; the same for the same arguments."""
  fields = handshake._asdict()
  message = pb.OpenRequest(stream_id=fields.pop("stream"), end_ids=fields.pop("end_ids"))
  condition = fields.pop("condition")
  for name, value in fields.items():
    setattr(message, name, value)
  if isinstance(condition, str):
    message.caption = condition
  elif isinstance(condition, int):
    message.label = condition
  else:
    message.prompt.ids.extend(condition)
    message.prompt.SetInParent()  # an empty prompt is one too
  if resume is not None:
    message.resume.CopyFrom(pb.Resume(**resume._asdict()))
  return message.SerializeToString(deterministic=True)


def handshake_of(message: pb.OpenRequest) -> tuple[Handshake, Resume | None]:
  """What a message opens, and from where."""
  kind = message.WhichOneof("condition")
  condition = tuple(message.prompt.ids) if kind in (None, "prompt") else getattr(message, kind)
  handshake = Handshake(
    stream=message.stream_id,
    model=message.model,
    profile=message.profile,
    key=message.key,
    max_len=message.max_len,
    condition=condition,
    temperature=message.temperature,
    top_p=message.top_p,
    cfg_scale=message.cfg_scale,
    end_ids=tuple(message.end_ids),
    need_numerics=message.need_numerics,
    protocol=message.protocol,
  )
  if not message.HasField("resume"):
    return handshake, None
  got = message.resume
  return handshake, Resume(got.next_seq, got.round, tuple(got.tokens), tuple(got.gained), tuple(got.fed), got.replies)


def open_reply(opened: HandshakeReply) -> bytes:
  """The answer to `open_request`."""
  return pb.OpenReply(**opened._asdict()).SerializeToString()


def handshake_reply_of(data: bytes) -> HandshakeReply:
  """Reads `open_reply`."""
  message = pb.OpenReply.FromString(data)
  return HandshakeReply(message.frame, message.next_seq, message.numerics)


def verify_request(stream: bytes, seq: int, part: int, frame: bytes) -> bytes:
  """The bytes of one call."""
  return pb.VerifyRequest(stream_id=stream, seq=seq, part=part, frame=frame).SerializeToString()


def verify_reply(seq: int, part: int, frame: bytes) -> bytes:
  """The answer to `verify_request`."""
  return pb.VerifyReply(seq=seq, part=part, frame=frame).SerializeToString()


def reply_to(data: bytes, seq: int, part: int) -> bytes | None:
  """The frame of a reply; None for the late reply to another call."""
  message = pb.VerifyReply.FromString(data)
  return message.frame if (message.seq, message.part) == (seq, part) else None


def close_request(stream: bytes) -> bytes:
  """The bytes that close a stream."""
  return pb.CloseRequest(stream_id=stream).SerializeToString()


def describe_request(protocol: int, client: str) -> bytes:
  """The request for the description of a server."""
  return pb.DescribeRequest(protocol=protocol, client=client).SerializeToString()


def describe_reply(description: Description) -> bytes:
  """The answer to `describe_request`."""
  fields = description._asdict()
  profiles = [pb.Profile(**profile._asdict()) for profile in fields.pop("profiles")]
  return pb.DescribeReply(**fields, profiles=profiles).SerializeToString()


def description_of(data: bytes) -> Description:
  """Reads `describe_reply`."""
  message = pb.DescribeReply.FromString(data)
  fields = {name: getattr(message, name) for name in Description._fields}
  profiles = tuple(Profile(*(getattr(each, name) for name in Profile._fields)) for each in message.profiles)
  return Description(**(fields | {"end_ids": tuple(message.end_ids), "profiles": profiles}))


def stream_of(data: bytes) -> bytes:
  """The stream that an `open_request` opens.

  Raises:
    ValueError: for other bytes.
  """
  try:
    return pb.OpenRequest.FromString(data).stream_id
  except DecodeError:
    raise ValueError("Must have a handshake, we instead got other bytes") from None
