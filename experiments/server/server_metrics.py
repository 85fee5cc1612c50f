"""A server's counters over an interval of time, read at its start and end.

Histograms have few buckets, so a quantile is interpolated inside of one: it is known to the width of the bucket.
"""

from __future__ import annotations

import bisect
import math
import urllib.error
import urllib.request
from collections import Counter
from typing import Any, NamedTuple

from jaxspec.serving.wire.address import parse_address

_TIMEOUT_S = 10.0
_NEVER_WAIT = ("Describe", "Close")  # methods that the engine does not answer


class Counters(NamedTuple):
  """Sums of all samples of a name, whatever their labels but ``le`` and ``direction``.

  Of calls only those are counted that the engine answers; handshakes have a name of their own, ``jaxspec_open_...``.
  """

  values: dict[tuple[str, str], float]

  def since(self, before: Counters) -> Counters:
    """What was counted after ``before``; a server that was started again began at 0."""
    return Counters(
      {key: value - old if value >= (old := before.values.get(key, 0.0)) else value for key, value in self.values.items()}
    )

  def total(self, name: str, label: str = "") -> float:
    """The sum of a counter; 0 where there is none."""
    return self.values.get((name, label), 0.0)

  def histogram(self, name: str) -> dict[str, float] | None:
    """Count, mean and interpolated quantiles of a histogram; None where nothing was observed."""
    buckets = {le: count for (key, le), count in self.values.items() if key == f"{name}_bucket"}
    bounds = sorted((math.inf if le == "+Inf" else float(le), count) for le, count in buckets.items())
    count = self.total(f"{name}_count")
    if not count or not bounds:
      return None
    quantiles = {f"p{percent}": quantile(bounds, percent / 100) for percent in (50, 99)}
    return {"count": int(count), "mean": self.total(f"{name}_sum") / count} | quantiles


def quantile(bounds: list[tuple[float, float]], share: float) -> float:
  """The value below which a share of the observations lies.

  Args:
    bounds: upper bounds of buckets in order, with how many observations are not above each.
  """
  wanted = share * bounds[-1][1]
  at = bisect.bisect_left([count for _, count in bounds], wanted)
  upper, most = bounds[at]
  lower, least = bounds[at - 1] if at else (0.0, 0.0)
  if math.isinf(upper):
    return lower  # all that is known is that it is above
  return lower + (upper - lower) * (wanted - least) / (most - least) if most > least else upper


def read_metrics(address: str) -> Counters:
  """Asks a server for its counters; one on this machine without a proxy.

  Args:
    address: ``HOST:PORT``, as in ``jaxspec serve --metrics``.
  Raises:
    ImportError: without the extra ``serve``.
    ValueError: in one line, where it does not answer with any.
  """
  try:
    from prometheus_client.parser import text_string_to_metric_families
  except ImportError as missing:
    raise ImportError("Counters of a server need: pip install 'jaxspec-decoding[serve]'") from missing
  where = parse_address(address, "--metrics HOST:PORT")
  url = f"http://{where}/metrics"
  proxies = urllib.request.ProxyHandler({} if where.on_this_machine() else None)
  try:
    with urllib.request.build_opener(proxies).open(url, timeout=_TIMEOUT_S) as answer:
      families = list(text_string_to_metric_families(answer.read().decode()))
  except (OSError, ValueError, urllib.error.URLError) as error:
    raise ValueError(
      f"Must have the metrics of a server at {url}, we instead got {getattr(error, 'reason', error)}"
    ) from error
  found: Counter[tuple[str, str]] = Counter()
  for family in families:
    for sample in family.samples:
      method, name = sample.labels.get("method"), sample.name
      if method in _NEVER_WAIT:
        continue
      if method == "Open":
        name = name.replace("_call", "_open", 1)
      found[name, sample.labels.get("le", sample.labels.get("direction", ""))] += sample.value
  return Counters(dict(found))


def server_report(between: Counters) -> dict[str, Any]:
  """Seconds and rows of a server's calls, queue and steps; JSON."""
  found: dict[str, Any] = {
    f"{name}_s": between.histogram(f"jaxspec_{name}_seconds") for name in ("open", "call", "queue", "step")
  }
  rows = between.histogram("jaxspec_rows_per_step")
  return found | {
    "rows_per_step": None if rows is None else rows["mean"],  # whole numbers: nothing lies inside of a bucket
    "resumes": int(between.total("jaxspec_resumes_total")),
    "refused": int(between.total("jaxspec_refused_total")),
    "frame_bytes": {way: int(between.total("jaxspec_frame_bytes_total", way)) for way in ("up", "down")},
  }
