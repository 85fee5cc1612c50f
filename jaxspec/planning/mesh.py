"""What of a network is divided over a mesh ``("data", "model")``, and what every device holds whole.

Rows of a batch are divided over ``data``. The matrices of the blocks are divided over ``model``: those before the heads and
the MLP's units by their outputs (columns of ``x @ w``), those after them by their inputs (rows), so that a block needs two
sums over the devices. Caches go with the heads. Norms, positions and denoising heads are whole everywhere, and so are tables
whose sides the axis does not divide.
"""

from __future__ import annotations

import enum
import math
import re
from typing import NamedTuple


class Use(enum.Enum):
  """When a parameter is multiplied, once for every input."""

  PASS = "in every pass"
  HEAD = "for inputs whose logits are read"
  STEP = "in every step of a diffusion head"
  CONDITION = "for the condition only"
  LOOKUP = "never: rows are looked up"
  ADDED = "never: norms and biases"


class Rule(NamedTuple):
  """How a parameter is used, and the axis that ``model`` divides; None is whole."""

  use: Use
  axis: int | None = None
  required: bool = False  # whether the axis must be divisible, because activations are divided in the same way


# By path, the first that fits. Weights are [out, in].
_RULES: tuple[tuple[str, Rule], ...] = (
  (r"(.*\.)?\w*norm\.(weight|bias)", Rule(Use.ADDED)),
  (r"cls_embedding\.cap_proj\..*", Rule(Use.CONDITION)),
  (r"(.*\.)?(tok_embeddings|embed_tokens|wte)\.weight", Rule(Use.LOOKUP, 1)),
  (r"(.*\.)?(embedding_table|class_emb)\.weight", Rule(Use.LOOKUP)),
  (r"(.*\.)?(wpe\.weight|uncond_embedding|\w+_learned|mask_token|fake_latent)", Rule(Use.LOOKUP)),
  (r"(.*\.)?((output|lm_head)\.weight|(centre|radius)_weight)", Rule(Use.HEAD, 0)),
  (r"diffloss\.(time|cond)_embed\..*", Rule(Use.ADDED)),  # once for a schedule and once for a token: next to nothing
  (r"diffloss\.(input_proj|res_blocks_\d+|final_layer)\..*weight", Rule(Use.STEP)),
  (r"(.*\.)?(wqkv|qkv|[qkv]_proj|w[qkv]|w1|w3|gate_proj|up_proj|c_fc|fc1)\.(weight|bias)", Rule(Use.PASS, 0, True)),
  (r"(.*\.)?(wo|w2|[oc]_proj|out_proj|down_proj|fc2|proj)\.weight", Rule(Use.PASS, 1, True)),
)


def rule_of(path: str, shape: tuple[int, ...], *, tied: bool = False) -> Rule:
  """The rule of a parameter.

  Args:
    path: names joined by dots.
    tied: whether the token table is the output matrix, too.
  """
  found = next((rule for pattern, rule in _RULES if re.fullmatch(pattern, path)), None)
  if found is None or (len(shape) < 2 and found.use is not Use.LOOKUP):
    rest = Use.PASS if len(shape) == 2 and path.endswith("weight") else Use.ADDED
    found = Rule(rest) if found is None else Rule(Use.ADDED, found.axis, found.required)
  if tied and re.fullmatch(r"(.*\.)?(embed_tokens|wte)\.weight", path):
    return Rule(Use.HEAD, 0)
  return found


def divisors(*sizes: int) -> list[int]:
  """What divides all sizes, ascending."""
  common = math.gcd(*sizes)
  return [size for size in range(1, common + 1) if common % size == 0]
