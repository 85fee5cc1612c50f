"""What an exchange costs on a network, as a pure function of bytes (CIAR, arXiv 2603.25463, Table 9).

One transmission takes ``latency + size / bandwidth``. The paper calls its latency a round-trip time but adds it for every
transmission in either direction; both readings are here.
"""

from __future__ import annotations

from typing import NamedTuple

LATENCY_RULES = ("rtt_per_call", "one_way")


class Network(NamedTuple):
  """A link between edge and cloud."""

  bits_per_s: float
  latency_s: float


NETWORKS = {"5g": Network(300e6, 0.010), "4g": Network(20e6, 0.050), "wifi": Network(100e6, 0.020)}


class LinkSeconds(NamedTuple):
  """Seconds on the link."""

  uplink: float
  downlink: float

  @property
  def total(self) -> float:
    """Both directions."""
    return self.uplink + self.downlink


def link_seconds(
  network: Network, *, uplink_bytes: int, downlink_bytes: int, calls: int, latency_is: str = "rtt_per_call"
) -> LinkSeconds:
  """Time on the link of ``calls`` exchanges.

  Args:
    latency_is: ``rtt_per_call``: the latency is paid once for an exchange; ``one_way``: for each of its two transmissions.
  Raises:
    ValueError: for an unknown reading or a negative size.
  """
  if latency_is not in LATENCY_RULES:
    raise ValueError(f"Must have latency_is in {', '.join(LATENCY_RULES)}, we instead got {latency_is!r}")
  if min(uplink_bytes, downlink_bytes, calls) < 0:
    raise ValueError(f"Must have sizes of at least 0, we instead got {uplink_bytes}, {downlink_bytes}, {calls}")
  each = network.latency_s * calls * (1.0 if latency_is == "one_way" else 0.5)
  return LinkSeconds(each + 8 * uplink_bytes / network.bits_per_s, each + 8 * downlink_bytes / network.bits_per_s)
