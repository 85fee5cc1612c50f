"""Chameleon networks as they draw images: tokens are local ids, prompts keep the ids of the vocabulary.

Local ids are the codes, and with row ends those that end rows and images (`ChameleonConfig.drawn_ids`). The output matrix
has their rows only, an eighth of all.
"""

from __future__ import annotations

import jax.numpy as jnp

from jaxspec.models.chameleon.chameleon import Chameleon, ChameleonConfig
from jaxspec.models.conditions import Prompt, align_right
from jaxspec.models.language.image_language import image_language_trunk
from jaxspec.models.trunk import declare


def null_prompt(config: ChameleonConfig, prompt: Prompt) -> Prompt:
  """The unconditional partner of prompts ``[B, P]``: their ends, in the same slots, with positions that begin at 0."""
  tokens, _ = align_right(prompt)
  first = tokens.shape[1] - config.null_length
  if first < 0:
    raise ValueError(f"Must have prompts of at least {config.null_length} tokens, we instead got {tokens.shape[1]}")
  if config.null_begins == "text":
    tokens = tokens.at[:, first].set(config.begin_text)
  mask = jnp.arange(tokens.shape[1])[None] >= first
  return Prompt(tokens, jnp.broadcast_to(mask, tokens.shape))


TRUNK = image_language_trunk(Chameleon, null_prompt)
declare("chameleon", ChameleonConfig, TRUNK)
drawing_fns, drawing_params = TRUNK.fns, TRUNK.params
