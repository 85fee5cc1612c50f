"""Time saved by limiting MAR's encoder to the known tokens, against the plain scheme.

Random weights of a published size; one program per number of buckets. One bucket still uses the known schedule; "plain" is a
masked network without a generation order, which encodes all positions in every iteration. Expected: the share that
`jaxspec.models.mar.mar.multiply_adds` predicts, printed beside the measured one; the diffusion head is common to all, and
hides more of it with more steps.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from experiments.engine import statistics
from experiments.engine.cells import spread
from experiments.engine.experiment import Experiment, Lab
from jaxspec.methods import masked_decode
from jaxspec.models.conditions import ClassLabels
from jaxspec.models.mar.mar import MARConfig, mar_fns
from jaxspec.run import measure
from jaxspec.sampling import unmasking


@dataclasses.dataclass(frozen=True, kw_only=True)
class Buckets(Experiment):
  """Generations with 1, 2, 4 and 8 buckets and without any.

  Attributes:
    size: a published one; ``depth`` is the number of layers of encoder and decoder, 0 for the published one.
    scale: of guidance; 1 is none.
  """

  size: str = "MAR-B"
  depth: int = 0
  batch: int = 1
  num_iter: int = 64
  num_steps: int = 25
  scale: float = 1.0
  repeats: int = 3
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    depth = dict(encoder_depth=self.depth, decoder_depth=self.depth) if self.depth else {}
    config = MARConfig.named(self.size, **depth)
    fns = mar_fns(config)
    # The plain scheme's encoder treats all tokens as known from the first iteration.
    plain = fns._replace(condition=_encode_everything(fns.condition, config.num_tokens))
    params = jax.jit(fns.init)(jax.random.key(0))
    condition = ClassLabels(jnp.arange(self.batch, dtype=jnp.int32))

    def run(model, num_buckets):
      scale = None if self.scale == 1 else self.scale
      kwargs = dict(num_iter=self.num_iter, num_steps=self.num_steps, scale=scale, num_buckets=num_buckets)
      return masked_decode.generate_masked(model, params, jax.random.key(1), condition, **kwargs).tokens

    runs = {"plain": functools.partial(run, plain, 1)}
    runs |= {f"{n} buckets": functools.partial(run, fns, n) for n in (1, 2, 4, 8)}
    seconds = measure.alternate(runs, self.repeats)
    schedule = unmasking.iterations(config.num_tokens, self.num_iter)
    everything = sum(fns.cost(config.num_tokens, max(i.count for i in schedule), self.num_steps) for _ in schedule)
    rows = []
    for name, times in seconds.items():
      cost = everything
      if name != "plain":
        cut = unmasking.buckets(schedule, int(name.split()[0]), masked_decode._cost_fn(fns, self.num_steps))
        cost = sum(len(b.iterations) * fns.cost(b.slots, b.width, self.num_steps) for b in cut)
      faster = statistics.ratio(times, seconds["plain"])  # time of the row over that of plain
      rows.append({"cells": [name, f"{statistics.median(times):.2f}", spread(faster), f"{cost / everything:.2f}"]})
    return {
      "head": ["scheme", "seconds", "time over plain", "predicted"],
      "intro": f"{self.size}, {config.encoder_depth} layers, batch {self.batch}, median [lowest, highest] of {self.repeats} "
      "turns.",
      "below": "Two rows whose brackets overlap do not differ significantly.",
      "rows": rows,
    }


def _encode_everything(condition_fn, num_tokens: int):
  """The same conditions from an encoder over all positions."""

  def condition(params, tokens, *args, **kwargs):
    padded = jnp.pad(tokens, ((0, 0), (0, num_tokens - tokens.shape[1]), (0, 0)))
    return condition_fn(params, padded, *args, **kwargs)

  return condition
