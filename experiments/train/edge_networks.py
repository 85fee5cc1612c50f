"""The edge networks that the tables of CIAR compare, by name; `experiments.train.devices` trains them.

A config is the number of layers, ``1``, ``2``, ``3`` or ``5`` (Table 5), optionally with heads (``2x3``: two layers, three
heads; Table 6) and another loss: an ablation (``2-without_upper``; Table 7, names in `jaxspec.training.inter_dro.ABLATIONS`)
or other weights (``2-alpha_4``, names in `SWEEP`). A seed other than 0 is part of the network's name.

Time: a step of 8 images at depth 2 takes one to one and a half processor seconds, so the default 800 steps take a quarter
of an hour, plus the samples.
"""

from __future__ import annotations

import hashlib
import re

from jaxspec.training.distillation.inter_head_student import InterHeadSettings
from jaxspec.training.inter_dro import ABLATIONS, InterDro

DEPTHS = (1, 2, 3, 5)
# Weights of the loss, one varied at a time; the paper gives no values.
_WALKED = {"variation": (0, 4), "cross_entropy": (0, 1), "divergence": (0, 4), "alpha": (0, 4)}
SWEEP = {f"{name}_{value}": InterDro(**{name: float(value)}) for name, values in _WALKED.items() for value in values}
LOSSES = ABLATIONS | SWEEP


def get_config(arg: str = "2") -> InterHeadSettings:
  """Settings of a config: ``layers``, ``layersxheads``, and ``-loss`` after either.

  Raises:
    ValueError: for anything else.
  """
  match = re.fullmatch(r"(\d+)(?:x(\d+))?(?:-(\w+))?", arg)
  if match is None or int(match[1]) not in DEPTHS or (match[3] or "full") not in LOSSES:
    raise ValueError(f"Must have layers in {DEPTHS}, heads, and one of {', '.join(LOSSES)}, we instead got {arg!r}")
  return InterHeadSettings(num_layers=int(match[1]), num_heads=int(match[2] or 1), loss=LOSSES[match[3] or "full"])


def name_of(run: InterHeadSettings) -> str:
  """Name of the edge network in its bundle."""
  heads = f"x{run.num_heads}" if run.num_heads > 1 else ""
  digest = hashlib.sha256(repr(run.loss).encode()).hexdigest()[:6]
  loss = next((name for name, known in LOSSES.items() if known == run.loss), f"custom_{digest}")
  ends = [loss] * (loss != "full") + ["guided"] * run.guided + [f"seed{run.seed}"] * bool(run.seed)
  return "-".join([f"inter-{run.num_layers}{heads}", *ends])
