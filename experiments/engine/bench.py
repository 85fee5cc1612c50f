"""The bench of all tables: decodes prompts row by row, caches the results, and times rows in turns.

1. Every row of a table draws the same prompts with the same keys: image s of prompt p has the key
   ``fold_in(fold_in(key(seed), p), s)``, in any batch. Differences between rows are therefore paired.
2. `Bench.decode` caches every finished batch (`experiments.engine.cache`), so that killed runs resume and tables share rows.
3. `Bench.race` times rows in one process, A B A B, so that a ratio is of two runs of one turn and a drift of the machine
   cancels.
4. Rows that differ in traced numbers only (thresholds, temperatures) share one compiled program (`jaxspec.run.programs`).
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from experiments.engine.cache import Cache, key_of, tree_digest
from experiments.engine.rows import CLOSED, Pairs, Row
from jaxspec.core.network import Network
from jaxspec.core.options import values_of
from jaxspec.core.state import DecodeResult
from jaxspec.core.types import PyTree
from jaxspec.evaluation.threshold_search import find_threshold, find_threshold_by_few, quantile_threshold
from jaxspec.run import measure
from jaxspec.run.batches import Batches, split
from jaxspec.run.cloud_calls import CloudCalls, cloud_calls
from jaxspec.run.decoder import Decoder
from jaxspec.run.job import Job
from jaxspec.run.pipeline import Pipeline
from jaxspec.run.run import prepare

TOLERANCE = 0.004  # tolerance of a matched rate, in calls per token


def make_batches(condition: PyTree, *, samples: int, seed: int, rows: int) -> Batches:
  """``samples`` images of every prompt in batches of ``rows``; see the module docstring for their keys."""
  num_prompts = jax.tree.leaves(condition)[0].shape[0]
  prompt, sample = np.divmod(np.arange(num_prompts * samples), samples)
  one_key = lambda p, s: jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), p), s)
  key_data = np.asarray(jax.jit(lambda p, s: jax.random.key_data(jax.vmap(one_key)(p, s)))(prompt, sample))
  return split(condition, key_data, prompt, sample, rows=rows)


class Bench:
  """A pipeline and its prompts, loaded once for all rows.

  Attributes:
    pipeline: the networks.
    prompts: as `Pipeline.encode` takes them.
    samples: images of every prompt.
    batch: images decoded together.
    sampling: settings of all rows, between the bundle's defaults and those of a row.
    ends: whether the family's end token ends a row.
  """

  def __init__(
    self, pipeline: Pipeline, prompts: Sequence[str], cache: Cache, *, batch: int, samples: int = 1, sampling: Pairs = (),
    ends: bool = True,
  ):  # fmt: skip
    self.pipeline, self.prompts, self.batch, self.samples, self.ends = pipeline, list(prompts), batch, samples, ends
    self.sampling = dict(sampling)
    encoded = pipeline.encode(self.prompts)
    self.condition = jax.device_get(encoded.condition)
    self.encoded = encoded._replace(condition=self.condition)
    self._cache = cache

  def of(self, row: Row) -> Pipeline:
    """The networks of a row: the pipeline, or its draft alone."""
    return self._alone(row.draft or next(iter(self.pipeline.drafts))) if row.alone else self.pipeline

  @functools.cache
  def _alone(self, draft: str) -> Pipeline:
    return self.pipeline.alone(draft)

  @functools.cache
  def job(self, row: Row) -> Job:
    """The job of a row, for all prompts."""
    pipeline = self.of(row)
    settings = self.sampling | dict(row.sampling)
    method = row.value(pipeline)
    return pipeline.job(self.encoded, method=method, audit=row.audit, max_len=row.max_len, ends=self.ends, **settings)

  def decoder(self, row: Row) -> Decoder:
    """The decoder of a row."""
    return self.job(row).decoder

  def decode(self, row: Row, first: int | None = None) -> DecodeResult:
    """Results of all images, or of the ``first`` ones; numpy leaves ``[images, ...]``."""
    batches = self.batches(row, self.batch)
    num = batches.num if first is None else min(first, batches.num)
    names = self._names(row)[: -(-num // self.batch)]
    if not all(name in self._cache for name in names):
      logging.info("decoding %d images: %s", num, row.name)
    run = functools.cache(lambda: prepare(self.job(row), batches))  # compiled only if a batch is missing
    make = lambda index: jax.device_get(run()(batches.key_data[index], batches.condition[index]))
    parts = [self._cache.get(name, functools.partial(make, index)) for index, name in enumerate(names)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:num], *parts)

  def seconds_a_batch(self, row: Row) -> float:
    """Seconds of a batch of a row; 0 if all are cached. Decodes and caches a missing batch for the measurement."""
    batches, names = self.batches(row, self.batch), self._names(row)
    missing = [index for index, name in enumerate(names) if name not in self._cache]

    def timed() -> float:
      logging.info("compiling and timing: %s", row.name)
      run, index = prepare(self.job(row), batches), missing[0]
      result, seconds = measure.timed(lambda: run(batches.key_data[index], batches.condition[index]))
      self._cache.get(names[index], lambda: jax.device_get(result))
      return seconds

    return self._cache.get(f"seconds-{names[0]}", timed) if missing else 0.0

  def num_missing(self, row: Row) -> int:
    """Number of missing batches of a row."""
    return sum(name not in self._cache for name in self._names(row))

  def kept(self, name: str, make: Callable[[], Any]) -> Any:
    """A cached value computed from decodes; ``name`` includes all of its inputs."""
    return self._cache.get(name, make)

  def is_decoded(self, row: Row) -> bool:
    """Whether `decode` only reads."""
    return all(name in self._cache for name in self._names(row))

  def race(self, rows: Sequence[Row], *, turns: int, batch: int = 1) -> tuple[list[list[float]], list[list[DecodeResult]]]:
    """Wall seconds and results of every row, turn by turn; the first run of each, which compiles, is not counted.

    Consecutive turns draw different prompts, so that timings are not of near copies of one image.
    """
    runs = []
    for row in rows:
      logging.info("batch %d: compiling %s", batch, row.name)
      batches = self.batches(row, batch)
      run, step = prepare(self.job(row), batches), max(len(batches.key_data) // turns, 1)
      at = [turn * step % len(batches.key_data) for turn in range(turns)]
      runs.append([functools.partial(run, batches.key_data[i], batches.condition[i]) for i in at])
    for calls in runs:
      jax.block_until_ready(calls[0]())
    seconds, results = [[] for _ in rows], [[] for _ in rows]
    for turn in range(turns):
      logging.info("batch %d: turn %d of %d", batch, turn + 1, turns)
      for calls, taken, found in zip(runs, seconds, results):
        result, wall = measure.timed(calls[turn])
        taken.append(wall)
        found.append(jax.device_get(result))
    return seconds, results

  def calls(self, row: Row, first: int | None = None) -> CloudCalls:
    """Rate of target calls of a row, over all images or the ``first`` ones."""
    return cloud_calls(self.decode(row, first))

  def matched(self, row: Row, first: int | None = None) -> Row:
    """A row of CIAR with the threshold that gives its ``rate`` on these prompts and keys, within `TOLERANCE`.

    The search uses rates only, not images. Every trial is cached like any decode.

    Args:
      first: images of a first, coarse search; a trial of all images is expensive.
    Raises:
      ValueError: if no threshold gives the rate.
    """
    at = lambda tau: row.but(label=row.name, tau=_six_digits(tau), rate=None)
    # Nothing is accepted locally: the scores of all positions of the edge, in verified contexts.
    scores = self.decode(at(CLOSED), first).report.scores
    start = max(quantile_threshold(scores, row.rate), 1e-9)
    rate_of = lambda tau: self.calls(at(tau)).call_rate
    settings = dict(start=start, tolerance=TOLERANCE, max_trials=16)
    if first is not None and first < self.batches(row, self.batch).num:
      found = find_threshold_by_few(rate_of, lambda tau: self.calls(at(tau), first).call_rate, row.rate, **settings)
    else:
      found = find_threshold(rate_of, row.rate, **settings)
    logging.info("tau %.6g gives %.4f cloud calls per token: %s", found.tau, found.rate, row.name)
    return at(found.tau)

  def settings(self, row: Row) -> dict[str, Any]:
    """Everything that determines the tokens of a row, besides weights, prompts and code; JSON."""
    decoder = self.decoder(row)
    found: dict[str, Any] = {
      "method": row.method,
      "options": values_of(decoder.method),
      "sampling": values_of(decoder.sampling),
      "draft": None if decoder.draft is None else decoder.draft.name,
      "alone": row.alone,
      "seed": row.seed,
      "max_len": row.max_len,
      "ends": self.ends,
      "dtype": self.pipeline.dtype,
      "matmul_precision": decoder.matmul_precision,
    }
    if row.audit:
      found["audit"] = True
    # Stored thresholds of a checkpoint are not weights.
    if gate := jax.tree.leaves(getattr(decoder.parts.params.draft, "gate", ())):
      found["gate"] = [np.asarray(leaf).tolist() for leaf in gate]
    return found

  @functools.cache
  def weights(self, row: Row) -> tuple[str, ...]:
    """Digests of the target, of the draft, and of the code book, each with the config of its network."""
    decoder = self.decoder(row)
    networks = [network for network in (decoder.target, decoder.draft) if network is not None]
    codebook = decoder.context.space.codebook
    tables = () if codebook is None else codebook()
    return (*map(_network_digest, networks), tree_digest(tables))

  @functools.cache
  def batches(self, row: Row, rows: int) -> Batches:
    return make_batches(self.condition, samples=self.samples, seed=row.seed, rows=rows)

  def _names(self, row: Row) -> list[str]:
    return [self._name(row, self.batch, index) for index in range(len(self.batches(row, self.batch).key_data))]

  @functools.cache
  def _name(self, row: Row, rows: int, index: int) -> str:
    batches = self.batches(row, rows)
    inputs = tree_digest((batches.key_data[index], batches.condition[index]))
    return f"{row.method}-{key_of(self.weights(row), self.settings(row) | {'inputs': inputs})}"


@functools.cache
def _network_digest(network: Network) -> str:
  return f"{network.config!r} {network.is_guided} {tree_digest(network.params)}"


def _six_digits(tau: float) -> float:
  """Rounded, so that the printed value is the decoded one."""
  return float(f"{tau:.6g}") if math.isfinite(tau) else tau
