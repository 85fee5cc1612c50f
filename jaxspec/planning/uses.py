"""Uses of a network's parameters by name: which are read and multiplied in a pass."""

from __future__ import annotations

import enum
import re


class Use(enum.Enum):
  """When a parameter is multiplied; at most once per input."""

  PASS = "in every pass"
  HEAD = "for inputs whose logits are read"
  STEP = "in every step of a diffusion head"
  CONDITION = "for the condition only"
  LOOKUP = "never: rows are looked up"
  ADDED = "never: norms and biases"


# By path; the first match counts. Weights are [out, in].
_USES: tuple[tuple[str, Use], ...] = (
  (r"(.*\.)?\w*norm\.(weight|bias)", Use.ADDED),
  (r"cls_embedding\.cap_proj\..*", Use.CONDITION),
  (r"(.*\.)?(tok_embeddings|embed_tokens|wte|wpe|embedding_table|class_emb|gen_embed)\.weight", Use.LOOKUP),
  (r"(.*\.)?(uncond_embedding|\w+_learned|mask_token|fake_latent)", Use.LOOKUP),
  (r"(.*\.)?((output|lm_head|vision_head)\.weight|(centre|radius)_weight)", Use.HEAD),
  (r"diffloss\.(time|cond)_embed\..*", Use.ADDED),  # once per schedule and once per token: negligible
  (r"diffloss\.(input_proj|res_blocks_\d+|final_layer)\..*weight", Use.STEP),
)
_TIED = re.compile(r"(.*\.)?(embed_tokens|wte)\.weight")


def use_of(path: str, shape: tuple[int, ...], *, tied: bool = False) -> Use:
  """The use of a parameter; matrices without a listed name are multiplied in every pass.

  Args:
    path: names joined by dots.
    tied: whether the token table is also the output matrix.
  """
  if tied and _TIED.fullmatch(path):
    return Use.HEAD
  found = next((use for pattern, use in _USES if re.fullmatch(pattern, path)), None)
  if found is Use.LOOKUP or (found is not None and len(shape) > 1):
    return found
  return Use.PASS if found is None and len(shape) == 2 and path.endswith("weight") else Use.ADDED
