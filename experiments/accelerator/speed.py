"""Speed at published sizes: plain decoding against the memory floor, and every method against plain decoding."""

from __future__ import annotations

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp

from experiments.accelerator.ledger import Clock, Ledger
from experiments.accelerator.networks import SIZES, Networks, method_names
from experiments.bench.gpt_b import bandwidth
from jaxspec.decode import measure
from jaxspec.decoder import Decoder
from jaxspec.methods import Method, Plain
from jaxspec.models.conditions import ClassLabels
from jaxspec.sampling import SamplingConfig

BATCHES, ACCEPTANCES, REPEATS = (1, 8, 32), (0.7, 0.9, 0.5), 5
REHEARSED = ("speculative", "sjd", "eagle", "ciar")  # one of each kind of draft
SAMPLING = SamplingConfig(cfg_scale=4.0, top_k=2000)  # as released


def run(ledger: Ledger, clock: Clock, rehearse: bool) -> None:
  """Bandwidth, plain decoding of all sizes, then methods: small batches and the middle acceptance first."""
  sizes, batches, acceptances = (("tiny",), (2,), (0.7,)) if rehearse else (SIZES, BATCHES, ACCEPTANCES)
  read = ledger.cell("bytes per second", clock, lambda: bandwidth(64 if rehearse else 8192))
  for batch in batches:
    for size in sizes:
      bench = Bench(size, batch, rehearse)
      ledger.cell(f"{size} batch {batch} plain", clock, lambda: bench.plain_figures(read))  # noqa: B023, called at once
  for acceptance in acceptances:
    for batch in batches:
      for size in sizes:
        bench = Bench(size, batch, rehearse)
        for name in REHEARSED if rehearse else method_names():
          cell = f"{size} batch {batch} {name} acceptance {acceptance:g}"
          ledger.cell(cell, clock, lambda: bench.figures(name, acceptance))  # noqa: B023


class Bench:
  """Decodes of one size at one batch size; networks and programs are made when they are needed."""

  def __init__(self, size: str, batch: int, rehearse: bool):
    self._networks, self._batch = Networks(size, rehearse), batch
    self._sampling = SamplingConfig(cfg_scale=4.0, top_k=8) if rehearse else SAMPLING
    self._repeats = 2 if rehearse else REPEATS
    config = self._networks.config
    self._tokens = config.num_tokens
    self._condition = ClassLabels(jnp.arange(batch, dtype=jnp.int32) % config.num_classes)

  def _decoder(self, method: Method, imposed: float | None = None) -> Decoder:
    networks = self._networks
    config, codes = networks.config, lambda: networks.codebook
    kwargs = dict(vocab_size=config.vocab_size, num_tokens=config.num_tokens, grid=(config.grid,) * 2, codebook=codes)
    return Decoder(networks.target, method, sampling=self._sampling, imposed=imposed, **kwargs)

  def _timed_first(self, decoder: Decoder) -> float:
    started = time.perf_counter()
    jax.block_until_ready(decoder(self._condition, key=jax.random.key(0)).tokens)
    return time.perf_counter() - started

  @functools.cached_property
  def _plain(self) -> tuple[Decoder, float]:
    decoder = self._decoder(Plain())
    return decoder, self._timed_first(decoder)

  def plain_figures(self, read: float) -> dict[str, Any]:
    """Plain decoding: tokens per second, and the share of the time that reading the weights once a token would take."""
    decoder, compile_s = self._plain
    keys = iter(range(1, 100))
    call = lambda: decoder(self._condition, key=jax.random.key(next(keys))).tokens
    seconds = measure.Timing.of(measure.alternate({"plain": call}, self._repeats)["plain"])
    paths = jax.tree_util.tree_leaves_with_path(self._networks.target.params)
    streamed = sum(leaf.nbytes for path, leaf in paths if "embed" not in str(path))
    return {
      "seconds": seconds._asdict(),
      "tokens_per_s": self._batch * self._tokens / seconds.median,
      "step_ms": 1e3 * seconds.median / self._tokens,
      "streamed_mb": streamed / 1e6,
      "share_of_memory_floor": self._tokens * streamed / read / seconds.median,
      "first_call_s": compile_s,
    }

  def figures(self, name: str, acceptance: float) -> dict[str, Any]:
    """A method over plain decoding, in turns."""
    plain, _ = self._plain
    decoder = self._decoder(self._networks.method(name), acceptance)
    compile_s, outcomes = self._timed_first(decoder), []
    plain_keys, keys = iter(range(1, 100)), iter(range(1, 100))

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
    return {
      "over_plain": measure.pairwise_ratio(seconds["plain"], seconds["fast"])._asdict(),
      "tokens_per_s": self._batch * self._tokens / measure.Timing.of(seconds["fast"]).median,
      "tokens_per_call": len(counters) * self._batch * self._tokens / total("target_calls"),
      "accepted_of_drafted": total("accepted") / max(total("drafted"), 1),
      "round_ms": 1e3 * rounds.round_s,
      "loop_efficiency": rounds.efficiency._asdict(),
      "first_call_s": compile_s,
    }
