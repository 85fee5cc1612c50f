"""A decoder and plain decoding of the same rows in turns: the measurement that all benches share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax

from jaxspec.acceptance import acceptance_for
from jaxspec.decode import measure
from jaxspec.decode.state import summarize
from jaxspec.decoder import Decoder
from jaxspec.types import Array, PyTree


class AgainstPlain(NamedTuple):
  """What `against_plain` measured.

  Attributes:
    plain_s: wall seconds of the counted turns of plain decoding.
    fast_s: of the decoder; entry i has the key of entry i of ``plain_s``.
    tokens: of all counted turns of one side.
    counts: `Counters` of the decoder, summed over rows and counted turns.
    rounds: bare rounds of the decoder.
  """

  plain_s: list[float]
  fast_s: list[float]
  tokens: int
  counts: dict[str, int]
  rounds: measure.Rounds

  @property
  def over_plain(self) -> measure.Timing:
    """Pairwise ratios of seconds, above 1 where the decoder is faster."""
    return measure.pairwise_ratio(self.plain_s, self.fast_s)

  @property
  def tokens_per_call(self) -> float:
    """Tokens of a row per pass of the target."""
    return self.tokens / self.counts["target_calls"]

  @property
  def tokens_per_round(self) -> float:
    """The accepted drafts of a round and the token of the target."""
    return 1 + self.counts["accepted"] / self.counts["rounds"]

  def accepted_of_tested(self, drafts: int) -> float:
    """The share of drafts in a row that are accepted if those before them are; ``drafts`` of them in a round."""
    return acceptance_for(self.tokens_per_round, drafts)


def against_plain(
  fast: Decoder, plain: Decoder, condition: PyTree, *, max_len: int, repeats: int, seed: int = 0
) -> AgainstPlain:
  """Decodes ``condition`` by both in turns, ``repeats`` times after one turn that is not counted, then bare rounds.

  Args:
    seed: turn i of either side has the key of ``seed + i``.
  """
  outcomes = []

  def turns(decoder: Decoder, keep: Callable[..., None]) -> Callable[[], Array]:
    numbers = itertools.count(seed)

    def turn():
      outcome = decoder(condition, key=jax.random.key(next(numbers)), max_len=max_len)
      keep(outcome)
      return outcome.tokens

    return turn

  seconds = measure.alternate({"plain": turns(plain, lambda _: None), "fast": turns(fast, outcomes.append)}, repeats)
  counted = [summarize(outcome.counters) for outcome in outcomes[1:]]
  parts, key = fast.parts, jax.random.key(seed)
  rounds = measure.loop_efficiency(
    parts.params, key, condition, drafter=parts.drafter, verifier=parts.verifier, max_len=max_len, repeats=repeats,
    whole=lambda: fast(condition, key=key, max_len=max_len),
  )  # fmt: skip
  counts = {name: sum(one[name] for one in counted) for name in ("rounds", "drafted", "accepted", "target_calls")}
  return AgainstPlain(seconds["plain"], seconds["fast"], repeats * condition.batch_size * max_len, counts, rounds)
