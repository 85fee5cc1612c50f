"""The family of Janus-Pro networks for text to image.

The network reads the prompt in its own vocabulary, in the form of a conversation, and draws image codes.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

from tokenizers import Tokenizer

from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.families.family import FamilyParts
from jaxspec.families.prompted_images import PromptedImages, parts_of
from jaxspec.io.text import janus_vocabulary
from jaxspec.models.janus import code_embeddings


def make_family(target: Network, parts: FamilyParts) -> JanusFamily:
  """The family of a loaded checkpoint ``janus``; see `jaxspec.families.prompted_images.parts_of`.

  Raises:
    ValueError: if a part is missing or does not fit the target.
  """
  return JanusFamily(target, *parts_of(target, parts))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class JanusFamily(PromptedImages):
  """Images from texts."""

  fit_fields = ("vocab_size", "rows", "columns", "text_vocab_size", "begin_text", "begin_image", "pad")

  target: Network
  tokenizer: Network
  text: Tokenizer

  def __post_init__(self):
    config = self.target.config
    ids = janus_vocabulary.read_ids(self.text, self.target.folder)
    self.check_parts(config.vocab_size, config.text_vocab_size, ids)

  @functools.cached_property
  def space(self) -> TokenSpace:
    """Image codes."""
    config, params, tokenizer = self.target.config, self.target.params, self.tokenizer
    return TokenSpace(
      vocab_size=config.vocab_size,
      num_tokens=math.prod(config.grid),
      grid=config.grid,
      codebook=lambda: tokenizer.fns.codebook(tokenizer.params)[: config.vocab_size],
      embedding=lambda: code_embeddings(config, params),
    )

  def published_sampling(self) -> dict[str, Any]:
    """Of ``generation_inference.py``; its temperature is 1."""
    return {"cfg_scale": 5.0}

  def row_of(self, prompt: str) -> list[int]:
    """Ids of the official conversation; special tokens that a prompt names are these tokens, as in the official code."""
    config, content = self.target.config, prompt.strip()
    question = f"{config.user}: {content}\n\n" if content else f"{config.user}:"
    text = f"{question}{config.assistant}:{janus_vocabulary.BEGIN_IMAGE}"
    # The file adds the beginning for one loader and not for another: it is added here, and by nothing else.
    return [config.begin_text, *self.text.encode(text, add_special_tokens=False).ids]
