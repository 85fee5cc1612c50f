"""What a method gains over plain decoding at an imposed acceptance, measured on random weights of a published size."""

from __future__ import annotations

import functools
import time
from typing import Any

import jax

from jaxspec.acceptance import acceptance_for
from jaxspec.decode import measure
from jaxspec.decoder import Decoder
from jaxspec.methods import Method, Plain
from jaxspec.planning.devices import Slice
from jaxspec.planning.models import Model
from jaxspec.planning.plan import make_plan
from jaxspec.planning.random_weights import RandomModel
from jaxspec.sampling import SamplingConfig


class ImposedBench:
  """Decodes of one batch size; plain decoding is compiled once for all methods.

  Args:
    random: the networks.
    batch: rows.
    sampling: settings of both decodes.
    repeats: counted turns.
    device: whose limits the floors are; see `jaxspec.planning.this_machine`.
    draft: what `RandomModel` was made with, for the floors.
  """

  def __init__(
    self, random: RandomModel, batch: int, sampling: SamplingConfig, repeats: int, device: Slice, draft: Model | None = None
  ):
    self._random, self._batch, self._sampling, self._repeats = random, batch, sampling, repeats
    self._device, self._draft = device, draft
    self._tokens = random.model.num_tokens
    self._condition = random.condition(batch)

  @functools.cached_property
  def _plain(self) -> tuple[Decoder, float]:
    decoder = self._random.decoder(Plain(), self._sampling)
    return decoder, self._seconds_of_first_call(decoder)

  def _seconds_of_first_call(self, decoder: Decoder) -> float:
    return measure.seconds_of(lambda: decoder(self._condition, key=jax.random.key(0)).tokens)

  def _floor_s(self, method: Method, acceptance: float | None = None) -> float:
    """Seconds of a round at the device's limits."""
    plan = make_plan(
      self._random.model, self._device, batches=(self._batch,), method=method, sampling=self._sampling, draft=self._draft,
      dtype=self._random.dtype, acceptance=acceptance,
    )  # fmt: skip
    return plan.batches[0].speed.round_s

  def plain(self) -> dict[str, Any]:
    """Plain decoding alone."""
    decoder, first_s = self._plain
    keys = iter(range(1, self._repeats + 2))
    call = lambda: decoder(self._condition, key=jax.random.key(next(keys))).tokens
    seconds = measure.Timing.of(measure.alternate({"plain": call}, self._repeats)["plain"])
    step_s = seconds.median / self._tokens
    return {
      "seconds": seconds._asdict(),
      "tokens_per_s": self._batch / step_s,
      "step_ms": 1e3 * step_s,
      "share_of_floor": self._floor_s(Plain()) / step_s,
      "first_call_s": first_s,
    }

  def figures(self, method: Method, acceptance: float) -> dict[str, Any]:
    """A method and plain decoding in turns.

    Returns:
      ``over_plain`` (pairwise ratios of seconds), ``tokens_per_s``, ``tokens_per_call``, ``accepted_of_tested`` (of the
      drafts whose predecessors were accepted; None for trees, whose paths have any length), ``step_ms`` of plain decoding,
      ``round_ms`` of a bare round, ``floor_ms`` of a round at the device's limits, ``break_even`` (the acceptance at which a
      bare round is worth its plain steps; None if no acceptance is enough), ``loop_efficiency``, ``first_call_s``.
    """
    plain, _ = self._plain
    decoder = self._random.decoder(method, self._sampling, acceptance)
    started = time.perf_counter()
    jax.block_until_ready(decoder(self._condition, key=jax.random.key(0)).tokens)
    first_s, outcomes = time.perf_counter() - started, []
    plain_keys, keys = (iter(range(1, self._repeats + 2)) for _ in range(2))

    def fast():
      outcomes.append(decoder(self._condition, key=jax.random.key(next(keys))))
      return outcomes[-1].tokens

    calls = {"plain": lambda: plain(self._condition, key=jax.random.key(next(plain_keys))).tokens, "fast": fast}
    seconds = measure.alternate(calls, self._repeats)
    counters = [jax.device_get(outcome.counters) for outcome in outcomes[1:]]
    total = lambda field: int(sum(getattr(counter, field).sum() for counter in counters))
    parts = decoder.parts
    rounds = measure.loop_efficiency(
      parts.params, jax.random.key(1), self._condition, drafter=parts.drafter, verifier=parts.verifier,
      max_len=self._tokens, whole=lambda: decoder(self._condition, key=jax.random.key(1)), repeats=self._repeats,
    )  # fmt: skip
    step_s = measure.Timing.of(seconds["plain"]).median / self._tokens
    drafts = method.longest_path()
    is_chain = drafts == method.drafts_per_round()
    return {
      "over_plain": measure.pairwise_ratio(seconds["plain"], seconds["fast"])._asdict(),
      "tokens_per_s": self._batch * self._tokens / measure.Timing.of(seconds["fast"]).median,
      "tokens_per_call": len(counters) * self._batch * self._tokens / total("target_calls"),
      "accepted_of_tested": acceptance_for(1 + total("accepted") / total("rounds"), drafts) if is_chain else None,
      "step_ms": 1e3 * step_s,
      "round_ms": 1e3 * rounds.round_s,
      "floor_ms": 1e3 * self._floor_s(method, acceptance),
      "break_even": break_even(rounds.round_s / step_s, drafts),
      "loop_efficiency": rounds.efficiency._asdict(),
      "first_call_s": first_s,
    }


def break_even(steps: float, drafts: int) -> float | None:
  """The acceptance at which a round of ``drafts`` drafts in a row brings as many tokens as it costs plain steps.

  Args:
    steps: the cost of a round in plain steps.
  Returns:
    0 where a round costs no more than a step, None where no acceptance is enough.
  """
  return None if steps > drafts + 1 else acceptance_for(steps, drafts)
