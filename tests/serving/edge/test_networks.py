"""The model of a network against numbers by hand and against the published table's own arithmetic."""

import pytest

from jaxspec.serving.wire.link_model import NETWORKS, link_seconds


def test_by_hand():
  slow = NETWORKS["4g"]  # 20 Mbit/s, 50 ms
  once = link_seconds(slow, uplink_bytes=25_000, downlink_bytes=2_500, calls=10)
  assert once.uplink == pytest.approx(0.25 + 0.010) and once.downlink == pytest.approx(0.25 + 0.001)
  both = link_seconds(slow, uplink_bytes=25_000, downlink_bytes=2_500, calls=10, latency_is="one_way")
  assert both.total == pytest.approx(once.total + 0.5)


def test_latency_alone_explains_the_published_times():
  """Communication times of the table (ms): with empty messages a method made about the same number of calls everywhere."""
  published = {"lantern": (4424.63, 22291.31, 8768.01), "ciar": (1678.13, 8173.95, 3343.94)}
  for method, times in published.items():
    calls = [ms / 1e3 / NETWORKS[name].latency_s for ms, name in zip(times, ("5g", "4g", "wifi"))]
    assert max(calls) / min(calls) < 1.03, method
    for name, ms, number in zip(("5g", "4g", "wifi"), times, calls):
      seconds = link_seconds(NETWORKS[name], uplink_bytes=0, downlink_bytes=0, calls=round(number))
      assert seconds.total == pytest.approx(ms / 1e3, abs=NETWORKS[name].latency_s / 2 + 1e-9)  # calls are whole


def test_bad_arguments():
  with pytest.raises(ValueError, match="latency_is"):
    link_seconds(NETWORKS["5g"], uplink_bytes=1, downlink_bytes=1, calls=1, latency_is="half")
  with pytest.raises(ValueError, match="at least 0"):
    link_seconds(NETWORKS["5g"], uplink_bytes=-1, downlink_bytes=1, calls=1)
