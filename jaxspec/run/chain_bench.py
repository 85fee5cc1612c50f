"""Decodes by a chain against plain decoding, and the time of their passes over several tokens."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jaxspec.core import rng
from jaxspec.core.network import Network
from jaxspec.core.options import values_of
from jaxspec.core.types import PyTree
from jaxspec.drafters.auto_length import AutoLengthDrafter
from jaxspec.methods import DISCRETE, METHODS, SAME_FAMILY
from jaxspec.methods.speculative import ChainMethod
from jaxspec.run import measure
from jaxspec.run.batches import split
from jaxspec.run.job import Job, draft_name
from jaxspec.run.loaded_networks import LoadedNetworks
from jaxspec.run.plain_comparison import Decode, compare_with_plain
from jaxspec.run.progress import SILENT, Progress
from jaxspec.run.round_times import timed_params
from jaxspec.run.run import run
from jaxspec.sampling import SamplingConfig

NUM_PROMPTS = 4  # by default
# Forward passes (or rounds) inside one timed program, so that dispatch is not part of the time.
_INNER = 32
_BLOCKS = (1, 2, 4, 8, 16)


def chain_of(pipeline: LoadedNetworks, draft: str | None) -> tuple[str, str]:
  """A draft of the pipeline, and the exact chain method for its family.

  Args:
    draft: its name; None is the default draft, else the first with such a method.
  Raises:
    ValueError: if there is none.
  """
  if pipeline.family.space.kind != DISCRETE:
    raise ValueError(
      f"Must have networks of discrete tokens to bench, {pipeline.name} draws {pipeline.family.space.noun}: "
      "jaxspec generate --compare measures them"
    )
  families = {}
  for name, cls in METHODS.items():
    if issubclass(cls, ChainMethod) and cls.exact:
      own = pipeline.family.draft_families if cls.draft_family == SAME_FAMILY else (cls.draft_family,)
      families |= {family: name for family in own if family not in families}
  if draft is not None:
    pipeline.drafts.loaded(draft)  # says so if there is none
  found = {name: families[family] for name in pipeline.drafts if (family := pipeline.drafts.family_name(name)) in families}
  first = draft or (pipeline.defaults.draft if pipeline.defaults.draft in found else next(iter(found), None))
  if first not in found:
    kind = "none" if first is None else f"a {pipeline.drafts.family_name(first)} as {first}"
    raise ValueError(f"Must have a draft of the family {' or '.join(families)} to measure, {pipeline.name} has {kind}")
  return first, found[first]


def rows_of(condition: PyTree, num: int) -> PyTree:
  """``num`` rows of a condition with leaves ``[B, ...]``, repeated cyclically."""
  return jax.tree.map(lambda leaf: leaf[np.arange(num) % len(leaf)], condition)


def _decode_of(job: Job, rows: int) -> Decode:
  """The decode of a batch as a function of its key: every turn of a measurement draws other tokens."""
  condition, row = rows_of(job.condition, rows), np.arange(rows)
  batch = lambda key: split(condition, rng.row_key_data(key, rows), row, np.zeros_like(row), rows=rows)
  return lambda key: run(job, batch(key)).by_batch[0]


def reports(
  jobs: Sequence[Job], plain: Job, batches: Sequence[int], repeats: int, *, progress: Progress = SILENT
) -> Iterator[dict[str, Any]]:
  """Passes over several tokens, and every job against plain decoding at every batch size; JSON.

  Yields the report so far after each measurement, so that an interruption loses one; the last report has all.

  Args:
    jobs: of one method that samples chains, with several draft lengths.
    plain: of the same prompts.
    batches: rows decoded together.
    repeats: counted turns.
  """
  job, pipeline = jobs[0], jobs[0].pipeline
  cells = [(rows, one) for rows in batches for one in jobs]
  progress("Measuring")
  progress.step(0, len(cells) + 1, "measurement", "Passes over several tokens")
  with pipeline.context():
    passes = scoring(job, repeats)
  decodes = []
  found = {
    "machine": {"cpus": os.cpu_count(), "processor": platform.processor() or platform.machine()},
    "device": jax.devices()[0].device_kind,
    "versions": {"jax": jax.__version__, "python": platform.python_version()},
    "dtype": pipeline.dtype,
    "matmul_precision": pipeline.matmul_precision,
    "draft": draft_name(job.method),
    "method": job.method.name,
    "seed": job.seed,
    "prompts": job.captions,
    "repeats": repeats,
    "settings": values_of(job.sampling),
    "scoring": passes,
  }
  for done, (rows, one) in enumerate(cells, 1):
    progress.step(done, len(cells) + 1, "measurement", f"Batch {rows}, gamma {one.method.options()['gamma']}")
    decodes.append(decoding(one, plain, rows, repeats))
    yield found | {"decoding": list(decodes)}


def scoring(job: Job, repeats: int) -> dict[str, Any]:
  """Milliseconds of a guided pass over k tokens of the first row, and its ratio to one token; of the draft for one token."""
  pipeline, condition = job.pipeline, rows_of(job.condition, 1)
  sampling = pipeline.sampling()
  assert isinstance(sampling, SamplingConfig)  # `chain_of` takes networks of discrete tokens only
  length = pipeline.family.default_length(sampling)

  def calls(network: Network, blocks: tuple[int, ...]) -> dict[int, Callable[[], Any]]:
    fns, side = sampling.side(network)
    table = {}
    for block in blocks:
      kwargs = dict(block=block, repeats=_INNER, max_len=length)
      score = jax.jit(lambda params, condition, kwargs=kwargs: measure.score_block(fns, params, condition, **kwargs))
      table[block] = lambda score=score: score(side.model, condition)
    return table

  target = calls(pipeline.target, _BLOCKS)
  seconds = measure.alternate({str(k): call for k, call in target.items()}, repeats)
  result: dict[str, dict[str, Any]] = {
    "target_ms": {k: 1e3 * measure.Timing.of(v).median / _INNER for k, v in seconds.items()},
    "target_ratio": {k: measure.pairwise_ratio(v, seconds["1"])._asdict() for k, v in seconds.items()},
    "draft_ratio": {},
  }
  draft = job.decoder.drafting
  if draft is not None and draft.family_name in pipeline.family.draft_families:  # the cost of a head is in that of a round
    seconds = measure.alternate({"target": target[1], "draft": calls(draft, (1,))[1]}, repeats)
    result["draft_ratio"][draft.name] = measure.pairwise_ratio(seconds["draft"], seconds["target"])._asdict()
  return result


def decoding(job: Job, plain: Job, rows: int, repeats: int) -> dict[str, Any]:
  """Figures of a chain against plain decoding, in turns.

  Args:
    job: a job of a chain method.
    plain: the job of plain decoding with the same prompts.
    rows: rows of the batch; prompts repeat cyclically.
  """
  num_tokens, method, seed = job.max_len, job.method, job.seed or 0
  fast_decode, plain_decode = (_decode_of(one, rows) for one in (job, plain))
  first_call_s = {
    "plain": measure.seconds_of(lambda: plain_decode(jax.random.key(seed)).tokens),
    "speculative": measure.seconds_of(lambda: fast_decode(jax.random.key(seed)).tokens),
  }
  condition = rows_of(job.condition, rows)
  with job.pipeline.context():
    parts = job.decoder.parts
    params = timed_params(job.decoder, condition, num_tokens, lambda params, keys: fast_decode(keys))
    found = compare_with_plain(
      fast_decode,
      plain_decode,
      parts=parts._replace(params=params),
      condition=condition,
      max_len=num_tokens,
      repeats=repeats,
      seed=seed,
    )
  plain_s, rounds = measure.Timing.of(found.plain_s).median, found.rounds
  assert rounds is not None  # of a chain
  plain_step_s = (plain_s - rounds.start_s) / (num_tokens - 1)
  tokens, table = rows * num_tokens, None
  if isinstance(parts.drafter, AutoLengthDrafter):  # there is no one round then
    table = dict(zip(parts.drafter.widths, np.asarray(params.draft.times).tolist()))
  return {
    "batch": rows,
    "gamma": method.options()["gamma"],
    "plain_tokens_per_s": tokens / plain_s,
    "speculative_tokens_per_s": tokens / measure.Timing.of(found.fast_s).median,
    "speedup": found.over_plain._asdict(),
    "predicted_speedup": found.tokens_per_round * plain_step_s / rounds.round_s if table is None else None,
    "acceptance": found.counts["accepted"] / max(found.counts["drafted"], 1),
    "acceptance_per_tested_position": found.accepted_of_tested,
    "tokens_per_target_call": found.tokens_per_call,
    "plain_step_ms": 1e3 * plain_step_s,
    "round_ms": 1e3 * rounds.round_s if table is None else None,
    "round_times": table,
    "prefill_ms": 1e3 * rounds.start_s,
    "loop_efficiency": rounds.efficiency._asdict() if table is None else None,
    "first_call_s": first_call_s,
  }
