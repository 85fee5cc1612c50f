"""The latency model: its terms one by one, its linearity, and where two ways of decoding cost the same."""

import numpy as np
import pytest

from jaxspec.serving.wire.timing import Compute, Link, break_even_bps, decode_seconds

DRAFTED, BITS = np.array([7, 0]), np.array([9e3, 0])
COUNTS = dict(edge_passes=np.array([10, 0]), rounds=np.array([3, 1]), drafted=DRAFTED, uplink_bits=BITS)


def test_the_published_model():
  """Draft passes, bits over rate, verification of drafts and one more token; nothing else."""
  seconds = decode_seconds(Compute(0.01, 0.05, 0.001), Link(2e6), **COUNTS)
  np.testing.assert_allclose(seconds, [10 * 0.01 + 9e3 / 2e6 + 3 * 0.05 + 10 * 0.001, 0.05 + 0.001])


def test_round_trips_and_the_downlink_come_on_top():
  compute, paper = Compute(0.01, 0.05), Link(2e6)
  base = decode_seconds(compute, paper, **COUNTS)
  np.testing.assert_allclose(decode_seconds(compute, Link(2e6, rtt_s=0.02), **COUNTS) - base, [0.06, 0.02])
  lazy = decode_seconds(compute, Link(2e6, rtt_s=0.02), exchanges=np.array([5, 1]), **COUNTS)
  np.testing.assert_allclose(lazy - base, [0.1, 0.02])
  down = decode_seconds(compute, Link(2e6, downlink_bps=1e6), reply_bits=np.array([160, 160]), **COUNTS)
  np.testing.assert_allclose(down - base, 160 / 1e6)
  # At 20 Mbit/s a round of 5000 bits takes 0.25 ms.
  assert decode_seconds(Compute(0, 0), Link(20e6), edge_passes=0, rounds=0, drafted=0, uplink_bits=5000) == 0.25e-3


def test_totals_are_sums_of_rounds():
  generator = np.random.default_rng(0)
  counts = {name: generator.integers(0, 50, 20) for name in COUNTS}
  compute, link = Compute(0.003, 0.02, 0.0004), Link(1e6, rtt_s=0.01)
  whole = decode_seconds(compute, link, **{name: values.sum() for name, values in counts.items()})
  np.testing.assert_allclose(whole, decode_seconds(compute, link, **counts).sum())


def test_break_even():
  """1000 bits more for 10 ms less pay from 100 kbit/s on."""
  assert break_even_bps((0.01, 2000), (0.02, 1000)) == pytest.approx(1e5)
  assert break_even_bps((0.02, 1000), (0.01, 2000)) == pytest.approx(1e5)
  assert break_even_bps((0.01, 1000), (0.02, 2000)) is None
  assert break_even_bps((0.01, 1000), (0.01, 1000)) is None


@pytest.mark.parametrize("make", [
  lambda: Compute(-1, 0), lambda: Compute(0, float("nan")), lambda: Link(0), lambda: Link(1, 0), lambda: Link(1, rtt_s=-1)
])  # fmt: skip
def test_settings_are_checked(make):
  with pytest.raises(ValueError, match="we instead got"):
    make()
