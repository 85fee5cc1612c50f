"""Rows of the ``ciar_*`` tables: gated decodes at matched rates of cloud calls, on whatever devices a bundle holds.

1. A `Row` names a setting without its threshold, and the rate of cloud calls that it is compared at.
2. `GatedBench.matched` finds the threshold: the whole decoder runs on the table's own prompts and keys at trial thresholds
   (the rate is looked at, never the pictures) until calls per token are within `TOLERANCE`. Every trial is kept like any
   decode, so that a search that was stopped goes on where it was.
3. Rows whose device or draft the bundle lacks are left out, with a line that says which.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np

from experiments.method_quality import Decoded, QualityRun, Setting, Workbench
from jaxspec import checkpoints
from jaxspec.bundle import read_bundle
from jaxspec.decode.methods import METHODS
from jaxspec.decode.state import Counters, DecodeResult, Origin
from jaxspec.metrics.calibration import find_threshold, quantile_threshold
from jaxspec.metrics.cloud_calls import CloudCalls, cloud_calls

TOLERANCE = 0.004  # calls per token; specification: half a point
OPEN, CLOSED = 1e30, -1.0  # thresholds that keep everything, and nothing
NUM_TOKENS = 256  # of a picture
RHO = 0.06  # the paper's share of tokens from the cloud
DEVICE_FAMILY = "inter_head"


@dataclasses.dataclass(frozen=True)
class Row:
  """One row of a table.

  Attributes:
    name: in the table.
    setting: the decode; of a gated one without its threshold, where that is to be found.
    rate: cloud calls per token to be matched; None takes the setting as it is.
    device: of a gated row; None is that of the table.
  """

  name: str
  setting: Setting
  rate: float | None = None
  device: str | None = None

  @classmethod
  def gated(cls, name: str, *, rate: float | None = None, device: str | None = None, **options: Any) -> Row:
    """A decode by method ``ciar``."""
    return cls(name, Setting.of("ciar", **options), rate, device)

  @classmethod
  def code(cls, share: float) -> Row:
    """CoDe: ``ceil(share * 256)`` tokens from the cloud, the rest from the device."""
    return cls.gated(f"CoDe({share:g})", tau=OPEN, rho=math.ceil(share * NUM_TOKENS) / NUM_TOKENS)

  @property
  def is_gated(self) -> bool:
    return METHODS[self.setting.method].drafter == "interval"


def with_options(setting: Setting, **options: Any) -> Setting:
  """The setting with some options changed."""
  return dataclasses.replace(setting, options=tuple((dict(setting.options) | options).items()))


@dataclasses.dataclass(frozen=True)
class GatedRun(QualityRun):
  """A table of `Row` s besides plain decoding by two seeds.

  Attributes:
    entries: the rows.
    device: of rows that name none; "" is the bundle's first.
    notes: lines below the table: what was published, what to look for.
  """

  settings: tuple[Setting, ...] = ()
  entries: tuple[Row, ...] = ()
  device: str = ""
  notes: tuple[str, ...] = ()


def devices_of(checkpoint: str) -> list[str]:
  """Names of the devices of a bundle, in its order."""
  return [name for name, family in _drafts_of(checkpoint).items() if family == DEVICE_FAMILY]


def _drafts_of(checkpoint: str) -> dict[str, str]:
  drafts = read_bundle(checkpoint)["drafts"]
  return {name: checkpoints.read_config(Path(checkpoint) / folder)["family"] for name, folder in drafts.items()}


def placed(run: GatedRun, row: Row) -> tuple[Setting | None, str | None]:
  """The row's setting with its device, or None and a line that says what the bundle lacks."""
  drafts = _drafts_of(run.checkpoint)
  if not row.is_gated:
    family, wanted = METHODS[row.setting.method].draft_family, dict(row.setting.options).get("draft")
    if family is None or (wanted in drafts if wanted else family in drafts.values()):
      return row.setting, None
    return None, f"left out {row.name}: {run.checkpoint} has no {wanted or family}"
  devices = devices_of(run.checkpoint)
  device = row.device or run.device or next(iter(devices), "")
  if device not in devices:
    return None, f"left out {row.name}: {run.checkpoint} has no device {device}".rstrip()
  return with_options(row.setting, draft=device), None


def outcome_of(decoded: Decoded) -> DecodeResult:
  """What was kept of a decode, as a result; every row has all its tokens."""
  counters = Counters(**decoded.counters)
  lengths = np.full(len(decoded.tokens), decoded.tokens.shape[1])
  return DecodeResult(decoded.tokens, lengths, counters, decoded.origin == Origin.DRAFT, decoded.origin, decoded.origin * 0)


class GatedBench(Workbench):
  """A `Workbench` that finds thresholds."""

  def calls(self, setting: Setting) -> CloudCalls:
    """How often a setting asks the cloud."""
    return cloud_calls(outcome_of(self.decode(setting)))

  def matched(self, setting: Setting, rate: float) -> Setting:
    """The gated setting with the threshold that gives the rate, to within `TOLERANCE`.

    Raises:
      ValueError: where no threshold does.
    """
    at = lambda tau: with_options(setting, tau=_rounded(tau))
    # Nothing is kept: the scores of every place that the device draws, under verified contexts.
    scores = self.decode(at(CLOSED)).scores
    found = find_threshold(
      lambda tau: self.calls(at(tau)).call_rate, rate, start=max(quantile_threshold(scores, rate), 1e-9),
      tolerance=TOLERANCE, max_trials=16,
    )  # fmt: skip
    logging.info("tau %.6g gives %.4f cloud calls per token: %s", found.tau, found.rate, setting.label)
    return at(found.tau)


def _rounded(tau: float) -> float:
  """Six digits: what is printed is what was decoded."""
  return float(f"{tau:.6g}") if math.isfinite(tau) else tau
