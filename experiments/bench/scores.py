"""Time of a score on the edge: CIAR's against entropies of discrete sets (CIAR, arXiv 2603.25463, Figure 5).

Random heads of 512 codes (the shipped vocabulary) and of 16384 (LlamaGen's); seconds of one position, the median of compiled
sweeps over all positions, one after the other, without batching.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from experiments.engine.experiment import Experiment, Lab
from jaxspec.core import rng
from jaxspec.core.types import Intervals
from jaxspec.intervals.discrete import MAX_GENERIC
from jaxspec.intervals.scores import ScoreFn, make_score
from jaxspec.run.measure import Timing, alternate

WATERFILL, GAPS = (2, 4, 6, 8, 25, 50, 100, 200, 400), (2, 4, 8, 12, 25, 100)
SCORES = (
  "interval",
  "entropy",
  *(f"discrete:{k}" for k in WATERFILL),
  *(f"discrete:{k}:gap" for k in GAPS),
  *(f"discrete:{k}:generic" for k in range(2, MAX_GENERIC + 1, 2)),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores(Experiment):
  """Time of every score on random heads."""

  vocabularies: tuple[int, ...] = (512, 16384)
  positions: int = 32
  repeats: int = 5
  kind: ClassVar[str] = "scores"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    rows = [row for vocab in self.vocabularies for row in self._rows(vocab)]
    return {"positions": self.positions, "repeats": self.repeats, "rows": rows}

  def _rows(self, vocab: int) -> list[dict[str, Any]]:
    intervals, keys = random_heads(vocab, self.positions), rng.row_keys(jax.random.key(0), self.positions)
    calls = {}
    for name in SCORES:
      run = jax.jit(lambda x, k, score_fn=make_score(name): sweep(score_fn, x, k))
      calls[name] = lambda run=run: run(intervals, keys)
    return [
      {"score": name, "vocab": vocab} | {k: v / self.positions for k, v in Timing.of(values)._asdict().items()}
      for name, values in alternate(calls, self.repeats).items()
    ]


def sweep(score_fn: ScoreFn, intervals: Intervals, keys: jax.Array) -> jax.Array:
  """Sum of the scores of all positions ``[P, 1, 1, V]``, one after the other."""

  def one(_, position):
    at, key = position
    return None, score_fn(at, jnp.zeros((1, 1)), key[None])[0]

  return jnp.sum(jax.lax.scan(one, None, (intervals, keys))[1])


def random_heads(vocab: int, positions: int, seed: int = 0) -> Intervals:
  """Head outputs ``[P, 1, 1, V]`` with centres of spread 3 and radii around one half."""
  generator = np.random.default_rng(seed)
  shape = (positions, 1, 1, vocab)
  centre, radius = generator.normal(size=shape) * 3, generator.gamma(4, 1 / 8, size=shape)
  return Intervals(jnp.asarray(centre, jnp.float32), jnp.asarray(radius, jnp.float32))
