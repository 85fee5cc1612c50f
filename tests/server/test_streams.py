"""Streams on the host: what an opening may say."""

import numpy as np
import pytest

import jaxspec
from jaxspec.link.bitstream import MessageError
from jaxspec.link.cloud import OpenCall
from jaxspec.link.sqs_wire import PlainWire
from jaxspec.models.conditions import ClassLabels
from jaxspec.server.profiles import Profile
from jaxspec.server.streams import open_stream

OPENING = OpenCall(0, bytes(8), ClassLabels(np.zeros(1, np.int32)), 16)
PLAIN, NUCLEUS = Profile(PlainWire(5)), Profile(PlainWire(5), jaxspec.Warp(nucleus=True))


def opened(profile=PLAIN, is_guided=False, **changes):
  return open_stream(OPENING._replace(**changes), None, profile=profile, prefix_len=1, is_guided=is_guided, tenant="")


def test_sampling_is_that_of_the_opening():
  row = opened(NUCLEUS, is_guided=True, temperature=0.0, top_p=0.5, cfg_scale=-2.0).settings.row
  assert (row.sampling.temperature, row.sampling.top_p, row.scale) == (0.0, 0.5, -2.0)


@pytest.mark.parametrize(
  "name, value", [(name, value) for name in ("temperature", "top_p", "cfg_scale") for value in (np.nan, np.inf)]
  + [("temperature", -0.1), ("top_p", 0.0), ("top_p", 1.01), ("top_p", -1.0)],
)  # fmt: skip
def test_numbers_out_of_range(name, value):
  with pytest.raises(MessageError, match="range"):
    opened(NUCLEUS, is_guided=True, **{name: value})


def test_what_nothing_would_read_is_refused():
  """A stream that asks for guidance must not be drawn without."""
  for changes in (dict(top_p=0.5), dict(cfg_scale=2.0)):
    with pytest.raises(MessageError, match="profile"):
      opened(**changes)
  opened(NUCLEUS, top_p=0.5)
  opened(is_guided=True, cfg_scale=2.0)
