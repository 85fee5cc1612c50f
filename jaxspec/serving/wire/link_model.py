"""What an exchange costs on a network, as a pure function of bytes (CIAR, arXiv 2603.25463, Table 9).

One transmission takes ``latency + size / bandwidth``. The paper calls its latency a round-trip time but adds it for every
transmission in either direction; both readings are here.

`seconds_per_token` adds draft network and target: the rate of an edge that waits for every reply, and of one that sends
drafts ahead.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxspec.core.expected_tokens import expected_tokens

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


class RoundSeconds(NamedTuple):
  """Seconds of a round whose drafts are verified behind a link.

  Attributes:
    draft: all passes of the draft network, K t_d for K drafts.
    verify: the target's pass, t_v.
    link: the exchange, D: `link_seconds` of one call.
  """

  draft: float
  verify: float
  link: float

  def mean(self, full: float = 0.0, pipeline: int = 1) -> float:
    """Mean seconds from reply to reply.

    After a rejection the edge fills its pipeline of m drafts and then reads a reply: ``T = max(K t_d + t_v + D, m K t_d)``.
    While all drafts are accepted, m replies follow each other after ``e = max(K t_d, t_v)``, and every m-th one after
    ``K t_d + t_v + D`` since the m-th before. A run of J such replies has probability ``h^J (1 - h)``, so

      mean = (1 - h) (T + max(K t_d + t_v + D, m e) f + e (h / (1 - h) - m f)),    f = h^m / (1 - h^m).

    An edge that waits (m = 1) needs ``K t_d + t_v + D``.

    Args:
      full: h, the probability that all drafts of a round are accepted.
      pipeline: m, drafts that may wait for their replies.
    """
    whole, each = sum(self), max(self.draft, self.verify)
    turn = max(whole, pipeline * each)
    if full >= 1:
      return turn / pipeline
    turns = full**pipeline / (1 - full**pipeline)
    first = max(whole, pipeline * self.draft)
    return (1 - full) * (first + turn * turns + each * (full / (1 - full) - pipeline * turns))


def seconds_per_token(
  acceptance: float, drafts: int, seconds: RoundSeconds, *, pipeline: int = 1, bonus: bool = False
) -> float:
  """Expected seconds for a token of a long row, by `RoundSeconds.mean` with ``h = a^K``.

  A round commits ``(1 - a^K) / (1 - a)`` tokens, or with a bonus token ``(1 - a^(K + 1)) / (1 - a)``.

  Args:
    acceptance: a, the conditional probability of accepting a draft.
    drafts: K.
    pipeline: drafts that may wait for their replies; above 1 there is no bonus token.
  Raises:
    ValueError: for numbers out of range.
  """
  if not (0 <= acceptance <= 1 and drafts >= 1 and pipeline >= 1 and not (bonus and pipeline > 1)):
    found = f"acceptance {acceptance}, {drafts} drafts, pipeline {pipeline}, bonus {bonus}"
    raise ValueError(f"Must have an acceptance from 0 to 1, drafts, and no bonus in a pipeline, we instead got {found}")
  return seconds.mean(acceptance**drafts, pipeline) / expected_tokens(acceptance, drafts if bonus else drafts - 1)


def best_length(
  acceptance: float, *, draft_s: float, verify_s: float, link_s: float, most: int, pipeline: int = 1, bonus: bool = True
) -> int:
  """The number of drafts K from 1 to ``most`` with the least `seconds_per_token`.

  For an edge that waits it grows as ``log D / log(1 / a)``.

  Args:
    draft_s: t_d, one pass of the draft network.
  """
  seconds = lambda drafts: seconds_per_token(
    acceptance,
    drafts,
    RoundSeconds(drafts * draft_s, verify_s, link_s),
    pipeline=pipeline,
    bonus=bonus and pipeline == 1,
  )
  return min(range(1, most + 1), key=seconds)
