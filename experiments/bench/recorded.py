"""Speed of random weights with recorded acceptance, against the real decode.

Every method decodes with the shipped networks, and the numbers of accepted drafts are recorded, of CIAR also the positions
of its calls. Networks of the same shapes with random weights then decode with the recording, and with its two means: one
acceptance and one share of calls, which ``jaxspec bench-model --acceptance --calls`` takes. All take turns with plain
decoding of their own weights.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from experiments.engine.experiment import Experiment, Lab
from experiments.engine.race import CAPTIONS
from experiments.engine.rows import PLAIN, Row, row
from jaxspec.core.network import Network
from jaxspec.core.types import PyTree
from jaxspec.planning.imposed_bench import imposed_of
from jaxspec.planning.random_weights import filled
from jaxspec.planning.recorded_acceptance import RecordedAcceptance
from jaxspec.run import measure
from jaxspec.run.decoder import Decoder
from jaxspec.run.pipeline import Pipeline

METHODS = (
  row("speculative", "speculative", draft="draft-1"),
  row("sjd", "sjd"),
  row("eagle-chain", "eagle-chain"),
  row("eagle", "eagle"),
  row("ciar", "ciar"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recorded(Experiment):
  """Measured speed over plain decoding, and the speed that recorded acceptance predicts.

  Attributes:
    samples: recorded images of each prompt; their keys differ from those of the timed ones.
    turns: timed decodes of each kind.
    max_len: tokens of a row; 0 takes all.
  """

  bundle: str = "scenes"
  methods: tuple[Row, ...] = METHODS
  batches: tuple[int, ...] = (1, 8)
  samples: int = 4
  turns: int = 8
  max_len: int = 0
  kind: ClassVar[str] = "recorded"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    pipeline = lab.pipeline(self.bundle)
    length = self.max_len or pipeline.family.space.num_tokens
    encoded = pipeline.encode(list(CAPTIONS)).condition
    every = jax.tree.map(lambda leaf: jnp.tile(leaf, (self.samples,) + (1,) * (leaf.ndim - 1)), encoded)
    rows = []
    for entry in self.methods:
      decoder = decoder_of(pipeline, entry)
      logging.info("recording %s", entry.name)
      outcome = decoder(every, key=jax.random.key(1 << 20), max_len=length)
      recorded = RecordedAcceptance.of(decoder, outcome)
      others = {
        "measured": (decoder, decoder_of(pipeline, PLAIN)),
      }
      by_means = imposed_of(decoder.method, recorded.acceptance, recorded.calls)
      for name, imposed in (("predicted", recorded.imposed), ("by_means", by_means)):
        random = dataclasses.replace(at_random(decoder), imposed=imposed)
        others[name] = random, at_random(decoder_of(pipeline, PLAIN))
      for batch in self.batches:
        logging.info("batch %d: %s", batch, entry.name)
        found = self._race(others, encoded, batch, length)
        means = {"acceptance": recorded.acceptance, "calls": recorded.calls}
        rows.append({"label": entry.name, "batch": batch, **means, **found})
    return {"source": pipeline.name, "num_tokens": length, "turns": self.turns, "rows": rows}

  def _race(self, pairs: dict[str, tuple[Decoder, Decoder]], condition: PyTree, batch: int, length: int) -> dict[str, Any]:
    """Pairwise ratios of each pair, and their numbers of passes of the target."""
    calls, made = {}, {name: [] for name in pairs}
    for name, (fast, plain) in pairs.items():
      calls[f"{name} plain"] = turns(plain, condition, batch, length, lambda _: None)
      calls[name] = turns(fast, condition, batch, length, made[name].append)
    seconds = measure.alternate(calls, self.turns)
    passes = lambda name: sum(int(one.counters.target_calls.sum()) for one in made[name][1:]) / (self.turns * batch)
    return {
      name: measure.pairwise_ratio(seconds[f"{name} plain"], seconds[name])._asdict() | {"target_calls": passes(name)}
      for name in pairs
    }


def decoder_of(pipeline: Pipeline, entry: Row) -> Decoder:
  """The decoder of a row."""
  return pipeline.decoder(entry.value(pipeline), **dict(entry.sampling))


def at_random(decoder: Decoder) -> Decoder:
  """The same decoder of networks with random weights."""
  draft = None if decoder.draft is None else shuffled(decoder.draft, 1)
  return dataclasses.replace(decoder, target=shuffled(decoder.target, 0), draft=draft)


def shuffled(network: Network, seed: int) -> Network:
  """A network of the same shapes with random weights."""
  shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), network.params)
  return dataclasses.replace(network, params=filled(shapes, seed))


def turns(decoder: Decoder, condition: PyTree, batch: int, length: int, keep: Callable[[Any], Any]) -> Callable[[], Any]:
  """A call that decodes the next ``batch`` rows with the next key."""
  numbers = itertools.count()

  def turn():
    number = next(numbers)
    at = (number * batch + jnp.arange(batch)) % condition.batch_size
    rows = jax.tree.map(lambda leaf: leaf[at], condition)
    outcome = decoder(rows, key=jax.random.key(number), max_len=length)
    keep(outcome)
    return outcome.tokens

  return turn
