"""Calibration of CIAR: thresholds for target rates of cloud calls, searched by full decodes and validated on other prompts.

1. The scores of a decode with all tokens drawn by the cloud give an initial threshold.
2. Decodes at trial thresholds, with the same keys, until the rate is within the tolerance
   (`jaxspec.evaluation.threshold_search`). With many images, most trials decode a few.
3. One decode of other prompts, with other keys, at the found threshold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jaxspec
from jaxspec.core.state import DecodeResult
from jaxspec.evaluation import threshold_search
from jaxspec.evaluation.threshold_search import Calibrated
from jaxspec.evaluation.threshold_trials import Trials
from jaxspec.intervals.scores import IntervalScore
from jaxspec.methods import Ciar
from jaxspec.run.batches import Batches
from jaxspec.run.job import Job
from jaxspec.run.progress import SILENT, Progress, Silent
from jaxspec.run.run import prepare, run
from jaxspec.sampling import SamplingConfig
from jaxspec.serving.edge.journal import Journal
from jaxspec.serving.server.digests import environment, weights_digest

MOST_TRIALS = 24  # decodes of a search
FEW = 128  # images of most trials, where there are more than twice as many
FIRST_TAU = 1.0  # of the jobs before a threshold is known


class Search(NamedTuple):
  """Settings of the search.

  Attributes:
    rates: target rates in cloud calls per token.
    tolerance: the search ends when a rate is within this distance.
    quantile: quantiles of the scores are the thresholds, without a search.
    samples: images of every prompt; ``rows`` are decoded together.
  """

  rates: Sequence[float]
  tolerance: float
  quantile: bool
  samples: int
  rows: int


class Threshold(NamedTuple):
  """One threshold.

  Attributes:
    rate: the target rate of cloud calls.
    achieved: the rate on the prompts of the search; ``held_out`` on the others.
    interval: 95 % interval of ``held_out`` over images; None for too few.
  """

  rate: float
  tau: float
  achieved: float
  held_out: float
  interval: tuple[float, float] | None


def calibrate(
  job: Job, held_out: Job, search: Search, *, journal: Journal | None = None, progress: Progress = SILENT
) -> dict[str, Any]:
  """Finds a threshold for every rate.

  Args:
    job: a job of method ``ciar`` with the threshold `FIRST_TAU`, and the prompts of the search.
    held_out: the same for other prompts, with another seed.
    journal: stores the trials; an existing one is resumed.
  Returns:
    The calibration for the config of a draft network, as JSON: settings, and ``thresholds`` as fields of `Threshold`.
  Raises:
    ValueError: for a rate that no threshold reaches, or a journal of another calibration.
  """
  jobs = job, held_out
  batches = [one.batches(search.rows, samples=search.samples) for one in jobs]
  progress("Compiling")
  prepare(job, batches[0])  # the threshold is a number of the program, and both parts have batches of one size
  few = FEW if not search.quantile and batches[0].num > 2 * FEW else None
  images = _Images(progress)
  trials = Trials(_decoder(jobs, batches, images), _settings(jobs, search) if journal else {}, journal)
  starts = trials.starts(search.rates, few)

  each = _most_images(search, batches, few)
  progress("Searching")
  thresholds, images.done, images.most = [], 0, len(search.rates) * each
  for number, (rate, start) in enumerate(zip(search.rates, starts), 1):
    images.show(f"Threshold {number} of {len(search.rates)}, {rate:g} cloud calls per token")
    try:
      found = _threshold(trials, rate, start, search, few)
    except ValueError as error:
      raise ValueError(f"Cloud rate {rate:g} with --gamma {job.method.options()['gamma']}: {error}") from error
    again = trials.at(found.tau, 1)
    images.most = images.done + (len(search.rates) - number) * each
    thresholds.append(Threshold(rate, found.tau, found.rate, again.rate, again.interval))
  score = IntervalScore()
  assert isinstance(job.method, Ciar) and isinstance(job.sampling, SamplingConfig)  # as `Ciar` has
  return {
    "score": score.uncertainty.form,
    "scaling": score.scaling,
    **{name: getattr(job.method, name) for name in ("gamma", "target_prefix", "inject", "verify")},
    "cfg_scale": job.sampling.cfg_scale,
    "temperature": job.sampling.temperature,
    "images": batches[0].num,
    "prompts": threshold_search.prompts_hash(job.captions),
    "held_out_prompts": threshold_search.prompts_hash(held_out.captions),
    "policy": "quantile" if search.quantile else "search",
    "thresholds": [threshold._asdict() for threshold in thresholds],
  }


def _threshold(trials: Trials, rate: float, start: float, search: Search, few: int | None) -> Calibrated:
  rate_of = lambda tau: trials.at(tau, 0).rate
  if search.quantile:
    return Calibrated(start, rate_of(start), 1)
  kwargs: dict[str, Any] = dict(start=start, tolerance=search.tolerance, max_trials=MOST_TRIALS)
  if not few:
    return threshold_search.find_threshold(rate_of, rate, **kwargs)
  rate_of_few = lambda tau: trials.at(tau, 0, few).rate
  return threshold_search.find_threshold_by_few(rate_of, rate_of_few, rate, **kwargs)


def _most_images(search: Search, batches: Sequence[Batches], few: int | None) -> int:
  """Largest number of images per threshold."""
  most = (1 if search.quantile else MOST_TRIALS) * batches[0].num + batches[1].num
  if few:  # two searches more among them, and a trial of all between the two
    most += (MOST_TRIALS + threshold_search.MOST_TRIALS_AGAIN) * few + batches[0].num
  return most


class _Images(Silent):
  """Counts the images of all trials; `run` reports those of one decode."""

  def __init__(self, progress: Progress):
    self._progress, self.done, self.most = progress, 0, 0

  def show(self, text: str | None = None) -> None:
    if self.most:  # the decode for the scores has no report
      self._progress.step(self.done, self.most, "image", text, at_most=True)

  def step(
    self, done: int, total: int, unit: str, text: str | None = None, *, at_most: bool = False, since: int = 0
  ) -> None:
    before = self.done
    self.done = before + done
    self.show()
    self.done = before + done * (done == total)


def _decoder(
  jobs: Sequence[Job], batches: Sequence[Batches], images: _Images
) -> Callable[[float, int, int | None], DecodeResult]:
  """``decode`` of `Trials`."""

  def decode(tau: float, part: int, first: int | None) -> DecodeResult:
    rows = batches[part] if first is None else batches[part].first(first)
    return run(jobs[part].but(dataclasses.replace(jobs[part].method, tau=tau)), rows, images).result

  return decode


def _settings(jobs: Sequence[Job], search: Search) -> dict[str, Any]:
  """All settings that determine the result of a trial."""
  job, decoder = jobs[0], jobs[0].decoder
  settings = job.settings() | {"samples": search.samples, "batch": search.rows}
  settings["prompts"], settings["held-out prompts"] = (weights_digest(one.condition).hex() for one in jobs)
  settings["networks"] = [repr(network.config) for network in (decoder.target, decoder.draft) if network is not None]
  settings["weights"] = weights_digest(decoder.parts.params).hex()
  settings["environment"] = environment(), jaxspec.__version__
  return settings
