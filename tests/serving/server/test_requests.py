"""Every field of a request has its limit; hostile bytes end in a status before anything is made of them."""

import random
import tracemalloc

import pytest

pytest.importorskip("google.protobuf", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from jaxspec.serving.server import requests
from jaxspec.serving.server.dispatcher import VerifyCall
from jaxspec.serving.server.idempotency import Position
from jaxspec.serving.wire.cloud import CloudError, Description, Profile, Status
from jaxspec.serving.wire.framing import frame, unframe
from jaxspec.serving.wire.handshake import Handshake, Resume
from jaxspec.serving.wire.v1 import encoding
from jaxspec.serving.wire.v1 import jaxspec_link_pb2 as pb

MODEL, NUMERICS = b"m" * 32, b"n" * 32
PROFILES = (
  Profile(1, "ciar", window=3, max_frame=60),
  Profile(4, "sqs", window=3, coding="lazy", ell=100, max_support=8, nucleus=True, guided=True, max_frame=62),
)
SERVED = Description(1, 1, "jaxspec 1", MODEL, NUMERICS, 100, 50, 6, (7,), PROFILES)
HANDSHAKE = Handshake(b"s" * 16, MODEL, 4, b"k" * 8, 40, (1, 2, 99), 0.5, 0.75, 2.0, (3, 7), NUMERICS)
RESUME = Resume(3, 3, (5, 6, 7, 8), (1, 2, 1), (3, 4, 1))
DRAFTS = frame(4, 1, 100, 2, b"payload")


def test_requests_come_back():
  assert requests.read_open(encoding.open_request(HANDSHAKE), SERVED) == (HANDSHAKE, None)
  for condition in ((1,), 0, 12, "", "café"):
    handshake = HANDSHAKE._replace(condition=condition)
    assert requests.read_open(encoding.open_request(handshake, RESUME), SERVED) == (handshake, RESUME)
  got = requests.read_verify(encoding.verify_request(b"s" * 16, 7, 0, DRAFTS), SERVED)
  assert got == VerifyCall(b"s" * 16, Position(7, 0), unframe(DRAFTS, 64), 3)
  assert requests.read_verify(encoding.verify_request(b"s" * 16, 7, 1, DRAFTS), SERVED).fed == 0
  gated = frame(20, 1, 1, 2, b"\0\7" + b"\0\5" + b"tokens")
  assert requests.read_verify(encoding.verify_request(b"s" * 16, 7, 0, gated), SERVED).fed == 7
  assert requests.read_close(encoding.close_request(b"s" * 16)) == b"s" * 16
  assert encoding.description_of(encoding.describe_reply(SERVED)) == SERVED
  assert len(encoding.open_request(HANDSHAKE, RESUME)) <= requests.max_request_bytes(SERVED)


BAD_HANDSHAKES = {
  "stream_id": dict(stream=b"s" * 15),
  "key": dict(key=b"k" * 9),
  "profile": dict(profile=2),
  "max_len": dict(max_len=51),
  "max_len ": dict(max_len=0),
  "temperature": dict(temperature=float("nan")),
  "temperature ": dict(temperature=-0.1),
  "temperature  ": dict(temperature=101.0),
  "top_p": dict(top_p=0.0),
  "top_p ": dict(profile=1, cfg_scale=1.0),
  "cfg_scale": dict(cfg_scale=float("inf")),
  "cfg_scale ": dict(profile=1, top_p=1.0),
  "end_ids": dict(end_ids=(100,)),
  "end_ids ": dict(end_ids=(1,) * 9),
  "prompt": dict(condition=()),
  "prompt ": dict(condition=(1,) * 7),
  "prompt  ": dict(condition=(100,)),
  "label": dict(condition=1 << 31),
  "caption": dict(condition="a caption"),
  "need_numerics": dict(need_numerics=b"n"),
}
BAD_RESUMES = {
  "resume.next_seq": dict(next_seq=0),
  "resume.round": dict(round=1 << 31),
  "resume.tokens": dict(tokens=()),
  "resume.tokens ": dict(tokens=(1,) * 41),
  "resume.tokens  ": dict(tokens=(5, 6, 7, 100)),
  "resume.gained": dict(gained=(1, 3)),
  "resume.gained ": dict(gained=(1, 3, 1)),
  "resume.fed": dict(fed=(1, 3, 1, 4)),
  "resume.fed ": dict(fed=(1, 3, 51)),
}


def refused(call, *args):
  with pytest.raises(CloudError) as caught:
    call(*args)
  return caught.value


@pytest.mark.parametrize("field", [*BAD_HANDSHAKES, *BAD_RESUMES])
def test_each_field_has_its_limit(field):
  handshake = HANDSHAKE._replace(**BAD_HANDSHAKES.get(field, {}))
  resume = RESUME._replace(**BAD_RESUMES[field]) if field in BAD_RESUMES else None
  error = refused(requests.read_open, encoding.open_request(handshake, resume), SERVED)
  assert error.status is Status.INVALID_ARGUMENT and error.detail.startswith(f"{field.strip()} must be ")


def test_both_sides_must_agree():
  other = b"x" * 32
  for fields, words in (
    (dict(protocol=0), "protocol 0 was requested, 1 is served"),
    (dict(protocol=2), "protocol 2 was requested, 1 is served"),
    (dict(model=other), f"model {other.hex()} was requested, {MODEL.hex()} is served"),
    (dict(need_numerics=other), f"numerics {other.hex()} was requested, {NUMERICS.hex()} is served"),
  ):
    error = refused(requests.read_open, encoding.open_request(HANDSHAKE._replace(**fields)), SERVED)
    assert (error.status, error.detail) == (Status.FAILED_PRECONDITION, words)
  assert refused(requests.read_describe, encoding.describe_request(2, "")).status is Status.FAILED_PRECONDITION
  assert requests.read_describe(encoding.describe_request(1, "me")) == 1


def test_calls_have_limits_too():
  read = lambda stream=b"s" * 16, seq=1, part=0, data=DRAFTS: refused(
    requests.read_verify, encoding.verify_request(stream, seq, part, data), SERVED
  )
  for error in (read(stream=b""), read(seq=0), read(seq=1 << 31), read(part=2), read(data=b""), read(data=bytes(500))):
    assert error.status is Status.INVALID_ARGUMENT
  assert read(data=b"XQ" + DRAFTS[2:]).detail.startswith("magic")
  damaged = DRAFTS[:-6] + b"\0" + DRAFTS[-5:]
  assert (read(data=damaged).status, read(data=damaged).detail[:8]) == (Status.DATA_LOSS, "checksum")
  assert refused(requests.read_close, encoding.close_request(b"s")).status is Status.INVALID_ARGUMENT
  assert refused(requests.read_describe, b"\xff").detail == "these bytes are not a DescribeRequest"
  nobody = pb.OpenRequest.FromString(encoding.open_request(HANDSHAKE))
  nobody.ClearField("condition")
  assert refused(requests.read_open, nobody.SerializeToString(), SERVED).detail.startswith("condition")


def test_hostile_bytes():
  """Random edits of valid requests: a status of the protocol or a valid request, and no memory."""
  generator = random.Random(0)
  valid = [
    (lambda data: requests.read_open(data, SERVED), encoding.open_request(HANDSHAKE, RESUME)),
    (lambda data: requests.read_verify(data, SERVED), encoding.verify_request(b"s" * 16, 7, 0, DRAFTS)),
    (requests.read_close, encoding.close_request(b"s" * 16)),
    (requests.read_describe, encoding.describe_request(1, "me")),
  ]
  allowed = (Status.INVALID_ARGUMENT, Status.DATA_LOSS, Status.FAILED_PRECONDITION)
  outcomes = set()
  tracemalloc.start()
  for _ in range(4000):
    read, data = generator.choice(valid)
    noisy = bytearray(data if generator.random() < 0.9 else generator.randbytes(60))
    for _ in range(generator.randint(1, 4)):
      noisy[generator.randrange(len(noisy))] = generator.randrange(256)
    try:
      read(bytes(noisy[: len(noisy) - generator.randint(0, 2)]))
      outcomes.add("valid")
    except CloudError as error:
      outcomes.add(error.status)
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert outcomes == {"valid", *allowed} and peak < 1e6
