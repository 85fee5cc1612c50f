"""Measures a decode: the time of one bare round, the time of scoring k tokens, and the predicted speed-up.

Timing is here and in benchmarks only. Repeats run inside one compiled loop, so that dispatch from Python is not part of the
time. Every iteration depends on the previous one, so that the compiler cannot hoist it.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from jaxspec.core.rounds import draft_round, judge_round, start
from jaxspec.core.state import DecodeResult, DraftSide, SpecParams
from jaxspec.core.types import Array, Drafter, Key, ModelFns, Params, PyTree, Verifier

Result = TypeVar("Result")


class Timing(NamedTuple):
  """Median, smallest and largest of repeated measurements: seconds, or ratios of seconds."""

  median: float
  low: float
  high: float

  @classmethod
  def of(cls, seconds: list[float]) -> Timing:
    return cls(statistics.median(seconds), min(seconds), max(seconds))


def timed(call: Callable[[], Result]) -> tuple[Result, float]:
  """Result of a call and its wall seconds until the result is ready."""
  started = time.perf_counter()
  result = jax.block_until_ready(call())
  return result, time.perf_counter() - started


def seconds_of(call: Callable[[], PyTree]) -> float:
  """Wall seconds of one call until its result is ready."""
  return timed(call)[1]


def alternate(calls: dict[str, Callable[[], PyTree]], repeats: int) -> dict[str, list[float]]:
  """Wall seconds of calls in the order A B A B ..., after one warm-up call each.

  Take ratios pairwise (entry i of one list by entry i of another): drift of the machine then cancels.
  """
  for call in calls.values():
    jax.block_until_ready(call())
  seconds: dict[str, list[float]] = {name: [] for name in calls}
  for _ in range(repeats):
    for name, call in calls.items():
      seconds[name].append(seconds_of(call))
  return seconds


def per_token(seconds: Sequence[float], tokens: Sequence[int]) -> list[float]:
  """Wall seconds per token of repeats. All speed-ups are ratios of these.

  Rows with an end token differ in length between methods, so seconds alone would compare different amounts of text.
  """
  return [taken / number for taken, number in zip(seconds, tokens, strict=True)]


def pairwise_ratio(numerator: list[float], denominator: list[float]) -> Timing:
  """Median, smallest and largest of the ratios of paired repeats."""
  return Timing.of([a / b for a, b in zip(numerator, denominator, strict=True)])


def bare_rounds(
  params: SpecParams, key: Key, condition: PyTree, *, drafter: Drafter, verifier: Verifier, max_len: int, rounds: int
) -> Array:
  """Runs ``rounds`` rounds of draft and verify, without commit, in the middle of the sequence; for timing.

  Returns:
    ``[B]`` int32, some tokens, so that the compiler removes nothing as dead code.
  """
  state = start(params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len)
  cursor = state.draft_side.cursor
  middle = jnp.full_like(cursor.length, max(1, (max_len - drafter.window) // 2))

  def body(index: Array, carry: tuple[DraftSide, PyTree, Array]) -> tuple[DraftSide, PyTree, Array]:
    side, verifier_state, last = carry
    at = cursor._replace(last=last, length=middle, round=jnp.full_like(cursor.round, index))
    side = dataclasses.replace(side, cursor=at)
    waiting = draft_round(params.draft, side, drafter=drafter)
    side = waiting.side
    verdict, verifier_state = judge_round(
      params.target, side, verifier_state, waiting.draft, drafter=drafter, verifier=verifier
    )
    return side, verifier_state, verdict.next_tokens[:, 0]

  return jax.lax.fori_loop(0, rounds, body, (state.draft_side, state.verifier, cursor.last))[2]


def score_block(fns: ModelFns, params: Params, condition: PyTree, *, block: int, repeats: int, max_len: int) -> Array:
  """Runs ``repeats`` forward passes over ``block`` tokens each, in the middle of the sequence; for timing.

  Returns:
    ``[B]`` int32, some tokens, so that the compiler removes nothing as dead code.
  """
  prefix = fns.prefix_len(condition)
  rows = condition.batch_size
  cache = fns.init_cache(rows, prefix + max_len + block)
  _, cache = fns.apply(params, condition, cache, positions=jnp.arange(prefix)[None], logits_at=jnp.zeros((1,), jnp.int32))
  start = jnp.full((rows, 1), prefix + max_len // 2)

  def body(_: Array, carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
    cache, tokens = carry
    output, cache = fns.apply(params, tokens, cache, positions=start + jnp.arange(block)[None])
    return cache, jnp.argmax(output.need_logits(), axis=-1).astype(jnp.int32)

  tokens = jnp.zeros((rows, block), jnp.int32)
  return jax.lax.fori_loop(0, repeats, body, (cache, tokens))[1][:, 0]


class Rounds(NamedTuple):
  """Result of `loop_efficiency`."""

  start_s: float  # seconds of the part before the loop
  round_s: float  # seconds of a bare round: draft and verify, without commit
  efficiency: Timing  # share of bare rounds in the loop's time


def loop_efficiency(
  params: SpecParams, key: Key, condition: PyTree, *, drafter: Drafter, verifier: Verifier, max_len: int,
  whole: Callable[[], DecodeResult], repeats: int, rounds: int = 32,
) -> Rounds:  # fmt: skip
  """Compares a decode with the same number of bare rounds, in turns.

  Args:
    whole: the decode of ``condition`` with these parts.
    rounds: bare rounds in one timed program, so that dispatch is not part of the time.
  """
  bare = jax.jit(functools.partial(bare_rounds, drafter=drafter, verifier=verifier, max_len=max_len, rounds=rounds))
  times = alternate(
    {
      "start": lambda: prefill(params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len),
      "start_and_rounds": lambda: bare(params, key, condition),
      "whole": lambda: whole().tokens,
    },
    repeats,
  )
  start = Timing.of(times["start"]).median
  needed = int(whole().counters.rounds.max())
  shares = [
    needed * (bare_s - start) / rounds / (total - start)
    for bare_s, total in zip(times["start_and_rounds"], times["whole"], strict=True)
  ]
  return Rounds(start, (Timing.of(times["start_and_rounds"]).median - start) / rounds, Timing.of(shares))


@functools.partial(jax.jit, static_argnames=("drafter", "verifier", "max_len"))
def prefill(params: SpecParams, key: Key, condition: PyTree, *, drafter: Drafter, verifier: Verifier, max_len: int) -> Array:
  """Runs the prefill of a decode, compiled alone, for timing."""
  state = start(params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len)
  return state.draft_side.tokens
