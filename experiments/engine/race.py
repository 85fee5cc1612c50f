"""Tables of wall clock: all rows draw the same images or texts in turns, in one process (``scenes:speed``,
``scenes_ciar:speed``, ``cspd:speed_*``).

Documents have the seconds and calls of every turn; ratios per turn are computed when the table is printed.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from experiments.engine import pass_times, schedules, statistics
from experiments.engine.bench import Bench
from experiments.engine.classes import every_class, figures
from experiments.engine.experiment import Experiment, Lab
from experiments.engine.quality import as_json
from experiments.engine.rows import Row, row
from experiments.engine.scene_images import Scenes
from jaxspec.core.state import DecodeResult, Origin

# Captions of scenes.
CAPTIONS = (
  "a cat", "two stars", "a red heart on a blue background", "a dog and a tree", "a house left of a car", "a small moon",
  "three keys", "a blue square and a red circle",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Heat:
  """The rows that alternate at one batch size."""

  batch: int
  turns: int
  rows: tuple[Row, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Race(Experiment):
  """A race; the first row of every heat is the reference.

  Attributes:
    heats: batch sizes with their turns and rows.
    bundle: the networks.
    layout: ``calls``, or ``cloud`` for rates of cloud calls and floors.
    turns: replaces those of the heats; 0 keeps them.
    texts: the prompts, in order.
    against: a row that the others are also compared with.
    scorer: captions on which the correct images of every row are counted; None counts none.
  """

  heats: tuple[Heat, ...]
  bundle: str = "scenes"
  layout: str = "calls"
  turns: int = 0
  texts: tuple[str, ...] = CAPTIONS
  against: str = ""
  scorer: Scenes | None = None
  kind: ClassVar[str] = "race"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    pipeline, rows, left_out = lab.pipeline(self.bundle), [], []
    for heat in self.heats:
      turns = self.turns or heat.turns
      bench = Bench(pipeline, self.prompts(lab, heat.batch * turns), lab.decodes, batch=heat.batch)
      entered = []
      for entry in heat.rows:
        try:
          _ = bench.decoder(entry).parts
          entered.append(entry)
        except ValueError as error:
          left_out.append(f"Left out {entry.name}: {error}.")
          logging.warning(left_out[-1])
      entered += self.rivals(bench, entered, heat)
      rows += self.finish(bench, heat, entered, *bench.race(entered, turns=turns, batch=heat.batch))
    right = {} if self.scorer is None else self.correct(lab, {row["label"] for row in rows})
    rows = [entered | ({"right": right[entered["label"]]} if right else {}) for entered in rows]
    return {
      "layout": self.layout, "base": self.heats[0].rows[0].name, "source": pipeline.name,
      "num_tokens": pipeline.family.space.num_tokens, "noun": pipeline.family.noun,
      "ends": pipeline.family.end_token is not None, "rows": rows,
      "left_out": list(dict.fromkeys(left_out)),
    } | {
      name: value
      for name, value in (("against", self.against), ("captions", self.scorer and dataclasses.asdict(self.scorer)))
      if value
    }  # fmt: skip

  def correct(self, lab: Lab, labels: set[str]) -> dict[str, dict[str, float]]:
    """Shares of correct images of the rows with these labels, with Wilson's intervals; JSON."""
    assert self.scorer is not None
    bench = Bench(lab.pipeline(self.bundle), self.scorer.texts(), lab.decodes, batch=max(heat.batch for heat in self.heats))
    judge = self.scorer.judge(bench)
    rows = {row.name: row for heat in self.heats for row in heat.rows if row.name in labels}
    found = {name: judge.hits(bench.decode(row)) for name, row in rows.items()}
    return {name: statistics.wilson_of(float(hits.mean()), len(hits))._asdict() for name, hits in found.items()}

  def prompts(self, lab: Lab, num: int) -> list[Any]:
    """Prompts of the turns, different ones if there are enough."""
    return list(np.resize(self.texts, num))

  def rivals(self, bench: Bench, rows: list[Row], heat: Heat) -> list[Row]:
    """Rows that depend on the others."""
    return []

  def finish(
    self, bench: Bench, heat: Heat, rows: list[Row], seconds: list[list[float]], results: list[list[DecodeResult]]
  ) -> list[dict[str, Any]]:
    """The rows of a heat; JSON."""
    found = []
    for entry, taken, drawn in zip(rows, seconds, results):
      calls, passes = (
        [number for result in drawn for number in np.asarray(getattr(result.counters, name)).tolist()]
        for name in ("target_calls", "draft_calls")
      )
      entered = {"batch": heat.batch, "seconds": taken, "target_calls": calls, "draft_calls": passes}
      job = bench.job(entry)
      entered["bytes"] = job.decoder.decode_bytes(heat.batch, job.condition, max_len=job.max_len)
      if bench.pipeline.family.space.num_tokens is None:  # for texts, and for chains with a variable number of steps
        entered["lengths"] = [length for result in drawn for length in np.asarray(result.lengths).tolist()]
      if self.layout == "cloud":
        entered["cloud_tokens"] = [number for result in drawn for number in cloud_tokens(result).tolist()]
      found.append(as_json(entry, bench) | entered)
    if self.layout != "cloud":
      return found
    exchanges = {
      entry.name: Exchange.of(bench, entry, heat.batch, drawn)
      for entry, drawn, counted in zip(rows, results, found)
      if entry.method == "ciar" and any(counted["target_calls"])
    }
    return with_floors(found, pass_times.by_width(bench, rows[0], heat.batch), exchanges)


