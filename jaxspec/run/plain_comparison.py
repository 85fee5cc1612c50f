"""Alternating measurements of a decoder and plain decoding on the same rows, common to all benches.

End tokens do not end rows here: both sides draw all tokens of a row, so that time does not depend on the content of texts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxspec.core.state import DecodeResult, Origin, summarize
from jaxspec.core.types import Array, Key, PyTree
from jaxspec.methods.method import Parts
from jaxspec.run import measure

Decode = Callable[[Key], DecodeResult]


class PlainComparison(NamedTuple):
  """Result of `compare_with_plain`.

  Attributes:
    plain_s: wall seconds of the counted turns of plain decoding.
    fast_s: wall seconds of the decoder; entry i has the key of entry i of ``plain_s``.
    tokens: tokens of all counted turns, the same for both sides; ``rows`` of them were drawn by a prefill.
    counts: `Counters` of the decoder, summed over rows and counted turns; ``rejected`` are rounds that ended with a
      rejection.
    rounds: figures of bare rounds of the decoder; None for a method that replaces the loop.
    others_s: wall seconds of other decoders in the same turns, by name.
  """

  plain_s: list[float]
  fast_s: list[float]
  tokens: int
  rows: int
  counts: dict[str, int]
  rounds: measure.Rounds | None
  others_s: Mapping[str, list[float]] = MappingProxyType({})

  @property
  def over_plain(self) -> measure.Timing:
    """Pairwise ratios of seconds for equal numbers of tokens; above 1 if the decoder is faster."""
    return measure.pairwise_ratio(self.plain_s, self.fast_s)

  @property
  def tokens_per_call(self) -> float:
    """Tokens of a row per pass of the target."""
    return self.tokens / self.counts["target_calls"]

  @property
  def tokens_per_round(self) -> float:
    """Tokens of a round: accepted drafts, and the target's token if it has one."""
    return (self.tokens - self.rows) / self.counts["rounds"]

  @property
  def accepted_of_tested(self) -> float:
    """Share of tested drafts that are accepted, for chains, whose rounds reject at most one draft."""
    accepted = self.counts["accepted"]
    return accepted / max(accepted + self.counts["rejected"], 1)

  def over(self, name: str) -> measure.Timing:
    """Pairwise ratios of seconds of another decoder and of this one; above 1 if this one is faster."""
    return measure.pairwise_ratio(self.others_s[name], self.fast_s)


def compare_with_plain(
  fast: Decode, plain: Decode, *, parts: Parts, condition: PyTree, max_len: int, repeats: int, seed: int = 0,
  others: Mapping[str, Decode] = MappingProxyType({}),
) -> PlainComparison:  # fmt: skip
  """Decodes by both in turns, ``repeats`` times after one warm-up turn, then times bare rounds.

  Args:
    fast, plain: compiled decodes of ``condition`` to ``max_len`` tokens.
    parts: parts of ``fast``, for bare rounds.
    seed: turn i of both sides has the key of ``seed + i``.
    others: other decodes in the same turns.
  """
  outcomes = []

  def turns(decode: Decode, keep: Callable[..., None]) -> Callable[[], Array]:
    numbers = itertools.count(seed)

    def turn():
      outcome = decode(jax.random.key(next(numbers)))
      keep(outcome)
      return outcome.tokens

    return turn

  forget = lambda _: None
  calls = {"plain": turns(plain, forget), "fast": turns(fast, outcomes.append)}
  seconds = measure.alternate(calls | {f"other {name}": turns(decode, forget) for name, decode in others.items()}, repeats)
  counted = [_counts(outcome) for outcome in outcomes[1:]]
  key = jax.random.key(seed)
  rounds = None
  if parts.decode is None:
    drafter, verifier = parts.pair()
    rounds = measure.loop_efficiency(
      parts.params, key, condition, drafter=drafter, verifier=verifier, max_len=max_len, repeats=repeats,
      whole=lambda: fast(key), rounds=max(32 // condition.batch_size, 8),
    )  # fmt: skip
  counts = {name: sum(one[name] for one in counted) for name in counted[0]}
  rows = repeats * condition.batch_size
  others_s = {name: seconds[f"other {name}"] for name in others}
  return PlainComparison(seconds["plain"], seconds["fast"], rows * max_len, rows, counts, rounds, others_s)


def _counts(outcome: DecodeResult) -> dict[str, int]:
  total = summarize(outcome.counters)
  counts = {name: total[name] for name in ("rounds", "drafted", "accepted", "target_calls")}
  return counts | {"rejected": int(jnp.sum(outcome.origin == Origin.REPLACED))}
