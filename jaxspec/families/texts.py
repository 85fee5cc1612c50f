"""Families of language models: prompts of different lengths, and their continuations up to an end token."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer

from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import HostArray
from jaxspec.errors import PromptError
from jaxspec.families.family import Encoded, Family, FamilyParts, check_captions, check_texts
from jaxspec.io.text import language_tokenizer
from jaxspec.models import registry
from jaxspec.models.conditions import Prompt


def make_family(target: Network, parts: FamilyParts) -> TextFamily:
  """The family of a language model with its ``tokenizer.json`` beside its weights; there are no other parts.

  Raises:
    ValueError: if the tokenizer is missing or has more tokens than the network.
  """
  del parts
  return TextFamily(target, language_tokenizer.load_tokenizer(target.folder))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class TextFamily(Family):
  """Continuations of texts.

  Attributes:
    target: the network that draws ids.
    tokenizer: a tokenizer of the ``tokenizers`` library.
  """

  condition_type = Prompt
  noun = "text"
  fit_fields = ("vocab_size",)

  target: Network
  tokenizer: Tokenizer

  def __post_init__(self):
    if self.tokenizer.get_vocab_size() > self.target.config.vocab_size:
      raise ValueError(f"Corrupt {self.target.path}: its tokenizer has more tokens than the network")

  @property
  def end_token(self) -> tuple[int, ...] | None:
    return tuple(self.target.config.end_ids) or None

  @property
  def draft_families(self) -> tuple[str, ...]:
    """Every family of language models: a draft needs the same tokens, not the same architecture."""
    maker = registry.FAMILIES[self.target.family_name].make_family
    return tuple(name for name, spec in registry.FAMILIES.items() if spec.make_family == maker)

  @functools.cached_property
  def space(self) -> TokenSpace:
    params, names = self.target.params, ("embed_tokens", "wte")
    embedding = lambda: next(params[name] for name in names if name in params)["weight"]
    return TokenSpace(vocab_size=self.target.config.vocab_size, embedding=embedding)

  def encode(self, prompts: str | Sequence[str], captions: Sequence[str] | None = None) -> Encoded:
    """`Prompt` of texts, padded on the left.

    Raises:
      ValueError: if a text has no token.
    """
    prompts = check_texts(prompts, "text")
    rows = language_tokenizer.encode(self.tokenizer, prompts)
    return Encoded(language_tokenizer.pad_left(rows), check_captions(captions, prompts, "texts"))

  def decode(self, tokens: HostArray, *, lengths=None, condition: Prompt | None = None, sampling=None) -> list[str]:
    """Texts of ``tokens [B, N]``, the first ``lengths [B]`` of each row; with a condition, the texts include their
    prompts."""
    del sampling
    tokens = np.asarray(tokens)
    lengths = np.full(len(tokens), tokens.shape[1]) if lengths is None else np.asarray(lengths)
    texts = []
    for row, length in enumerate(lengths):
      ids = tokens[row, :length].tolist()
      if condition is not None:
        ids = np.asarray(condition.tokens)[row][np.asarray(condition.mask)[row]].tolist() + ids
      texts.append(language_tokenizer.decode(self.tokenizer, ids))
    return texts

  def check_fit(self, draft: Network, draft_family: str | None) -> None:
    super().check_fit(draft, draft_family)
    if draft.path is not None and (draft.path / language_tokenizer.TOKENIZER_FILE).is_file():
      if language_tokenizer.load_tokenizer(draft.path).get_vocab() != self.tokenizer.get_vocab():
        raise ValueError(f"The draft {draft.path} does not fit the target: its tokenizer has other tokens")

  def check_length(self, network: Network, condition: Prompt, max_len: int) -> list[str]:
    """Warnings about texts longer than those of training.

    Raises:
      ValueError: if the text is longer than the learned positions.
    """
    longest, prompt_len = getattr(network.config, "max_positions", None), condition.longest
    if longest is None or prompt_len + max_len <= longest:  # a draft need not be a language model
      return []
    size = f"{prompt_len} tokens of text and {max_len} more"
    who = "target" if network.params is self.target.params else f"draft {network.name}"
    rope = getattr(network.config, "rope", None)
    if rope is None:
      raise PromptError(f"Must have at most {longest} tokens for the {who}, we instead got {size}")
    if rope.scaling == "dynamic":
      return []
    return [f"The {who} was trained on texts of up to {longest} tokens, this one may get {size}"]