class Exchange(NamedTuple):
  """What the floors of a row of CIAR need.

  Attributes:
    passes: its passes, timed alone.
    turns: of every turn, the rounds of every row.
    window: most tokens of a window.
  """

  passes: pass_times.ExchangePasses
  turns: list[list[list[schedules.Round]]]
  window: int

  @classmethod
  def of(cls, bench: Bench, row: Row, batch: int, results: list[DecodeResult]) -> Exchange:
    """Times the passes and reads the rounds of a row."""
    drafter = bench.decoder(row).parts.drafter
    rounds = lambda origin: schedules.rounds_of(origin, window=drafter.most_drafts, max_run=drafter.max_run)
    turns = [[rounds(origin) for origin in np.asarray(result.origin)] for result in results]
    return cls(pass_times.of_exchange(bench, row, batch), turns, drafter.most_drafts)


def cloud_tokens(result: DecodeResult) -> np.ndarray:
  """Tokens ``[B]`` that the cloud must read: those before its last own token, each once, and rejected drafts."""
  origin = np.asarray(result.origin)
  is_own = np.isin(origin, (Origin.FIRST, Origin.REPLACED, Origin.BONUS))
  last = np.where(is_own, np.arange(origin.shape[1]), 0).max(axis=1)
  return last + np.asarray(result.counters.drafted) - np.asarray(result.counters.accepted)


