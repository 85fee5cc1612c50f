"""Prints what each formulation of a linear layer streams, for the installed version.

Command::

    python -m experiments.bench_linear

A ``[16384, 768]`` float32 matrix times M rows, as GB/s of weights read: the plain product, the ``[out, in]`` contraction,
and the transposed product behind a barrier. `jaxspec.models.linear.linear` should use the best one for each M.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.decode import measure
from jaxspec.models.linear import linear

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
SHAPE = (16384, 768)
FORMS = {
  "x @ w, w [in, out]": lambda x, w: x @ w,
  "w [out, in], contracted": lambda x, w: jax.lax.dot_general(x, w, (((1,), (1,)), ((), ()))),
  "transposed, barrier": lambda x, w: jax.lax.optimization_barrier(
    jax.lax.dot_general(w, x, (((1,), (1,)), ((), ())))
  ).T,
  "linear()": linear,
}


def main() -> None:
  weight = jax.random.normal(jax.random.key(0), SHAPE)
  print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}: GB/s of weights streamed")
  print("| formulation | " + " | ".join(f"M={m}" for m in ROWS) + " |")
  print("|---" * (len(ROWS) + 1) + "|")
  for name, form in FORMS.items():
    cells = []
    for rows in ROWS:
      x = jax.random.normal(jax.random.key(1), (rows, SHAPE[1]))
      stored = jnp.asarray(np.ascontiguousarray(weight.T)) if name.startswith("x @ w") else weight
      run = jax.jit(form)
      seconds = measure.alternate({"run": functools.partial(run, x, stored)}, 15)["run"]
      cells.append(f"{weight.nbytes / measure.Timing.of(seconds).median / 1e9:.1f}")
    print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
  main()
