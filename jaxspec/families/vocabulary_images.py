"""Images from texts by language models whose vocabulary has image codes (`jaxspec.models.language.image_language`).

They draw local ids: image codes, and in some families the tokens that end rows, which are forced. Chameleon and Emu3 are
such families.
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
from jaxspec.families.family import Encoded, check_texts
from jaxspec.families.prompted_images import PromptedImages
from jaxspec.models.trunk import trunk_of


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class VocabularyImages(PromptedImages):
  """Base of such families; ``target`` has its full output matrix."""

  target: Network
  tokenizer: Network
  text: Tokenizer

  def __post_init__(self):
    config = self.target.config
    self.check_parts(config.num_codes, config.vocab_size, self.vocabulary_fields())

  def vocabulary_fields(self) -> dict[str, Any]:
    """Fields of the network's config that the vocabulary determines.

    Raises:
      ValueError: for a vocabulary of another family.
    """
    raise NotImplementedError

  @functools.cached_property
  def space(self) -> TokenSpace:
    """Local ids."""
    config, params, trunk = self.target.config, self.target.params, trunk_of(self.target.config)
    return TokenSpace(
      vocab_size=len(config.drawn_ids),
      num_tokens=math.prod(config.grid),
      grid=config.grid,
      codebook=self._codebook,
      embedding=lambda: trunk.tables(config, trunk.params(config, params)).embedding,
      legal=config.image_rows,
      unit_codes=False,
    )

  def network(self, loaded: Network, name: str) -> Network:
    """The network over local ids; its output matrix has their rows only."""
    if loaded.family_name != self.target.family_name:
      return super().network(loaded, name)
    config, trunk = loaded.config, trunk_of(loaded.config)
    return dataclasses.replace(loaded, fns=trunk.fns(config), params=trunk.params(config, loaded.params), name=name)

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
      if not self.text_ids(prompt):
        raise ValueError(f"Must have a token in every prompt, prompt {number} is {prompt!r}")
    return super().encode(prompts, captions)

  def text_ids(self, text: str) -> list[int]:
    """Ids of a text alone."""
    return self.text.encode(text, add_special_tokens=False).ids

  def codes_of(self, tokens: Array) -> Array:
    """See `PromptedImages.codes_of`."""
    rows = self.target.config.image_rows
    return tokens if rows is None else rows.codes(tokens)
