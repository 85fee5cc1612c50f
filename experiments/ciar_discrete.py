"""Entropy of a set of laws on k tokens in the place of CIAR's uncertainty, at equal calls (arXiv 2603.25463, Table 3).

Commands (40 minutes on two idle cores: some eight decodes of 64 pictures for every row; the table in
``experiments/results`` is of 32 prompts)::

    python -m experiments.ciar_discrete --device inter-2
    python -m experiments.ciar_discrete --device inter-2 --untimed --set num_train=24 --set num_held_out=4

The paper compares k of 100 to 400 of its 16384 codes and gives no definition; `jaxspec.intervals.discrete` has ours. The
vocabulary here has 512 codes. What the score costs is in `experiments.ciar_solvers`.

Published: distances of 24.8 to 26.0 for the discrete measure, 24.2 for the continuous one.
"""

from __future__ import annotations

from experiments.ciar_rows import RHO, GatedRun, Row
from experiments.ciar_table import main
from jaxspec.intervals.discrete import DiscreteSet

SIZES = (10, 25, 50, 100)
RATE = 0.3


def get_config(arg: str = "") -> GatedRun:
  """``arg`` is a form of `DiscreteSet`: ``upper`` entropy (by default) or ``gap``.

  Raises:
    ValueError: for another form.
  """
  form = arg or "upper"
  if form not in DiscreteSet.FORMS:
    raise ValueError(f"Must have a form in {', '.join(DiscreteSet.FORMS)}, we instead got {form!r}")
  at_rate = dict(rho=RHO, rate=RATE)
  rows = [Row.gated(f"k {k}, {form}", score=f"discrete:{k}:{form}", **at_rate) for k in SIZES]
  rows.append(Row.gated("CIAR", score="interval", **at_rate))
  name = "ciar_discrete" if form == "upper" else f"ciar_discrete_{form}"
  return GatedRun(name, f"Discrete sets at {100 * RATE:g} % cloud calls", entries=tuple(rows))


if __name__ == "__main__":
  main(get_config)
