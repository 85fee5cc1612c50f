"""What a method gains over plain decoding at an imposed acceptance, measured on random weights of a published size."""

from __future__ import annotations

import functools
from typing import Any

import jax

from jaxspec.acceptance import acceptance_for
from jaxspec.against_plain import against_plain
from jaxspec.decode import measure
from jaxspec.decoder import Decoder
from jaxspec.methods import Method, Plain
from jaxspec.planning.devices import Slice
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
  """

  def __init__(self, random: RandomModel, batch: int, sampling: SamplingConfig, repeats: int, device: Slice):
    self._random, self._batch, self._sampling, self._repeats, self._device = random, batch, sampling, repeats, device
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
    random = self._random
    plan = make_plan(
      random.model, self._device, batches=(self._batch,), method=method, sampling=self._sampling, draft=random.named_draft,
      dtype=random.dtype, acceptance=acceptance,
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
    first_s = self._seconds_of_first_call(decoder)
    found = against_plain(decoder, plain, self._condition, max_len=self._tokens, repeats=self._repeats)
    step_s = measure.Timing.of(found.plain_s).median / self._tokens
    drafts, rounds = method.longest_path(), found.rounds
    is_chain = drafts == method.drafts_per_round()
    return {
      "over_plain": found.over_plain._asdict(),
      "tokens_per_s": self._batch * self._tokens / measure.Timing.of(found.fast_s).median,
      "tokens_per_call": found.tokens_per_call,
      "accepted_of_tested": found.accepted_of_tested(drafts) if is_chain else None,
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
