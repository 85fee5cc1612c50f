"""What ``jaxspec bench`` measures: passes over several tokens, and decodes by a chain against plain ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxspec.cli.errors import UserError
from jaxspec.decode import measure
from jaxspec.methods import IDS, METHODS, SAME_FAMILY, Plain
from jaxspec.methods.speculative import ChainMethod
from jaxspec.network import Network
from jaxspec.run.against_plain import against_plain
from jaxspec.run.pipeline import Pipeline
from jaxspec.types import PyTree

NUM_PROMPTS = 4  # where nobody asks for any
# Forward passes (or rounds) inside one timed program, so that its dispatch does not count.
_INNER = 32
_BLOCKS = (1, 2, 4, 8, 16)


def chain_of(pipeline: Pipeline, draft: str | None) -> tuple[str, str]:
  """A draft of the pipeline, and the exact method that samples chains with its family.

  Args:
    draft: its name; None is the default draft, else the first that such a method drafts with.
  Raises:
    UserError: if there is none.
  """
  if pipeline.host.tokens != IDS:
    raise UserError(
      f"Must have networks of ids to bench chains of, {pipeline.name} draws {pipeline.host.tokens}: "
      "jaxspec generate --compare measures them"
    )
  families = {}
  for name, cls in METHODS.items():
    if issubclass(cls, ChainMethod) and cls.exact:
      own = pipeline.host.draft_families if cls.draft_family == SAME_FAMILY else (cls.draft_family,)
      families |= {family: name for family in own if family not in families}
  if draft is not None:
    pipeline.drafts.checkpoint(draft)  # says so if there is none
  found = {name: families[family] for name in pipeline.drafts if (family := pipeline.drafts.family(name)) in families}
  first = draft or (pipeline.defaults.draft if pipeline.defaults.draft in found else next(iter(found), None))
  if first not in found:
    kind = "none" if first is None else f"a {pipeline.drafts.family(first)} as {first}"
    raise UserError(f"Must have a draft of the family {' or '.join(families)} to measure, {pipeline.name} has {kind}")
  return first, found[first]


def rows_of(condition: PyTree, num: int) -> PyTree:
  """``num`` rows of a condition with leaves ``[B, ...]``, again from the first after the last."""
  return jax.tree.map(lambda leaf: leaf[np.arange(num) % len(leaf)], condition)


def scoring(pipeline: Pipeline, condition: PyTree, repeats: int) -> dict[str, Any]:
  """Milliseconds of a guided pass over k tokens of the first row, and its ratio to one token."""
  condition = rows_of(condition, 1)
  sampling = pipeline.sampling()
  length = pipeline.host.default_length(sampling)

  def calls(network: Network, blocks: tuple[int, ...]) -> dict[int, Callable[[], Any]]:
    fns, side = sampling.side(network)
    table = {}
    for block in blocks:
      kwargs = dict(block=block, repeats=_INNER, max_len=length)
      run = jax.jit(lambda params, condition, kwargs=kwargs: measure.score_block(fns, params, condition, **kwargs))
      table[block] = lambda run=run: run(side.model, condition)
    return table

  target = calls(pipeline.target, _BLOCKS)
  seconds = measure.alternate({str(k): call for k, call in target.items()}, repeats)
  result = {
    "target_ms": {k: 1e3 * measure.Timing.of(v).median / _INNER for k, v in seconds.items()},
    "target_ratio": {k: measure.pairwise_ratio(v, seconds["1"])._asdict() for k, v in seconds.items()},
    "draft_ratio": {},
  }
  for name in pipeline.drafts:
    if pipeline.drafts.family(name) not in pipeline.host.draft_families:  # reads features: its cost is that of a round
      continue
    pair = {"target": target[1], "draft": calls(pipeline.drafts[name], (1,))[1]}
    seconds = measure.alternate(pair, repeats)
    result["draft_ratio"][name] = measure.pairwise_ratio(seconds["draft"], seconds["target"])._asdict()
  return result


def decoding(pipeline: Pipeline, method: ChainMethod, condition: PyTree, repeats: int, seed: int) -> dict[str, Any]:
  """Figures of a chain against plain decoding, the methods taking turns.

  Args:
    method: with its draft by name.
    condition: of the rows of one batch.
  """
  fast, plain = pipeline.decoder(method), pipeline.decoder(Plain())
  num_tokens = pipeline.host.default_length(fast.sampling)
  rows = condition.batch_size
  decode = lambda decoder: decoder(condition, key=jax.random.key(seed), max_len=num_tokens).tokens
  first_call_s = {
    "plain": measure.seconds_of(lambda: decode(plain)),
    "speculative": measure.seconds_of(lambda: decode(fast)),
  }
  found = against_plain(fast, plain, condition, max_len=num_tokens, repeats=repeats, seed=seed)
  plain_s, rounds = measure.Timing.of(found.plain_s).median, found.rounds
  plain_step_s = (plain_s - rounds.start_s) / (num_tokens - 1)
  tokens = rows * num_tokens
  return {
    "batch": rows,
    "gamma": method.gamma,
    "plain_tokens_per_s": tokens / plain_s,
    "speculative_tokens_per_s": tokens / measure.Timing.of(found.fast_s).median,
    "speedup": found.over_plain._asdict(),
    "predicted_speedup": found.tokens_per_round * plain_step_s / rounds.round_s,
    "acceptance": found.counts["accepted"] / found.counts["drafted"],
    "acceptance_per_tested_position": found.accepted_of_tested,
    "tokens_per_target_call": found.tokens_per_call,
    "plain_step_ms": 1e3 * plain_step_s,
    "round_ms": 1e3 * rounds.round_s,
    "prefill_ms": 1e3 * rounds.start_s,
    "loop_efficiency": rounds.efficiency._asdict(),
    "first_call_s": first_call_s,
  }
