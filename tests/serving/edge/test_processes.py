"""Two operating-system processes that share nothing but a pipe give the tokens of the fused loop, for 100 seeds.

The other process builds the target from the same seeds of weights. The 100 seeds are the rows of one batch, each with a key
of its own.
"""

import io

import numpy as np
import pytest

import jaxspec
from jaxspec.codecs.bits import CODINGS
from jaxspec.serving.edge.pipe import pipe_transport, serve
from jaxspec.serving.wire.framing import MessageError
from tests.serving.edge.pairs import MAX_LEN, assert_gated_traffic, assert_same, case_named, rows_of
from tests.serving.edge.target_process import TargetProcess

SEEDS = 100


@pytest.fixture(scope="module")
def target():
  """One process for all cases; cases with the same target share its compiled programs."""
  process = TargetProcess()
  yield process
  process.close()


def check_processes(target, *cases):
  """Decodes each case with its target in another process, and compares with one program in this one."""
  keys, condition = rows_of(SEEDS)
  for name, options in cases:
    case, crossed = case_named(name), []
    with target.serving(name) as transport:

      def counted(message, transport=transport, crossed=crossed):
        reply = transport(message)
        crossed.extend((message, reply))
        return reply

      out, traffic = case.draft_endpoint(**options).run(condition, keys, counted)
    fused = jaxspec.speculate(case.params, keys, condition, max_len=MAX_LEN, **case.parts(), **options)
    assert_same(out, fused)
    bytes_ = traffic.uplink_bytes.sum() + traffic.downlink_bytes.sum() + traffic.opening_bytes + traffic.envelope_bytes
    assert bytes_ == sum(map(len, crossed))
    if "ciar" in name:
      assert_gated_traffic(fused, traffic)
    assert len(np.unique(out.tokens, axis=0)) > SEEDS / 3


def test_a_target_in_another_process_gives_the_tokens_of_one_program(target):
  """One process serves both methods, one after the other: rows that end at a token, and a prefix of the target."""
  check_processes(target, ("markov:sqs-trimmed", dict(end_token=3)), ("markov:ciar-exact", dict(target_prefix=2)))


@pytest.mark.slow
@pytest.mark.parametrize("coding", CODINGS)
def test_every_coding(target, coding):
  check_processes(target, (f"transformer:sqs-{coding}", dict(target_prefix=2 if coding in ("paper", "lazy") else 0)))


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["exact", "greedy", "features"])
def test_every_kind_of_gated_edge(target, variant):
  """Greedy ids alone have nothing of their own in a prefix (the table of `test_ciar_endpoints` has one)."""
  name = f"transformer:ciar-{variant}"
  options = [{}, dict(target_prefix=3, end_token=2)]
  check_processes(target, *((name, each) for each in options[: 1 if variant == "greedy" else 2]))


@pytest.mark.slow
def test_an_edge_without_a_draft_network(target):
  check_processes(target, ("transformer:plain", dict(end_token=4)))


class Answers:
  """An endpoint that answers with the message itself, or refuses it."""

  is_open = False

  def handle(self, message):
    if message == b"bad":
      raise MessageError("checksum", "the bytes: are damaged")
    self.is_open = not self.is_open
    return message


def test_pipes():
  """Blocks of bytes both ways; a refusal is an error at the other end and ends nothing; a pipe that ended is an error."""
  replies = io.BytesIO()
  block = lambda data: len(data).to_bytes(4) + data
  serve(Answers(), io.BytesIO(block(b"one") + block(b"bad") + block(b"") + block(b"never read")), replies, max_streams=1)
  replies.seek(0)
  requests = io.BytesIO()
  transport = pipe_transport(requests, replies)
  assert transport(b"one") == b"one"
  with pytest.raises(MessageError, match="checksum: the bytes: are damaged") as caught:
    transport(b"bad")
  assert caught.value.reason == "checksum" and transport(b"") == b""
  assert requests.getvalue() == block(b"one") + block(b"bad") + block(b"")
  with pytest.raises(MessageError, match="no message arrived"):
    transport(b"one")
  serve(Answers(), io.BytesIO(b""), io.BytesIO())
  for broken in (b"\0\0", block(b"cut off")[:-1], (1 << 31).to_bytes(4)):
    with pytest.raises(MessageError, match="truncated|length"):
      serve(Answers(), io.BytesIO(broken), io.BytesIO())
