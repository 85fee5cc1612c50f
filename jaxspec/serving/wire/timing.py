"""How long a decode over a link takes, as a pure function of what it counted: experiments need no sockets.

A round costs ``passes * edge_s + bits / uplink + cloud_s + (drafts + 1) * cloud_token_s + exchanges * rtt + reply bits /
downlink``: the published model (draft passes, uplink, verification), with a round trip and a downlink that it leaves out and
that are free by default. Passes are those that were made: the one that finds a round's end counts, also where no draft comes
of it. All terms are linear, so whole decodes are summed by their totals.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class Compute:
  """Seconds of the two networks.

  Attributes:
    edge_s: one pass of the draft network over one token.
    cloud_s: one pass of the target, whatever it reads; ``cloud_token_s`` more for each token it reads.
  """

  edge_s: float
  cloud_s: float
  cloud_token_s: float = 0.0

  def __post_init__(self):
    for name, value in dataclasses.asdict(self).items():
      if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"Must have finite {name} of at least 0, we instead got {value}")


@dataclasses.dataclass(frozen=True)
class Link:
  """Rates in bits per second, and the seconds that an exchange takes besides."""

  uplink_bps: float
  downlink_bps: float = math.inf
  rtt_s: float = 0.0

  def __post_init__(self):
    if not (self.uplink_bps > 0 and self.downlink_bps > 0):
      raise ValueError(f"Must have rates above 0, we instead got {self.uplink_bps} and {self.downlink_bps}")
    if not (math.isfinite(self.rtt_s) and self.rtt_s >= 0):
      raise ValueError(f"Must have a finite round trip of at least 0 s, we instead got {self.rtt_s}")


def decode_seconds(
  compute: Compute,
  link: Link,
  *,
  edge_passes: np.ndarray,
  rounds: np.ndarray,
  drafted: np.ndarray,
  uplink_bits: np.ndarray,
  exchanges: np.ndarray | None = None,
  reply_bits: np.ndarray | float = 0.0,
) -> np.ndarray:
  """Seconds of decodes, of the shape of the counts.

  Args:
    exchanges: round trips; ``rounds`` by default. The lazy coding makes a second one after a rejection.
  """
  exchanges = rounds if exchanges is None else exchanges
  cloud = rounds * compute.cloud_s + (drafted + rounds) * compute.cloud_token_s
  network = uplink_bits / link.uplink_bps + reply_bits / link.downlink_bps + exchanges * link.rtt_s
  return edge_passes * compute.edge_s + cloud + network


def break_even_bps(first: tuple[float, float], second: tuple[float, float]) -> float | None:
  """The uplink rate at which two ways of decoding take the same time; None where one is never slower.

  Args:
    first: seconds without the uplink, and bits on it, both per token; ``second`` likewise.
  """
  seconds, bits = second[0] - first[0], first[1] - second[1]
  return bits / seconds if seconds * bits > 0 else None
