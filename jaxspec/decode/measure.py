"""Measuring a decode: what one bare round costs, what scoring k tokens costs, and what that predicts.

Timing lives here and in benchmarks only. Everything repeated is repeated inside one compiled loop, so that dispatch from
Python is no part of it; nothing in such a loop is invariant, so that the compiler cannot hoist it.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxspec.decode import loop
from jaxspec.decode.state import SpecParams
from jaxspec.types import Array, Drafter, Key, ModelFns, Params, PyTree, Verifier

Result = TypeVar("Result")


class Timing(NamedTuple):
  """Seconds of some repeats."""

  median: float
  low: float
  high: float

  @classmethod
  def of(cls, seconds: list[float]) -> Timing:
    return cls(statistics.median(seconds), min(seconds), max(seconds))


def timed(call: Callable[[], Result]) -> tuple[Result, float]:
  """What a call gave, and its wall seconds, waiting for the result."""
  started = time.perf_counter()
  result = jax.block_until_ready(call())
  return result, time.perf_counter() - started


def seconds_of(call: Callable[[], PyTree]) -> float:
  """Wall seconds of one call, waiting for its result."""
  return timed(call)[1]


def alternate(calls: dict[str, Callable[[], PyTree]], repeats: int) -> dict[str, list[float]]:
  """Seconds of every call, A B A B ..., after one call each that is not counted.

  Ratios are to be taken pairwise (entry i of one list by entry i of another): a drift of the machine then cancels.
  """
  for call in calls.values():
    jax.block_until_ready(call())
  seconds: dict[str, list[float]] = {name: [] for name in calls}
  for _ in range(repeats):
    for name, call in calls.items():
      seconds[name].append(seconds_of(call))
  return seconds


def pairwise_ratio(numerator: list[float], denominator: list[float]) -> Timing:
  """Median, smallest and largest of the ratios of paired repeats."""
  return Timing.of([a / b for a, b in zip(numerator, denominator, strict=True)])


def bare_rounds(
  params: SpecParams, key: Key, condition: PyTree, *, drafter: Drafter, verifier: Verifier, max_len: int, rounds: int
) -> Array:
  """Runs ``rounds`` rounds of propose and verify, without commit, in the middle of the sequence; for timing.

  Returns:
    ``[B]`` int32, some tokens, so that nothing is dead code.
  """
  state = loop.start(params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len)
  cursor = state.edge.cursor
  middle = jnp.full_like(cursor.length, max(1, (max_len - drafter.window) // 2))

  def body(index, carry):
    edge, verifier_state, last = carry
    edge = edge.replace(cursor=cursor._replace(last=last, length=middle, round=index))
    draft, edge = loop.propose_step(params.draft, edge, drafter=drafter)
    verdict, verifier_state = loop.verify_step(
      params.target, edge.keys, verifier_state, edge.cursor, draft, verifier=verifier
    )
    return edge, verifier_state, verdict.next_token

  return jax.lax.fori_loop(0, rounds, body, (state.edge, state.verifier, cursor.last))[2]


def score_block(fns: ModelFns, params: Params, condition: PyTree, *, block: int, repeats: int, max_len: int) -> Array:
  """Runs ``repeats`` forward passes over ``block`` tokens each, in the middle of the sequence; for timing.

  Returns:
    ``[B]`` float32, so that nothing is dead code.
  """
  prefix = fns.prefix_len(condition)
  rows = jax.tree.leaves(condition)[0].shape[0]
  cache = fns.init_cache(rows, prefix + max_len + block)
  _, cache = fns.apply(
    params, condition, cache, positions=jnp.arange(prefix)[None], logits_at=jnp.zeros((1,), jnp.int32)
  )
  start = jnp.full((rows, 1), prefix + max_len // 2)

  def body(_, carry):
    cache, tokens = carry
    output, cache = fns.apply(params, tokens, cache, positions=start + jnp.arange(block)[None])
    return cache, jnp.argmax(output.logits, axis=-1).astype(jnp.int32)

  tokens = jnp.zeros((rows, block), jnp.int32)
  return jax.lax.fori_loop(0, repeats, body, (cache, tokens))[1][:, 0]


def expected_tokens(acceptance: float, window: int) -> float:
  """Tokens per round of a row when each draft is kept with probability ``acceptance`` (Leviathan et al., eq. 1)."""
  if acceptance >= 1:
    return window + 1.0
  return (1 - acceptance ** (window + 1)) / (1 - acceptance)


def acceptance_per_position(accepted: int, rounds: int, window: int) -> float:
  """The i.i.d. acceptance that gives the observed tokens per round, by bisection.

  The accepted share of drafts is smaller: drafts behind a rejection are never tested.
  """
  observed = 1 + accepted / max(rounds, 1)
  low, high = 0.0, 1.0
  for _ in range(60):
    middle = (low + high) / 2
    low, high = (middle, high) if expected_tokens(middle, window) < observed else (low, middle)
  return (low + high) / 2


@functools.partial(jax.jit, static_argnames=("drafter", "verifier", "max_len"))
def prefill(params, key, condition, *, drafter, verifier, max_len):
  """The part of a decode before its loop, compiled alone; for timing."""
  edge = loop.start(params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len).edge
  return edge.tokens
