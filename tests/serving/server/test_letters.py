"""Letters between processes: what is written is read."""

import math

import numpy as np
import pytest

from jaxspec.serving.server import letters
from jaxspec.serving.server.backend import Answer
from jaxspec.serving.server.dispatcher import OpenCall, Tenant, VerifyCall
from jaxspec.serving.server.engine_interface import Ahead, description_of
from jaxspec.serving.server.idempotency import Position
from jaxspec.serving.server.letters import Counts, Kind, Setup
from jaxspec.serving.server.listen import Listen
from jaxspec.serving.server.quotas import Quota
from jaxspec.serving.wire.cloud import CloudError, Resume, Status
from jaxspec.serving.wire.frame_reader import FrameReader
from jaxspec.serving.wire.records import Limits

pytest.importorskip("google.protobuf", reason="needs the serve extra: pip install 'jaxspec-decoding[serve]'")

from jaxspec.serving.wire.v1 import encoding
from tests.serving.edge.toy_edge import opening
from tests.serving.edge.toy_engine import ToyEngine

STREAM = bytes(range(16))
RESUME = Resume(3, 3, (5, 6, 7, 8), (1, 2, 1), (3, 4, 1))
TENANTS = (None, Tenant(""), Tenant("ålice", Quota(streams=3, fed_per_s=2.5)))


def body_of(data, kind):
  found, number, body = letters.opened(letters.letter(kind, 7, data))
  assert (found, number) == (kind, 7)
  return body


@pytest.mark.parametrize("tenant", TENANTS)
@pytest.mark.parametrize("reads", [False, True])
def test_calls(tenant, reads):
  reader = FrameReader(Limits(50, 30, "paper", 6, 3, False))
  frame = reader.largest(0)
  ahead = Ahead(4, reader.read(frame, 0)) if reads else None
  call = VerifyCall(STREAM, Position(9, 0), frame, 5, tenant, math.inf, ahead)
  got = letters.read_verify(body_of(letters.write_verify(call, {4: reader}), Kind.VERIFY), {4: reader})
  assert got[:6] == call[:6] and (got.ahead is None) == (ahead is None)
  if reads:
    assert got.ahead.profile == 4
    np.testing.assert_array_equal(got.ahead.reading.tokens, ahead.reading.tokens)
    np.testing.assert_array_equal(got.ahead.reading.distributions.counts, ahead.reading.distributions.counts)
  assert letters.read_close(body_of(letters.write_close(tenant, STREAM), Kind.CLOSE)) == (tenant, STREAM)
  if tenant is not None:
    plain, request = encoding.open_request(opening()), encoding.open_request(opening(), RESUME)
    call = OpenCall(tenant, opening(), RESUME, plain, request, 2.5)
    assert letters.read_open(body_of(letters.write_open(call), Kind.OPEN)) == call


@pytest.mark.parametrize("profile", [None, 0, 3])
def test_answers(profile):
  answer = Answer(b"frame", profile)
  assert letters.read_answer(body_of(letters.write_answer(answer), Kind.ANSWER)) == answer


@pytest.mark.parametrize("status", Status)
def test_refusals(status):
  for pushback in (None, 0.25):
    got = letters.read_answer(body_of(letters.write_answer(CloudError(status, "no — not so", pushback)), Kind.ANSWER))
    assert (got.status, got.detail, got.pushback_s) == (status, "no — not so", pushback)


def test_counts():
  calls = tuple((method, status, 0.5) for method in letters.METHODS for status in letters.STATUSES)
  counts = Counts(3, 1 << 40, 2, calls)
  assert letters.read_counts(body_of(letters.write_counts(counts), Kind.COUNTS)) == counts


def test_what_a_front_end_must_know():
  listen = Listen("127.0.0.1:80", certificate=b"a\0b", key=b"key", options={"grpc.max_concurrent_streams": 3})
  for tokens in (None, "one\ntwo\n"):
    setup = Setup(listen, description_of(ToyEngine()), tokens, True, 10)
    assert letters.read_setup(body_of(letters.write_setup(setup), Kind.SETUP)) == setup
