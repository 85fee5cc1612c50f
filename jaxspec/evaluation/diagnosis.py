"""Which decoding methods can speed up a target: how certain its tokens are, its near-synonyms, and exact drafts.

Relaxed and grouped rules (LANTERN, GSD) and interval methods (CIAR) were made for codebooks whose tokens have low largest
probabilities and many near-synonyms (figure 1 of the supplement of arXiv 2508.07747). Where most tokens are certain, exact
drafts are accepted anyway and those rules have nothing to gain. The figures are of the target's own samples, as its
distributions are sampled: after guidance, temperature, top-k and top-p.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.core.token_kinds import DISCRETE
from jaxspec.core.types import Array, HostArray, ModelFns, ModelOutput, Params, PyTree
from jaxspec.evaluation.audit import summarize_audit
from jaxspec.intervals.discrete import entropy
from jaxspec.intervals.heads import combined_logits
from jaxspec.methods import METHODS, Plain
from jaxspec.rules.distances import neighbour_table
from jaxspec.run.job import Job, draft_name
from jaxspec.run.progress import SILENT, Progress
from jaxspec.run.run import run
from jaxspec.sampling import SamplingConfig
from jaxspec.sampling.logit_processing import ModelParams, Warp
from jaxspec.statistics import Interval

# Of figure 1 of GSD's supplement: shares of tokens with a largest probability above, and below.
CERTAIN, FLAT = 0.95, 0.2
NEIGHBOURS = 10
COVERAGE = 0.9
# Chains and windows whose acceptance can be audited.
_EXACT = ("speculative", "eagle-chain", "block-head", "spatial", "ngram", "sjd")


class Tokens(NamedTuple):
  """Figures of the tokens that the target drew, each ``[T]``.

  Attributes:
    largest: largest probability of the token's distribution.
    entropy: in nats.
    own: probability of the drawn token.
    near: probability of its `NEIGHBOURS` nearest codes together; NaN without a codebook.
  """

  largest: HostArray
  entropy: HostArray
  own: HostArray
  near: HostArray


class ExactDraft(NamedTuple):
  """An exact method on the same prompts and keys.

  Attributes:
    method: its name; ``draft`` that of its network, None without one.
    tokens_per_call: with the interval over prompts.
    accepted: probability of accepting a tested draft, likewise.
  """

  method: str
  draft: str | None
  tokens_per_call: Interval
  accepted: Interval


class EdgeIntervals(NamedTuple):
  """Intervals of an Inter-Head around the log probability of drawn tokens, before top-k, top-p and temperature.

  Attributes:
    draft: name of the edge network.
    covered: share of drawn tokens whose target log probability is within the learnt radius of the edge's.
    conformal_radius: smallest single radius that covers `COVERAGE` of them, by split conformal prediction, in nats.
    learnt_radius: mean learnt radius of drawn tokens, in nats.
  """

  draft: str
  covered: float
  conformal_radius: float
  learnt_radius: float


@dataclasses.dataclass(frozen=True)
class Diagnosis:
  """All figures.

  Attributes:
    vocab_size: ``V``.
    tokens: of the drawn tokens.
    exact: exact methods; the method with most tokens per call first.
    intervals: of the edge networks.
  """

  vocab_size: int
  tokens: Tokens
  exact: list[ExactDraft]
  intervals: list[EdgeIntervals]

  @property
  def certain(self) -> float:
    """Share of tokens with a largest probability above `CERTAIN`."""
    return float(np.mean(np.asarray(self.tokens.largest) > CERTAIN))

  @property
  def flat(self) -> float:
    """Share of tokens with a largest probability below `FLAT`."""
    return float(np.mean(np.asarray(self.tokens.largest) < FLAT))

  @property
  def has_synonyms(self) -> bool | None:
    """Whether the nearest codes have, in the mean, at least the probability of the drawn token; None without codes."""
    near = np.mean(self.tokens.near)
    return None if np.isnan(near) else bool(near >= np.mean(self.tokens.own))

  def advice(self) -> list[str]:
    """What can gain here; sentences."""
    found = []
    if self.exact:
      best = self.exact[0]
      by = best.method if best.draft is None else f"{best.method} with {best.draft}"
      found.append(f"Exact: {by} commits {best.tokens_per_call.value:.2f} tokens per call of the target.")
    if self.certain >= 0.5:
      found.append(
        f"Most tokens are certain ({self.certain:.0%} above {CERTAIN:g}). Grouped, relaxed and interval methods have little "
        "to gain over exact ones."
      )
    elif self.flat >= 0.5 and self.has_synonyms:
      found.append(
        f"Most tokens are uncertain ({self.flat:.0%} below {FLAT:g}), and near-synonyms share their probability. GSD, "
        "LANTERN and CIAR with merged codes can gain. Measure what they lose with jaxspec audit."
      )
    elif self.flat >= 0.5 and self.has_synonyms is None:
      found.append(
        f"Most tokens are uncertain ({self.flat:.0%} below {FLAT:g}), and without a code book near-synonyms are unknown. "
        "Compare an exact and a relaxed method with jaxspec audit."
      )
    elif self.flat >= 0.5:
      found.append(
        f"Most tokens are uncertain ({self.flat:.0%} below {FLAT:g}), but not between near-synonyms. A relaxed method then "
        "changes what is drawn. Measure it with jaxspec audit."
      )
    else:
      found.append(
        f"Certain and uncertain tokens are mixed ({self.certain:.0%} above {CERTAIN:g}, {self.flat:.0%} below {FLAT:g}). "
        "Compare an exact and a relaxed method with jaxspec audit."
      )
    return found


def diagnose(job: Job, rows: int, *, samples: int = 1, progress: Progress = SILENT) -> Diagnosis:
  """Decodes the prompts of a job plainly and by exact methods, and reads the distributions of its target.

  Args:
    job: of any method; its prompts, sampling settings and seed are used.
    rows: rows decoded together.
    samples: rows of each prompt.
  Raises:
    ValueError: for networks of other tokens than discrete ones, or a temperature of 0.
  """
  pipeline, space = job.pipeline, job.pipeline.family.space
  if space.kind != DISCRETE:
    raise ValueError(f"Must have networks of discrete tokens to diagnose, {pipeline.name} draws {space.noun}")
  if isinstance(job.sampling, SamplingConfig) and job.sampling.temperature == 0:
    raise ValueError("Must have a temperature above 0 to diagnose, we instead got 0: every token is then certain")
  exact, edges = _exact_jobs(job), [name for name in pipeline.drafts if pipeline.drafts.family_name(name) == "inter_head"]
  steps = 1 + len(exact)
  for name in (*edges, *filter(None, (draft_name(one.method) for one in exact))):
    pipeline.drafts[name]  # loads it: a corrupt one is found before the decodes
  progress("Diagnosing")
  progress.step(0, steps, "decode", f"Decoding by {Plain.name}")
  plain = job.but(Plain())
  batches = plain.batches(rows, samples=samples)
  result = run(plain, batches).result
  tokens, lengths = np.asarray(result.tokens), np.asarray(result.lengths)
  read = np.arange(tokens.shape[1])[None] < lengths[:, None]
  conditions = jax.tree.map(lambda leaf: np.asarray(leaf)[batches.prompt], job.condition)
  with pipeline.context():
    found = _tokens(plain, conditions, tokens, read)
    intervals = [_intervals(plain, name, conditions, tokens, read) for name in edges]
  drafts = []
  for number, one in enumerate(exact, 1):
    progress.step(number, steps, "decode", f"Decoding by {one.method.name}")
    outcome = run(one, batches).result
    calls = outcome.counters.target_calls
    figures = summarize_audit(outcome.metrics, outcome.lengths, calls, prompts=batches.prompt)
    drafts.append(ExactDraft(one.method.name, draft_name(one.method), figures.tokens_per_call, figures.alpha))
  drafts.sort(key=lambda draft: -draft.tokens_per_call.value)
  size = space.vocab_size
  assert size is not None  # of discrete tokens
  return Diagnosis(size, found, drafts, intervals)


def _exact_jobs(job: Job) -> list[Job]:
  """Audited jobs of the exact methods that the networks allow, with every draft."""
  pipeline, found = job.pipeline, []
  for name in _EXACT:
    if name not in pipeline.methods():
      continue
    if METHODS[name].draft_family is None:
      found.append(pipeline.method(name))
    else:
      found += [pipeline.method(name, draft=draft) for draft in pipeline.drafts_of(METHODS[name])]
  return [job.but(method, audit=True) for method in found]


def _tokens(plain: Job, conditions: PyTree, tokens: np.ndarray, read: np.ndarray) -> Tokens:
  """The figures of the tokens where ``read [R, N]``."""
  space, context = plain.pipeline.family.space, plain.decoder.context
  table = jnp.zeros((1, 0), jnp.int32)
  if space.codebook is not None and space.vocab_size is not None:
    table = neighbour_table(space.codebook(), min(NEIGHBOURS, space.vocab_size - 1), normalise=space.unit_codes)
  fns, side = context.sampling.side(plain.pipeline.target)
  one_row = jax.jit(functools.partial(_figures, fns, context.warp()))
  rows = [jax.device_get(one_row(side, table, _row(conditions, r), tokens[r : r + 1])) for r in range(len(tokens))]
  largest, nats, own, near = (np.stack(leaf)[read].astype(np.float64) + 0.0 for leaf in zip(*rows))  # no -0.0
  return Tokens(largest, nats, own, near if table.shape[1] else np.full_like(near, math.nan))


def _figures(fns: ModelFns, warp: Warp, side: ModelParams, table: Array, condition: PyTree, tokens: Array) -> Tokens:
  """Figures ``[N]`` of one row."""
  output = teacher_forced(fns, side.model, condition, tokens)
  index = jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
  probs = jax.nn.softmax(warp(output.need_logits(), side.sampling, index)[0], axis=-1)  # [N, V]
  of = lambda ids: jnp.take_along_axis(probs, ids, axis=-1)
  near = jnp.sum(of(table[jnp.minimum(tokens[0], table.shape[0] - 1)]), axis=-1)
  return Tokens(jnp.max(probs, axis=-1), entropy(probs), of(tokens[0][:, None])[:, 0], near)


def _intervals(plain: Job, name: str, conditions: PyTree, tokens: np.ndarray, read: np.ndarray) -> EdgeIntervals:
  draft, sampling = plain.pipeline.drafts[name], plain.decoder.context.sampling
  (cloud, cloud_side), (edge, edge_side) = sampling.side(plain.pipeline.target), sampling.side(draft)
  combination = getattr(draft.config, "combination", "ensemble")

  def of_row(cloud_params: Params, edge_params: Params, condition: PyTree, row: Array) -> tuple[Array, Array]:
    own = lambda values: jnp.take_along_axis(values[0], row[0][:, None], axis=-1)[:, 0]
    heard = teacher_forced(edge, edge_params, condition, row).need_intervals()
    target = jax.nn.log_softmax(teacher_forced(cloud, cloud_params, condition, row).need_logits(), axis=-1)
    centre = jax.nn.log_softmax(combined_logits(heard.centre, combination), axis=-1)
    return jnp.abs(own(target) - own(centre)), own(jnp.mean(heard.radius, axis=-2))

  one_row = jax.jit(of_row)
  args = cloud_side.model, edge_side.model
  rows = [jax.device_get(one_row(*args, _row(conditions, r), tokens[r : r + 1])) for r in range(len(tokens))]
  error, radius = (np.stack(leaf)[read].astype(np.float64) for leaf in zip(*rows))
  rank = min(math.ceil((len(error) + 1) * COVERAGE), len(error))
  conformal = float(np.sort(error)[rank - 1])
  return EdgeIntervals(name, float(np.mean(error <= radius)), conformal, float(np.mean(radius)))


def teacher_forced(fns: ModelFns, params: Params, condition: PyTree, tokens: Array) -> ModelOutput:
  """The output that each of ``tokens [B, N]`` was drawn from, ``[B, N, ...]``, by a prefill and one pass."""
  prefix, length = fns.prefix_len(condition), tokens.shape[1]
  cache = fns.init_cache(tokens.shape[0], prefix + length)
  first, cache = fns.apply(params, condition, cache, positions=None)
  last = jax.tree.map(lambda leaf: leaf[:, -1:], first)
  if length == 1:
    return last
  positions = prefix + jnp.arange(length - 1, dtype=jnp.int32)[None]
  rest, _ = fns.apply(params, tokens[:, :-1], cache, positions=positions)
  return jax.tree.map(lambda one, others: jnp.concatenate([one, others], axis=1), last, rest)


def _row(conditions: PyTree, number: int) -> PyTree:
  return jax.tree.map(lambda leaf: leaf[number : number + 1], conditions)
