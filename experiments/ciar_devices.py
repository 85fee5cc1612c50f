"""Devices of other depths, heads and losses, all at 30 % cloud calls (CIAR, arXiv 2603.25463, Tables 5, 6 and 7).

Commands (some six minutes for every device that the bundle holds: a search, a decode of 64 pictures, timings)::

    python -m experiments.ciar_devices --config depth
    python -m experiments.ciar_devices --config heads-1
    python -m experiments.ciar_devices --config loss-2

The tables in ``experiments/results`` compare devices of 300 steps each, in a bundle of their own, on 32 prompts::

    cp -r checkpoints/emoji64 runs/ablation
    for c in 1 1-without_centre 1-without_upper 1-without_lower 1-without_anchor 2 3 5 1x2 1x3 1x4 1x5; do
      python -m experiments.train_inter_head --config $c --run-dir runs/abl-$c --export runs/ablation \\
        --set loop.num_steps=300
    done
    for c in loss-1 depth heads-1; do
      python -m experiments.ciar_devices --config $c --untimed --set checkpoint=runs/ablation --set num_train=24 \\
        --set num_held_out=4
    done

``depth`` compares inter-1, -2, -3 and -5; ``heads-L`` devices of L layers with 1 to 5 heads, as ensemble and by vote;
``loss-L`` the ablations of the Inter-DRO loss. Devices come from `experiments.train_inter_head` (``--config 3``, ``1x4``,
``2-without_upper`` and so on); those that the bundle lacks are named below the table. Thresholds do not carry over between
devices, so each is brought to the same rate: better devices then show in the pictures, not in the calls.

Published: depth lowers the call rate (30.4 % to 25.7 %) and the distance a little; two or three heads are best; without the
upper bound's loss, or without anchors, the distance doubles.
"""

from __future__ import annotations

import re

from experiments.ciar_rows import RHO, GatedRun, Row
from experiments.ciar_table import main
from jaxspec.intervals.heads import COMBINATIONS
from jaxspec.training.inter_dro import ABLATIONS

DEPTHS = (1, 2, 3, 5)
HEADS = (1, 2, 3, 4, 5)
RATE = 0.3


def get_config(arg: str = "depth") -> GatedRun:
  """``depth``, ``heads-L`` or ``loss-L``.

  Raises:
    ValueError: for anything else.
  """
  match = re.fullmatch(r"(depth)|(heads|loss)-(\d+)", arg or "depth")
  if match is None:
    raise ValueError(f"Must have depth, heads-L or loss-L, we instead got {arg!r}")
  at_rate = dict(rho=RHO, rate=RATE)
  if match[1]:
    rows = [Row.gated(f"{depth} layers", device=f"inter-{depth}", **at_rate) for depth in DEPTHS]
    return GatedRun("ciar_depth", "CIAR over the depth of its device", entries=tuple(rows))
  layers = match[3]
  if match[2] == "heads":
    rows = [Row.gated("1 head", device=f"inter-{layers}", **at_rate)]
    for heads in HEADS[1:]:
      device = f"inter-{layers}x{heads}"
      rows += [Row.gated(f"{heads} heads, {how}", device=device, combination=how, **at_rate) for how in COMBINATIONS]
    return GatedRun(f"ciar_heads_{layers}", f"CIAR over its heads, {layers} layers", entries=tuple(rows))
  named = {name: f"inter-{layers}" + ("" if name == "full" else f"-{name}") for name in ABLATIONS}
  rows = [Row.gated(name.replace("_", " "), device=device, **at_rate) for name, device in named.items()]
  return GatedRun(f"ciar_loss_{layers}", f"Ablations of the Inter-DRO loss, {layers} layers", entries=tuple(rows))


if __name__ == "__main__":
  main(get_config)
