"""Two operating-system processes that share nothing but a pipe give the tokens of the fused loop, for 100 seeds.

The other process builds the target from the same seeds of weights. The 100 seeds are the rows of one batch, each with a key
of its own.
"""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxspec
from jaxspec.codecs.bits import CODINGS
from jaxspec.link.message import MessageError
from jaxspec.link.pipe import pipe_transport, serve
from tests.link.pairs import MAX_LEN, assert_gated_traffic, assert_same, case_named, rows_of

ROOT, SEEDS = Path(__file__).parents[2], 100


def target_process(*names):
  command = [sys.executable, "-m", "tests.link.target_process", *names]
  return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)


def check_processes(*cases):
  """Decodes each case with its target in another process, and compares with one program in this one."""
  keys, condition = rows_of(SEEDS)
  with target_process(*(name for name, _ in cases)) as process:
    for name, options in cases:
      case, crossed = case_named(name), []
      transport = pipe_transport(process.stdin, process.stdout)

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
    process.stdin.close()
    assert process.wait(60) == 0


def test_a_target_in_another_process_gives_the_tokens_of_one_program():
  """One process serves both methods, one after the other: rows that end at a token, and a prefix of the target."""
  check_processes(("markov:sqs-trimmed", dict(end_token=3)), ("markov:ciar-exact", dict(target_prefix=2)))


@pytest.mark.slow
@pytest.mark.parametrize("coding", CODINGS)
def test_every_coding(coding):
  check_processes((f"transformer:sqs-{coding}", dict(target_prefix=2 if coding in ("paper", "lazy") else 0)))


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["exact", "greedy", "features"])
def test_every_kind_of_gated_edge(variant):
  name = f"transformer:ciar-{variant}"
  check_processes((name, {}), (name, dict(target_prefix=3, end_token=2)))


@pytest.mark.slow
def test_an_edge_without_a_draft_network():
  check_processes(("transformer:plain", dict(end_token=4)))


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
