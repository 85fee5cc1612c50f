"""Tables of the language pair over a link under a bit budget (``sqs``): latency, and traffic of every coding."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
from typing import Any, ClassVar

import numpy as np

from experiments.engine import pass_times, quiet
from experiments.engine.bench import Bench
from experiments.engine.cache import key_of
from experiments.engine.experiment import Experiment, Lab
from experiments.engine.pass_times import PassTimes
from experiments.engine.quality import as_json
from experiments.engine.rows import Row
from jaxspec.core.state import DecodeResult
from jaxspec.run.compression import Rounds, count_rounds
from jaxspec.serving import messages
from jaxspec.serving.wire.timing import Link, break_even_bps, decode_seconds
from jaxspec.serving.wire.traffic import Traffic
from jaxspec.statistics import ratio

# Beginnings of dictionary lines, as in the training of the shipped pair.
PROMPTS = (
  "river:", "copper:", "to walk:", "apple tree:", "music: a", "kindness: the quality of", "castle: a large", "winter:",
  "bread:", "lion:", "to sing:", "physician:", "gold: a", "anger: a strong", "bridge: a structure", "autumn:",
  "violin:", "salt:", "to bend:", "senator:", "storm: a", "courage: the", "island: a land", "monday:",
  "wheat:", "spider:", "to melt:", "lawyer:", "planet: any", "silence: the absence of", "harbor: a sheltered", "midnight:",
)  # fmt: skip
PLAIN = "plain decoding"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinkTable(Experiment):
  """Base of the tables of a language pair.

  No token ends a continuation, so that all have the same length: after the end of a dictionary line another one follows.

  Attributes:
    rows: settings of method ``sqs``, without the budget.
    temperatures: of every row.
    prompts: beginnings; ``seeds`` continuations of each, ``tokens`` long.
    budget: default bits of a round; ``max_drafts`` and ``ell`` are defaults too.
    edge_ms: time of one pass of the draft network; ``cloud_ms`` of one pass of the target, plus ``cloud_token_ms`` for each
      token it reads. With 0 they are measured on this machine.
    busy: largest share of the machine for other processes during the measurement.
  """

  rows: tuple[Row, ...]
  temperatures: tuple[float, ...]
  bundle: str = "wordnet"
  prompts: tuple[str, ...] = PROMPTS
  seeds: int = 2
  tokens: int = 64
  budget: float = 5000.0
  max_drafts: int = 5
  ell: int = 100
  edge_ms: float = 0.0
  cloud_ms: float = 0.0
  cloud_token_ms: float = 0.0
  busy: float = 0.15

  def __post_init__(self):
    super().__post_init__()
    if len(self.prompts) < 2 or self.tokens < 2 or self.max_drafts < 1:
      raise ValueError(
        "Must have at least 2 prompts, 2 tokens and 1 draft a round, we instead got "
        f"{len(self.prompts)}, {self.tokens} and {self.max_drafts}"
      )
    given = self.edge_ms, self.cloud_ms
    if (any(given) or self.cloud_token_ms) and not all(given):
      raise ValueError(f"Must have edge_ms and cloud_ms together, or none to measure them, we instead got {given}")

  def bench(self, lab: Lab) -> Bench:
    """All continuations in one batch."""
    num = len(self.prompts) * self.seeds
    return Bench(lab.pipeline(self.bundle), self.prompts, lab.decodes, batch=num, samples=self.seeds, ends=False)

  def placed(self, entry: Row, temperature: float) -> Row:
    """The row at one temperature, with the settings of the table."""
    common = dict(budget=self.budget, max_drafts=self.max_drafts, ell=self.ell) | dict(entry.options)
    return entry.but(label=entry.name, sampling={"temperature": temperature}, max_len=self.tokens, **common)

  def passes(self, bench: Bench, lab: Lab) -> PassTimes:
    """The given times of a pass, or the cached measurements of this machine.

    Raises:
      ValueError: if they have to be measured while other processes use the machine.
    """
    block = self.max_drafts + 1
    if self.edge_ms:
      return PassTimes(self.edge_ms, self.cloud_ms, self.cloud_token_ms, block, {})
    entry = self.placed(self.rows[0], 1.0)

    def measure() -> dict[str, Any]:
      quiet.check(self.busy)
      watch = quiet.Watch()
      found = pass_times.measure(bench, entry, block=block, max_len=self.tokens)
      if (others := watch.others()) > self.busy:
        raise ValueError(f"Must have a quiet machine, others used {others:.0%} of it while passes were timed")
      return found._asdict()

    name = f"passes-{key_of(bench.weights(entry), {'block': block, 'max_len': self.tokens})}"
    return PassTimes(**lab.clocks.get(name, measure, again=lab.retime))

  def ratio(self, above: np.ndarray, below: np.ndarray) -> list[float | None]:
    """``sum(above) / sum(below)`` over continuations, with its 95 % interval over prompts.

    The seeds of a prompt are one cluster. None three times if the sum below is 0.
    """
    if not np.any(below):
      return [None] * 3
    return list(ratio(above, below, clusters=np.repeat(np.arange(len(self.prompts)), self.seeds)))

  def by_prompt(self, above: np.ndarray, below: np.ndarray) -> list[float]:
    """``sum(above) / sum(below)`` of the continuations of every prompt."""
    above, below = (np.reshape(values, (-1, self.seeds)).sum(axis=1) for values in (above, below))
    return [round(float(value), 6) for value in above / below]

  def about(self, passes: PassTimes) -> dict[str, Any]:
    """Common fields of the documents; JSON."""
    config = {name: getattr(self, name) for name in ("budget", "max_drafts", "ell", "seeds", "tokens")}
    config["budget"] = self.budget if math.isfinite(self.budget) else None
    num = len(self.prompts)
    return {"config": config | passes._asdict(), "num_rows": num * self.seeds, "num_prompts": num}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep(LinkTable):
  """Latency and resampling rate over temperature, by formula bits: the data of figures 2, 4, 5 and 6 of the paper.

  Counted are draft passes, bits on the uplink and target passes (`jaxspec.serving.wire.timing`); downlink and round trip are
  free, as in the paper.

  Attributes:
    subject: label of the reference row, compared prompt by prompt; adaptive controllers are also compared with the fixed
      threshold at which they start.
  """

  temperatures: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
  uplink_mbps: float = 1.0
  subject: str = ""
  kind: ClassVar[str] = "sweep"

  def __post_init__(self):
    super().__post_init__()
    if self.subject not in (labels := [entry.name for entry in self.rows]) or len(labels) < 2:
      raise ValueError(f"Must have a subject and other rows, we instead got {self.subject!r} among {len(labels)} rows")

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    bench = self.bench(lab)
    passes, rows = self.passes(bench, lab), []
    for entry in self.rows:
      placed = {f"{temperature:g}": self.placed(entry, temperature) for temperature in self.temperatures}
      at = {temperature: self.figures(bench.decode(chosen), passes) for temperature, chosen in placed.items()}
      rows.append(as_json(next(iter(placed.values())), bench) | {"label": entry.name, "at": at})
    document = self.about(passes) | {"subject": self.subject, "rows": rows}
    document["config"] |= {"uplink_mbps": self.uplink_mbps}
    return document

  def figures(self, result: DecodeResult, passes: PassTimes) -> dict[str, Any]:
    """Figures of one cell, each with its interval, and the latency of every prompt; JSON."""
    counts, stats = count_rounds(result), result.report.stats
    bits, link = np.asarray(stats.formula_bits, np.float64), Link(self.uplink_mbps * 1e6)
    ms = 1e3 * decode_seconds(passes.compute, link, **passes_of(counts), uplink_bits=bits)
    ratios = {
      "ms_per_token": (ms, counts.tokens), "resampling_rate": (counts.rejected, counts.rounds),
      "bits_per_token": (bits, counts.tokens), "tokens_per_round": (counts.tokens, counts.rounds),
      "drafts_per_round": (counts.drafted, counts.rounds), "mean_support": (stats.support, counts.drafted),
      "dropped": (stats.dropped, counts.tokens), "empty_share": (counts.empty_rounds, counts.rounds),
    }  # fmt: skip
    found = {name: self.ratio(np.asarray(above), np.asarray(below)) for name, (above, below) in ratios.items()}
    if result.report.sparsifier:
      found["final_beta"] = float(np.mean(result.report.sparsifier.value))
    return found | {"by_prompt": self.by_prompt(ms, counts.tokens)}


def passes_of(counts: Rounds) -> dict[str, np.ndarray]:
  """Numbers of passes and bits of a decode for the model of latency."""
  return dict(edge_passes=counts.edge_passes, rounds=counts.rounds, drafted=counts.drafted)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Codecs(LinkTable):
  """Traffic of every coding per token, measured on frames, and its break-even uplink rates.

  Wire bytes are whole frames of rows. The latency counts draft passes, uplink bytes, target passes, and a round trip for
  each exchange (the lazy coding makes two after a rejection). The baseline is plain decoding in the cloud, without uplink
  traffic.
  """

  rtt_ms: float = 0.0
  uplinks_mbps: tuple[float, ...] = (0.5, 2.0, 20.0)
  kind: ClassVar[str] = "codecs"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    bench = self.bench(lab)
    vocab, passes, rows = bench.pipeline.family.space.vocab_size, self.passes(bench, lab), []
    for temperature in self.temperatures:
      for entry in self.rows:
        placed = self.placed(entry, temperature)
        logging.info("temperature %g: %s", temperature, placed.name)
        figures = self.figures(*by_messages(bench, placed), passes)
        rows.append(as_json(placed, bench) | {"temperature": temperature} | figures)
    plain_ms = passes.cloud_ms + passes.cloud_token_ms
    found = {"vocab": vocab, "plain_ms": plain_ms, "rows": rows, "break_even": break_evens(rows, plain_ms)}
    document = self.about(passes) | found
    document["config"] |= {"rtt_ms": self.rtt_ms}
    return document

  def figures(self, result: DecodeResult, traffic: Traffic, passes: PassTimes) -> dict[str, Any]:
    """Figures of one coding, each ratio with its interval; JSON."""
    counts, compute, rtt_s = count_rounds(result), passes.compute, self.rtt_ms / 1e3
    sent, totals = traffic.uplink_bytes * 8.0, passes_of(counts) | {"exchanges": traffic.exchanges}
    seconds = lambda link, bits: decode_seconds(compute, link, uplink_bits=bits, **totals)
    without = seconds(Link(1.0, rtt_s=rtt_s), 0.0 * sent)
    per_token = lambda values: self.ratio(values, counts.tokens)
    times = {f"{rate:g}": seconds(Link(rate * 1e6, rtt_s=rtt_s), sent) * 1e3 for rate in self.uplinks_mbps}
    return {
      "formula_bits_per_token": per_token(np.asarray(result.report.stats.formula_bits, np.float64)),
      "coded_bits_per_token": per_token(traffic.coded_bits),
      "wire_bytes_per_token": per_token(traffic.uplink_bytes),
      "wire_bytes_per_accepted": self.ratio(traffic.uplink_bytes, counts.accepted),
      "tokens_per_round": self.ratio(counts.tokens, counts.rounds),
      "drafts_per_round": self.ratio(counts.drafted, counts.rounds),
      "resampling_rate": self.ratio(counts.rejected, counts.rounds),
      "exchanges_per_round": self.ratio(traffic.exchanges, counts.rounds),
      "ms_per_token": {rate: per_token(values) for rate, values in times.items()},
      # Latency at any rate is the first plus the second over the rate.
      "ms_without_uplink": float(without.sum() / counts.tokens.sum() * 1e3),
      "uplink_bits_per_token": float(sent.sum() / counts.tokens.sum()),
    }


def by_messages(bench: Bench, entry: Row) -> tuple[DecodeResult, Traffic]:
  """Decodes all continuations over an in-process cloud; numpy leaves."""
  job = bench.job(entry)
  return messages.over_local_cloud(job, bench.batches(entry, bench.batch), messages.cloud_of(job))


def break_evens(rows: list[dict[str, Any]], plain_ms: float) -> list[dict[str, Any]]:
  """Rates at which two codings at one temperature, or a coding and plain decoding, have equal latency."""
  found = []
  for temperature in sorted({entry["temperature"] for entry in rows}):
    here = [entry for entry in rows if entry["temperature"] == temperature]
    lines = {entry["label"]: (entry["ms_without_uplink"] / 1e3, entry["uplink_bits_per_token"]) for entry in here}
    lines[PLAIN] = (plain_ms / 1e3, 0.0)
    for first, second in itertools.combinations(lines, 2):
      rate = break_even_bps(lines[first], lines[second])
      if rate is not None:
        above = first if lines[first][0] < lines[second][0] else second
        below = second if above == first else first
        found.append({"temperature": temperature, "mbps": rate / 1e6, "faster_above": above, "faster_below": below})
  return found
