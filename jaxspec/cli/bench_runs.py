"""What ``jaxspec bench`` measures: passes over several tokens, and decodes by a chain against plain ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax

from jaxspec.acceptance import acceptance_for
from jaxspec.cli.errors import UserError
from jaxspec.decode import measure
from jaxspec.decode.state import summarize
from jaxspec.methods import METHODS, SAME_FAMILY, Plain
from jaxspec.methods.speculative import ChainMethod
from jaxspec.network import Network
from jaxspec.pipeline import Pipeline

PROMPTS = ("red apple", "sleeping cat", "noto pizza on blue background", "fluent grinning face small")
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


def scoring(pipeline: Pipeline, repeats: int) -> dict[str, Any]:
  """Milliseconds of a guided pass over k tokens of one image, and its ratio to one token."""
  condition = pipeline.encode([PROMPTS[0]]).condition
  sampling, length = pipeline.sampling(), pipeline.host.default_length

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


def decoding(pipeline: Pipeline, method: ChainMethod, rows: int, repeats: int, seed: int) -> dict[str, Any]:
  """Figures of a chain against plain decoding, the methods taking turns.

  Args:
    method: with its draft by name.
    rows: of one batch.
  """
  fast, plain = pipeline.decoder(method), pipeline.decoder(Plain())
  parts, num_tokens = fast.parts, pipeline.host.default_length
  condition = pipeline.encode([PROMPTS[i % len(PROMPTS)] for i in range(rows)]).condition
  keys = [jax.random.key(seed + i) for i in range(repeats + 1)]
  turn = {"plain": 0, "speculative": 0}
  outcomes = []

  def next_key(name):
    turn[name] += 1
    return keys[(turn[name] - 1) % len(keys)]

  def plainly():
    return plain(condition, key=next_key("plain"), max_len=num_tokens).tokens

  def speculatively():
    outcomes.append(fast(condition, key=next_key("speculative"), max_len=num_tokens))
    return outcomes[-1].tokens

  compile_s = {}
  for name, call in (("plain", plainly), ("speculative", speculatively)):
    started = time.perf_counter()
    jax.block_until_ready(call())
    compile_s[name] = time.perf_counter() - started
    turn[name] = 0
  outcomes.clear()
  seconds = measure.alternate({"plain": plainly, "speculative": speculatively}, repeats)
  counts = [summarize(out.counters) for out in outcomes[1:]]  # without the uncounted call

  rounds = measure.loop_efficiency(
    parts.params, keys[0], condition, drafter=parts.drafter, verifier=parts.verifier, max_len=num_tokens, repeats=repeats,
    whole=lambda: fast(condition, key=keys[0], max_len=num_tokens), rounds=_INNER,
  )  # fmt: skip
  total = {k: sum(c[k] for c in counts) for k in ("rounds", "drafted", "accepted", "target_calls")}
  alpha = acceptance_for(1 + total["accepted"] / total["rounds"], method.gamma)
  tokens = rows * num_tokens
  plain_step_s = (measure.Timing.of(seconds["plain"]).median - rounds.start_s) / (num_tokens - 1)
  per_round = 1 + total["accepted"] / total["rounds"]
  return {
    "batch": rows,
    "gamma": method.gamma,
    "plain_tokens_per_s": tokens / measure.Timing.of(seconds["plain"]).median,
    "speculative_tokens_per_s": tokens / measure.Timing.of(seconds["speculative"]).median,
    "speedup": measure.pairwise_ratio(seconds["plain"], seconds["speculative"])._asdict(),
    "predicted_speedup": per_round * plain_step_s / rounds.round_s,
    "acceptance": total["accepted"] / total["drafted"],
    "acceptance_per_tested_position": alpha,
    "tokens_per_target_call": tokens * len(counts) / total["target_calls"],
    "plain_step_ms": 1e3 * plain_step_s,
    "round_ms": 1e3 * rounds.round_s,
    "prefill_ms": 1e3 * rounds.start_s,
    "loop_efficiency": rounds.efficiency._asdict(),
    "first_call_s": compile_s,
  }
