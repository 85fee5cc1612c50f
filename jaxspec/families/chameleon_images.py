"""Families of Chameleon networks for text to image: Anole, and Lumina-mGPT with its rows and sizes.

The network reads the prompt in its own vocabulary, without a text encoder. It draws local ids
(`jaxspec.models.chameleon.chameleon_drawing`): image codes, and for Lumina-mGPT also row ends, which are forced.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from tokenizers import Tokenizer

from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Array
from jaxspec.families.family import Encoded, FamilyParts, check_texts
from jaxspec.families.prompted_images import PromptedImages, parts_of
from jaxspec.io.text import image_vocabulary
from jaxspec.models.chameleon.chameleon_drawing import TRUNK, drawing_fns, drawing_params

# Lumina-mGPT's unit of image sizes, in codes.
_CELL = 2

# The settings of the released code: Anole's decoder, and Lumina-mGPT's defaults for images.
_PUBLISHED_SAMPLING = {
  "anole": {"cfg_scale": 3.0, "temperature": 0.7, "top_p": 0.9},
  "lumina": {"cfg_scale": 3.0, "top_k": 2000},
}


def make_family(target: Network, parts: FamilyParts) -> ChameleonFamily:
  """The family of a loaded checkpoint ``chameleon``; see `jaxspec.families.prompted_images.parts_of`.

  Raises:
    ValueError: if a part is missing or does not fit the target.
  """
  return ChameleonFamily(target, *parts_of(target, parts))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ChameleonFamily(PromptedImages):
  """Images from texts; ``target`` has its full output matrix."""

  fit_fields = (
    "vocab_size", "layout", "rows", "columns", "num_codes", "first_code", "begin_text", "end_image", "begin_image",
    "end_prompt", "end_row", "first_size",
  )  # fmt: skip

  target: Network
  tokenizer: Network
  text: Tokenizer

  def __post_init__(self):
    config = self.target.config
    ids = image_vocabulary.read_ids(self.text, self.target.folder)
    self.check_parts(config.num_codes, config.vocab_size, ids)

  @functools.cached_property
  def space(self) -> TokenSpace:
    """Local ids."""
    config, params = self.target.config, self.target.params
    return TokenSpace(
      vocab_size=len(config.drawn_ids),
      num_tokens=math.prod(config.grid),
      grid=config.grid,
      codebook=self._codebook,
      embedding=lambda: TRUNK.tables(config, drawing_params(config, params)).embedding,
      legal=config.image_rows,
      unit_codes=False,
    )

  def published_sampling(self) -> dict[str, Any]:
    return dict(_PUBLISHED_SAMPLING[self.target.config.layout])

  def network(self, loaded: Network, name: str) -> Network:
    """The network over local ids; its output matrix has their rows only."""
    if loaded.family_name != self.target.family_name:
      return super().network(loaded, name)
    config = loaded.config
    return dataclasses.replace(loaded, fns=drawing_fns(config), params=drawing_params(config, loaded.params), name=name)

  def _codebook(self) -> Array:
    """Rows of the codebook. Row ends have zeros, which are never compared: no other id is legal at their position."""
    config = self.target.config
    rows = self.tokenizer.fns.codebook(self.tokenizer.params)[: config.num_codes]
    return jnp.pad(rows, ((0, len(config.drawn_ids) - rows.shape[0]), (0, 0)))

  def encode(self, prompts: str | Sequence[str], captions: Sequence[str] | None = None) -> Encoded:
    """See `PromptedImages.encode`.

    Raises:
      ValueError: if a text has no token.
    """
    prompts = check_texts(prompts, "prompt")
    for number, prompt in enumerate(prompts, 1):
      if not self._ids(prompt):
        raise ValueError(f"Must have a token in every prompt, prompt {number} is {prompt!r}")
    return super().encode(prompts, captions)

  def row_of(self, prompt: str) -> list[int]:
    config, pixels = self.target.config, self.tokenizer.config.factor
    if not config.has_row_ends:
      return [config.begin_text, *self._ids(prompt), config.end_prompt, config.begin_image]
    size = f"{config.columns * pixels}x{config.rows * pixels}"
    text = f"Generate an image of {size} according to the following prompt:\n{prompt}"
    sides = [config.first_size + side // _CELL for side in (config.rows, config.columns)]  # the height comes first
    return [config.begin_text, *self._ids(text), config.end_prompt, config.begin_image, *sides]

  def _ids(self, text: str) -> list[int]:
    return self.text.encode(text, add_special_tokens=False).ids

  def codes_of(self, tokens: Array) -> Array:
    rows = self.target.config.image_rows
    return tokens if rows is None else rows.codes(tokens)