def with_floors(
  rows: list[dict[str, Any]], pass_s: dict[int, float], exchanges: dict[str, Exchange]
) -> list[dict[str, Any]]:
  """The rows of a batch size, those of CIAR with their floors, by medians.

  The first row is plain decoding. Each row of CIAR is named ``DRAFT, ...``, and "DRAFT alone" makes no calls.

  An edge pass costs its time alone, and the cloud

  - ``floor``: one plain step for each call, for any number of tokens;
  - ``token_floor``: for each call its share of a pass in which all rows call, without padding, over the mean number of
    tokens of a call;
  - ``pass_floor``: its passes alone, under the fastest rule of waiting (`schedules.fastest`).

  Args:
    pass_s: seconds of a pass over each number of tokens of every row of the batch.
    exchanges: of each row of CIAR, by its label.
  """
  plain, named = rows[0], {row["label"]: row for row in rows}
  per_call = statistics.median(plain["seconds"]) / statistics.mean(plain["target_calls"])
  found = [plain]
  for entry in rows[1:]:
    if entry["label"] not in exchanges:
      found.append(entry)
      continue
    alone = named[f"{entry['label'].split(',')[0]} alone"]
    per_pass = statistics.median(alone["seconds"]) / statistics.mean(alone["draft_calls"])
    edge, calls = per_pass * statistics.mean(entry["draft_calls"]), statistics.mean(entry["target_calls"])
    of_call = np.interp(statistics.mean(entry["cloud_tokens"]) / calls, list(pass_s), list(pass_s.values()))
    whole, own = statistics.median(plain["seconds"]), exchanges[entry["label"]]
    floors = {"floor": whole / (edge + per_call * calls), "token_floor": whole / (edge + float(of_call) * calls)}
    share, seconds = schedules.fastest(own.turns, own.passes, window=own.window)
    own_s = {"edge": own.passes.edge_s, "cloud": [each._asdict() for each in own.passes.cloud]}
    found.append(entry | floors | {"pass_floor": whole / seconds, "pass_share": share, "pass_s": own_s})
  return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContinuousRace(Race):
  """A race of continuous speculative decoding; the first rows of every heat are the target and the draft alone.

  MAR also races its own parallel decoding, with a quarter as many iterations as tokens, and against every speculative row
  with as many iterations as that row made target calls in its first turn. "Formula" is ``(1 - a^(g+1)) / ((1 - a)(g c +
  1))`` with the measured acceptance a and the cost c of a draft over that of a target token, both alone, and ``g / (g c +
  1)`` of whole blocks. It assumes that a wide pass is free, which is wrong on a CPU, and for MAR, whose pass over a window
  is gamma + 1 passes unless it is a block.
  """

  def prompts(self, lab: Lab, num: int) -> list[Any]:
    """See `Race.prompts`."""
    return every_class(lab.pipeline(self.bundle).target.config.num_classes, num)

  def rivals(self, bench: Bench, rows: list[Row], heat: Heat) -> list[Row]:
    """See `Race.rivals`; one decode of each row counts its calls."""
    if not is_masked(bench):
      return []
    length = bench.pipeline.family.space.num_tokens
    counts = {length // 4: parallel(length // 4)}
    for entry in speculative(rows):
      calls = min(rival_calls(bench, entry, heat.batch), length)
      counts.setdefault(calls, parallel(calls))
    return list(counts.values())

  def finish(self, bench, heat, rows, seconds, results) -> list[dict[str, Any]]:
    """See `Race.finish`."""
    found = super().finish(bench, heat, rows, seconds, results)
    target, draft = found[:2]
    cost = statistics.ratio(draft["seconds"], target["seconds"]).median
    length = bench.pipeline.family.space.num_tokens
    for entry, document, drawn in zip(rows, found, results):
      # Rows of a batch wait for the slowest, whose calls determine the cost of the batch.
      document["target_calls"] = [int(np.max(result.counters.target_calls)) for result in drawn]
      if is_masked(bench):
        document["parallel"] = parallel(length // 4).name
      if entry not in speculative(rows):
        continue
      whole = jax.tree.map(lambda *leaves: np.concatenate(leaves), *drawn)
      counted, gamma = figures(whole, whole.origin), dict(entry.options)["gamma"]
      predicted = bench.decoder(entry).method.expected(counted["alpha"]["value"], length).tokens / (gamma * cost + 1)
      document |= {"figures": counted, "draft_cost": cost, "predicted": predicted}
      if is_masked(bench):
        document["rival"] = parallel(min(document["target_calls"][0], length)).name
    return found


def speculative(rows: list[Row]) -> list[Row]:
  return [entry for entry in rows if entry.method == "cspd"]


def parallel(num_iter: int) -> Row:
  """MAR's own decoding in ``num_iter`` iterations."""
  return row("parallel", f"parallel {num_iter}", num_iter=num_iter)


def is_masked(bench: Bench) -> bool:
  return bench.pipeline.family.target.family_name == "mar"


def rival_calls(bench: Bench, entry: Row, batch: int) -> int:
  """Target calls of the first turn of a row."""
  _, ((result,),) = bench.race([entry], turns=1, batch=batch)
  return int(np.max(result.counters.target_calls))
