"""Streams of a server: valid handshakes, and the state after a resume."""

import numpy as np
import pytest

import jaxspec
from jaxspec.models.conditions import ClassLabels
from jaxspec.serving.server.served_profile import ServedProfile
from jaxspec.serving.server.stream_state import open_stream
from jaxspec.serving.wire.bitstream import MessageError
from jaxspec.serving.wire.handshake import Handshake, Resume
from jaxspec.serving.wire.sqs_codec import PlainCodec

HANDSHAKE = Handshake(b"s" * 16, b"m" * 32, 0, bytes(8), 16, 0)
CONDITION = ClassLabels(np.zeros(1, np.int32))
PLAIN, NUCLEUS = ServedProfile(PlainCodec(5)), ServedProfile(PlainCodec(5), jaxspec.Warp(nucleus=True))


def opened(profile=PLAIN, is_guided=False, resume=None, **changes):
  options = dict(profile=profile, prefix_len=1, is_guided=is_guided, tenant="")
  return open_stream(HANDSHAKE._replace(**changes), CONDITION, resume, **options)


def test_sampling_is_that_of_the_opening():
  row = opened(NUCLEUS, is_guided=True, temperature=0.0, top_p=0.5, cfg_scale=2.0).settings.row
  assert (row.sampling.temperature, row.sampling.top_p, row.scale) == (0.0, 0.5, 2.0)


@pytest.mark.parametrize(
  "name, value", [(name, value) for name in ("temperature", "top_p", "cfg_scale") for value in (np.nan, np.inf)]
  + [("temperature", -0.1), ("temperature", 100.5), ("cfg_scale", -0.1), ("cfg_scale", 1001.0)]
  + [("top_p", 0.0), ("top_p", 1.01), ("top_p", -1.0)],
)  # fmt: skip
def test_numbers_out_of_range(name, value):
  with pytest.raises(MessageError, match=f"range: {name} must be"):
    opened(NUCLEUS, is_guided=True, **{name: value})


def test_what_nothing_would_read_is_refused():
  """A stream with guidance must not be drawn without."""
  for changes in (dict(top_p=0.5), dict(cfg_scale=2.0)):
    with pytest.raises(MessageError, match="must be 1"):
      opened(**changes)
  opened(NUCLEUS, top_p=0.5)
  opened(is_guided=True, cfg_scale=2.0)


def test_a_resume_counts_calls_from_the_opening_on():
  """The handshake gained token 0; a stream counts the calls after it."""
  stream = opened(resume=Resume(3, 4, (1, 2, 3, 4), (1, 1, 2), (6, 1, 2)), profile=ServedProfile(PlainCodec(5)))
  assert stream.history == [(1, 1), (2, 2)] and stream.has_first and stream.tokens[:5].tolist() == [1, 2, 3, 4, 0]
  assert [int(leaf.item()) for leaf in stream.cursor[:4]] == [4, 4, True, 4]
  stream = opened(resume=Resume(1, 0, (3,), (1,), (9,)))
  assert stream.history == [] and stream.has_first and stream.cursor.length == 1 and stream.cursor.live
  assert not opened(resume=Resume(1, 0, (3,), (1,), (1,)), end_ids=(3,)).cursor.live
  assert not opened().has_first
