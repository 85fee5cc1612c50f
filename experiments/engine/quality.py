"""Tables of images of prompts: target calls, wall clock and figures of a judge for every row.

The judge is a field of the table (`experiments.engine.scoring`); that of scenes reads the images. Before the rows are drawn,
a table reports its expected time and power (`Outlook`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from experiments.engine import claims, forced
from experiments.engine.bench import Bench
from experiments.engine.cache import key_of
from experiments.engine.experiment import Experiment, Lab
from experiments.engine.lifted import Lift
from experiments.engine.outlook import Outlook, pilot_of
from experiments.engine.rows import CLOSED, PLAIN, PLAIN_AGAIN, Pairs, Row
from experiments.engine.scene_images import Scenes
from experiments.engine.scoring import Judge, Scorer
from experiments.engine.statistics import RATE_ERROR
from jaxspec import statistics
from jaxspec.core.state import DecodeResult
from jaxspec.evaluation.audit import summarize_audit
from jaxspec.methods.ciar import CALIBRATED_SCORE, calibrated_tau
from jaxspec.rules.audited import TokenAudit
from jaxspec.run.cloud_calls import cloud_calls

LAYOUTS = "calls", "cloud"
BASE_ROWS = (PLAIN.but(label=claims.PLAIN), PLAIN_AGAIN.but(label=f"{claims.PLAIN}, another seed"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quality(Experiment):
  """A table of rows that all draw the same prompts with the same keys.

  Attributes:
    rows: besides plain decoding with two seeds, which every table has.
    scorer: prompts and judge.
    layout: columns of ``calls`` (of the target) or of the ``cloud``.
    batch: images decoded together.
    timings: pairs of timed images, by plain decoding and by the row; 0 times nothing.
    bundle: the networks.
    sampling: of all rows including plain decoding, over the bundle's defaults.
    draft: default edge network of rows of CIAR; "" is the bundle's first.
    subject: label of the reference row of the comparisons, unless a row names another one (`Row.against`); "" is plain
      decoding.
    wanted: smallest difference of shares of correct images that the table should detect.
    margin: margin of equivalence of these shares; 0 makes no claim of equivalence.
    first_search: images of the coarse search for a threshold, see `Bench.matched`; 0 is all.
    stored_thresholds: take thresholds from the draft's checkpoint (``jaxspec calibrate``), without a search.
    lift: the lifted world of the table; None is the world of the bundle.
  """

  rows: tuple[Row, ...]
  scorer: Scorer = Scenes()
  layout: str = "calls"
  batch: int = 8
  timings: int = 5
  bundle: str = "scenes"
  sampling: Pairs = ()
  draft: str = ""
  subject: str = ""
  wanted: float = 0.05
  margin: float = 0.0
  first_search: int = 0
  stored_thresholds: bool = False
  lift: Lift | None = None

  def __post_init__(self):
    if self.layout not in LAYOUTS:
      raise ValueError(f"Must have a layout in {', '.join(LAYOUTS)}, we instead got {self.layout!r}")
    if self.wanted <= 0 or self.margin < 0 or self.batch < 1 or self.timings < 0:
      given = f"wanted {self.wanted}, margin {self.margin}, batch {self.batch} and timings {self.timings}"
      raise ValueError(f"Must have wanted above 0, margin and timings from 0 and batch from 1, we instead got {given}")
    labels = [row.name for row in (*BASE_ROWS, *self.rows)]
    if self.subject and self.subject not in labels:
      raise ValueError(f"Must have a subject in {', '.join(labels)}, we instead got {self.subject!r}")

  @property
  def kind(self) -> str:  # type: ignore[override]
    """Kind of the documents: that of the scorer."""
    return self.scorer.kind

  def bench(self, lab: Lab) -> Bench:
    """The prompts of the table."""
    pipeline = lab.pipeline(self.bundle) if self.lift is None else lab.lifted(self.bundle, self.lift)
    return Bench(pipeline, self.scorer.texts(), lab.decodes, batch=self.batch, sampling=self.sampling)

  def outlook(self, lab: Lab) -> Outlook:
    """Expected time and power of the rows; decodes one batch of every incomplete row."""
    bench = self.bench(lab)
    return self._outlook(lab, bench, self.scorer.judge(bench))

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    bench = self.bench(lab)
    judge, measured, left_out = self.scorer.judge(bench), [], []
    outlook = self._outlook(lab, bench, judge)
    for line in outlook.lines():
      logging.info(line)
    for row in self.each_placed((*BASE_ROWS, *self.rows), bench, left_out):
      wall = self.wall(row, bench, lab) if self.timings and row.method != "ar" else None
      result = bench.decode(row)
      found = merged(counted(row, bench, result), judge.figures(row, result)) | {"wall": wall}
      if self.layout == "cloud" and row.method == "ciar":
        found["cloud"]["likeliest"] = forced.likeliest_accepted(bench, row, result)
      if self.lift is not None:
        found["grain_step"] = self.lift.mean_step(bench.pipeline.target.params.twins, np.asarray(result.tokens))
      is_searched = row.rate is not None and not self.stored_thresholds
      if is_searched and abs(found["cloud"]["call_rate"] - row.rate) > RATE_ERROR:
        left_out.append(f"Not matched {row.name}: {found['cloud']['call_rate']:.4f} is the nearest rate of a threshold.")
      measured.append(found)
    judge.compare(measured, self.subject or claims.PLAIN)
    return {
      "layout": self.layout, "subject": self.subject, "batch": self.batch,
      "num_tokens": bench.pipeline.family.space.num_tokens,
      "sampling": dict(self.sampling), "margin": self.margin, "outlook": outlook.document(), **judge.about(),
      "rows": measured, "left_out": left_out,
    } | ({} if self.lift is None else {"lift": dataclasses.asdict(self.lift)})  # fmt: skip

  def drafting(self, row: Row, bench: Bench) -> Row:
    """The row with its draft, and with the stored threshold of its rate.

    Raises:
      ValueError: for a network that is not in the bundle, or one without thresholds for the row.
    """
    if row.method == "ciar" and self.draft and row.draft is None:
      row = row.but(label=row.name, draft=self.draft)
    method = (row if row.rate is None else row.but(label=row.name, tau=CLOSED)).value(bench.pipeline)
    if row.rate is None or not self.stored_thresholds:
      return row
    if method.score != CALIBRATED_SCORE:
      raise ValueError(f"Must have the score {CALIBRATED_SCORE} of stored thresholds, we instead got {method.score}")
    calibration = bench.pipeline.drafts[method.draft].meta.get("calibration") or {}
    for name in ("gamma", "target_prefix", "inject", "verify"):
      if (stored := calibration.get(name)) != (ours := getattr(method, name)):
        raise ValueError(f"Must have thresholds for {name} {ours}, we instead got some for {stored}")
    return row.but(label=row.name, tau=calibrated_tau(calibration, row.rate, method.target_prefix))

  def placed(self, row: Row, bench: Bench) -> Row:
    """The row with its draft, and with the threshold of its rate.

    Raises:
      ValueError: for a network that is not in the bundle, or a rate that no threshold gives.
    """
    row = self.drafting(row, bench)
    if row.rate is None or self.stored_thresholds:
      return row
    return bench.matched(row, self.first_search or None).but(rate=row.rate)

  def each_placed(self, rows: Iterable[Row], bench: Bench, left_out: list[str]) -> Iterator[Row]:
    """The rows from `placed`; ``left_out`` gets a line for each failure."""
    for row in rows:
      try:
        found = self.placed(row, bench)
      except ValueError as error:
        left_out.append(f"Left out {row.name}: {error}.")
        logging.warning(left_out[-1])
        continue
      yield found

  def wall(self, row: Row, bench: Bench, lab: Lab) -> dict[str, list[float]]:
    """Wall seconds of single images, ``plain`` and ``own`` in turns; cached."""
    name = f"wall-{key_of(bench.weights(row), bench.settings(row) | {'prompts': bench.prompts, 'turns': self.timings})}"

    def measure() -> dict[str, list[float]]:
      (plain, own), _ = bench.race([PLAIN, row.but(audit=False)], turns=self.timings)
      return {"plain": plain, "own": own}

    return lab.clocks.get(name, measure, again=lab.retime)

  def _outlook(self, lab: Lab, bench: Bench, judge: Judge) -> Outlook:
    pilot, rows = pilot_of(bench, judge, BASE_ROWS), []
    for row in (*BASE_ROWS, *self.rows):
      with contextlib.suppress(ValueError):  # `measure` reports rows without networks
        rows.append(self.drafting(row, bench))
    search = 0 if self.stored_thresholds else min(self.first_search or len(bench.prompts), len(bench.prompts))
    names = claims.METRICS[self.kind]
    comparisons = len(claims.compared([row.name for row in rows], self.subject or claims.PLAIN)) * len(names)
    return Outlook.of(
      bench, rows, pilot, search_images=search, seconds_an_image=self.scorer.seconds_an_image, comparisons=comparisons,
      wanted=self.wanted, margin=self.margin,
    )  # fmt: skip


def merged(counts: dict[str, Any], judged: dict[str, Any]) -> dict[str, Any]:
  """Counts and scores of a row, with the figures of single images merged."""
  return counts | judged | {"per_image": counts["per_image"] | judged["per_image"]}


def counted(row: Row, bench: Bench, result: DecodeResult) -> dict[str, Any]:
  """Counts of a decode, independent of the judge; JSON."""
  calls = result.counters.target_calls
  return as_json(row, bench) | {
    "images": len(calls),
    "counters": {name: int(getattr(result.counters, name).sum()) for name in result.counters.__dataclass_fields__},
    "calls_per_image": float(calls.mean()),
    "step_reduction": statistics.ratio(result.lengths, calls)._asdict() if calls.any() else None,
    "cloud": cloud_shares(result),
    "audit": audit_figures(result) if row.audit else None,
    "per_image": {"target_calls": calls.tolist()},
  }


def audit_figures(result: DecodeResult) -> dict[str, Any]:
  """The exact bias of the tokens, mean over tokens and images; JSON."""
  found = summarize_audit(TokenAudit(*result.metrics), result.lengths, result.counters.target_calls)
  return {name: getattr(found, name)._asdict() for name in ("tv", "kl", "alpha", "alpha_sd")}


def cloud_shares(result: DecodeResult) -> dict[str, Any]:
  """Rate of cloud calls, and the decisions of each side; JSON."""
  found = cloud_calls(result)
  names = ("call_rate", "local", "accepted", "by_cloud")
  return {name: getattr(found, name) for name in names} | {"interval": list(found.interval or (None, None))}


def as_json(row: Row, bench: Bench) -> dict[str, Any]:
  """Fields of a row in a document besides its figures."""
  settings = bench.settings(row)
  about = {name: settings[name] for name in ("method", "options", "sampling", "draft", "alone", "seed", "matmul_precision")}
  named = {name: value for name in ("setting", "against") if (value := getattr(row, name))}
  return {"label": row.name, "wanted_rate": row.rate, **about} | named
