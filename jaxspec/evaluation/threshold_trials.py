"""The trials of a calibration: every decode at a threshold is made once, and optionally stored in a journal.

The first record of a journal has the settings of its trials, each other one the result of a trial. All are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxspec.core.state import DecodeResult
from jaxspec.evaluation.threshold_search import quantile_threshold
from jaxspec.run.cloud_calls import cloud_calls
from jaxspec.serving.edge.journal import Journal


class Trial(NamedTuple):
  """The rate of cloud calls at a threshold.

  Attributes:
    rate: cloud calls per token.
    interval: its 95 % interval over rows; None for too few rows (`jaxspec.run.cloud_calls`).
  """

  rate: float
  interval: tuple[float, float] | None


class Trials:
  """Cached trials.

  Args:
    decode: the rows of a part at a threshold, ``(tau, part, first) -> DecodeResult``; for the ``first`` rows, all for None.
    settings: all settings that determine the result of a trial, by name; JSON.
    journal: stores the trials of earlier runs and of this one.
  Raises:
    ValueError: for a journal of a calibration with other settings, which it names, or another file.
  """

  def __init__(
    self, decode: Callable[[float, int, int | None], DecodeResult], settings: dict[str, Any], journal: Journal | None = None
  ):
    self._decode, self._journal, self._done = decode, journal, {}
    if journal is None:
      return
    if not journal.records:
      journal.append(_packed(settings))
    first, *trials = map(_unpacked, journal.records)
    settings = _unpacked(_packed(settings))  # in the form of a journal, lists for tuples
    changed = sorted(name for name in settings if first.get(name) != settings[name])
    if changed:
      raise ValueError(f"Must have the journal of the same calibration, we instead got one with other {', '.join(changed)}")
    self._done = {tuple(trial["name"]): trial["value"] for trial in trials}

  def starts(self, rates: Sequence[float], first: int | None) -> list[float]:
    """Initial thresholds for each rate: quantiles of all scores under the cloud's own contexts.

    Args:
      first: number of decoded rows, all for None.
    """

    def quantiles() -> list[float]:
      scores = self._decode(0.0, 0, first).report.scores  # all tokens from the cloud
      return [max(quantile_threshold(scores, rate), 1e-12) for rate in rates]

    return self._once(("starts", *rates, first), quantiles)

  def at(self, tau: float, part: int, first: int | None = None) -> Trial:
    """The result of a threshold on the rows of a part."""

    def trial() -> list[Any]:
      calls = cloud_calls(self._decode(tau, part, first))
      return [calls.call_rate, calls.interval and list(calls.interval)]

    rate, interval = self._once(("trial", tau, part, first), trial)
    return Trial(rate, interval and tuple(interval))

  def _once(self, name: tuple, make: Callable[[], Any]) -> Any:
    if name not in self._done:
      self._done[name] = make()
      if self._journal is not None:
        self._journal.append(_packed({"name": name, "value": self._done[name]}))
    return self._done[name]


def _packed(value: Any) -> bytes:
  return json.dumps(value, sort_keys=True).encode()


def _unpacked(record: bytes) -> dict[str, Any]:
  try:
    value = json.loads(record)
  except ValueError:
    value = None
  if not isinstance(value, dict):
    raise ValueError("Must have the journal of a calibration, we instead got one of something else")
  return value
