"""Memory bandwidth of each formulation of a linear layer, for the installed version.

A ``[16384, 768]`` float32 matrix times M rows, as GB/s of weights read: the plain product, the ``[out, in]`` contraction,
and the transposed product after a barrier. `jaxspec.models.nn.linear.linear` should use the best one for each M.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from experiments.engine.experiment import Experiment, Lab
from jaxspec.models.nn.linear import linear
from jaxspec.run import measure

FORMS = {
  "x @ w, w [in, out]": lambda x, w: x @ w,
  "w [out, in], contracted": lambda x, w: jax.lax.dot_general(x, w, (((1,), (1,)), ((), ()))),
  "transposed, barrier": lambda x, w: jax.lax.optimization_barrier(jax.lax.dot_general(w, x, (((1,), (1,)), ((), ())))).T,
  "linear()": linear,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear(Experiment):
  """GB/s of weights streamed, medians."""

  num_rows: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
  out_size: int = 16384
  in_size: int = 768
  repeats: int = 15
  kind: ClassVar[str] = "grid"

  def measure(self, lab: Lab) -> dict[str, Any]:
    """See `Experiment.measure`."""
    weight, rows = jax.random.normal(jax.random.key(0), (self.out_size, self.in_size)), []
    for name, form in FORMS.items():
      stored = jnp.asarray(np.ascontiguousarray(weight.T)) if name.startswith("x @ w") else weight
      cells = []
      for number in self.num_rows:
        x = jax.random.normal(jax.random.key(1), (number, self.in_size))
        seconds = measure.alternate({"run": functools.partial(jax.jit(form), x, stored)}, self.repeats)["run"]
        bandwidths = sorted(weight.nbytes / value / 1e9 for value in seconds)
        cells.append(f"{bandwidths[len(bandwidths) // 2]:.1f} [{bandwidths[0]:.1f}, {bandwidths[-1]:.1f}]")
      rows.append({"cells": [name, *cells]})
    return {
      "head": ["formulation", *(f"M={number}" for number in self.num_rows)],
      "intro": f"GB/s of weights streamed, median [lowest, highest] of {self.repeats}.",
      "below": "Two cells whose brackets overlap do not differ significantly.",
      "rows": rows,
    }
