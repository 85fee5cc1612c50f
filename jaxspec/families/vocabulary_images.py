"""Images from texts by language models whose vocabulary has image codes (`jaxspec.models.language.image_language`).

The network reads the prompt in its own vocabulary, without a text encoder. It draws local ids: image codes, and in some
families the tokens that end rows, which are forced.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Array, HostArray
from jaxspec.families.family import Encoded, Family, FamilyParts, check_captions, check_texts, check_whole
from jaxspec.io.text.language_tokenizer import load_tokenizer, pad_left
from jaxspec.models.conditions import Prompt
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns, truncated_uint8
from jaxspec.models.trunk import Trunk, trunk_of

# The default image tokenizer, in the folder of a converted network.
VQ_FOLDER = "vq"


def read_parts(target: Network, parts: FamilyParts) -> tuple[Network, Network, Tokenizer]:
  """The network, its image tokenizer and its vocabulary.

  Args:
    target: loaded checkpoint, with its ``tokenizer.json`` beside its weights.
    parts: ``tokenizer``, the image tokenizer; by default the folder ``vq`` in the target's.
  Raises:
    ValueError: if a part is missing.
  """
  text = load_tokenizer(target.folder)
  if parts.value("tokenizer") is None and (target.folder / VQ_FOLDER).is_dir():
    parts = FamilyParts(parts.owner, {"tokenizer": (target.folder / VQ_FOLDER).absolute()})
  return target, parts.network("tokenizer"), text


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class VocabularyImages(Family):
  """A base of such families.

  Attributes:
    target: the network, with its full output matrix.
    tokenizer: the image tokenizer, a `jaxspec.models.tokenizers.tokenizer_fns.TokenizerFns`.
    text: the vocabulary, of the ``tokenizers`` library.
  """

  condition_type = Prompt
  sends_text = True  # ids of prompts are not local ids, and a stream has only those

  target: Network
  tokenizer: Network
  text: Tokenizer

  def __post_init__(self):
    config, tokenizer, path = self.target.config, self.tokenizer, self.target.folder
    if not isinstance(tokenizer.fns, TokenizerFns):
      raise ValueError(f"Must have an image tokenizer, {tokenizer.path} holds a {tokenizer.family_name}")
    codes = jax.eval_shape(tokenizer.fns.codebook, tokenizer.params).shape[0]
    if codes < config.num_codes:
      raise ValueError(f"{path} draws from {config.num_codes} codes but {tokenizer.path} has only {codes}")
    if self.text.get_vocab_size() > config.vocab_size:
      raise ValueError(f"Corrupt {path}: its tokenizer has more tokens than the network")
    for name, value in self.vocabulary_fields().items():
      if value != getattr(config, name):
        raise ValueError(f"Corrupt {path}: its tokenizer has {name} {value}, its network {getattr(config, name)}")

  def vocabulary_fields(self) -> dict[str, Any]:
    """Fields of the network's config that the vocabulary determines.

    Raises:
      ValueError: for a vocabulary of another family.
    """
    raise NotImplementedError

  def prompt_ids(self, prompt: str) -> list[int]:
    """Ids of a prompt up to the first code of its image."""
    raise NotImplementedError

  @property
  def fewest_slots(self) -> int:
    """The least number of slots of a prompt."""
    return 0

  @property
  def _trunk(self) -> Trunk:
    return trunk_of(self.target.config)

  @functools.cached_property
  def space(self) -> TokenSpace:
    """Local ids."""
    config, params, trunk = self.target.config, self.target.params, self._trunk
    return TokenSpace(
      vocab_size=len(config.drawn_ids),
      num_tokens=math.prod(config.grid),
      grid=config.grid,
      codebook=self._codebook,
      embedding=lambda: trunk.tables(config, trunk.params(config, params)).embedding,
      legal=config.image_rows,
      unit_codes=False,
    )

  def resolve_sampling(self, trained: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """See `Family.resolve_sampling`.

    Raises:
      ValueError: for ``cfg_interval``: prompts differ in length, and guidance applies to all tokens.
    """
    fields = super().resolve_sampling(trained, given)
    if (interval := fields.get("cfg_interval", -1)) != -1:
      raise ValueError(f"Must have cfg_interval -1 for {self.target.path}, we instead got {interval}")
    return fields

  def network(self, loaded: Network, name: str) -> Network:
    """The network over local ids; its output matrix has their rows only."""
    if loaded.family_name != self.target.family_name:
      return super().network(loaded, name)
    config, trunk = loaded.config, self._trunk
    return dataclasses.replace(loaded, fns=trunk.fns(config), params=trunk.params(config, loaded.params), name=name)

  def _codebook(self) -> Array:
    """Rows of the codebook. Row ends have zeros, which are never compared: no other id is legal at their position."""
    config = self.target.config
    rows = self.tokenizer.fns.codebook(self.tokenizer.params)[: config.num_codes]
    return jnp.pad(rows, ((0, len(config.drawn_ids) - rows.shape[0]), (0, 0)))

  def encode(self, prompts: str | Sequence[str], captions: Sequence[str] | None = None) -> Encoded:
    """`Prompt` of texts, padded on the left, in the network's training format.

    Raises:
      ValueError: if a text has no token.
    """
    prompts = check_texts(prompts, "prompt")
    rows = []
    for number, prompt in enumerate(prompts, 1):
      if not self.text_ids(prompt):
        raise ValueError(f"Must have a token in every prompt, prompt {number} is {prompt!r}")
      rows.append(self.prompt_ids(prompt))
    return Encoded(pad_left(rows, self.fewest_slots), check_captions(captions, prompts, "prompts"))

  def text_ids(self, text: str) -> list[int]:
    """Ids of a text alone."""
    return self.text.encode(text, add_special_tokens=False).ids

  def decode(self, tokens: HostArray, *, lengths=None, condition=None, sampling=None) -> np.ndarray:
    """Images ``[B, H, W, 3]`` uint8 of ``tokens [B, N]``.

    Raises:
      ValueError: if an image does not have all of its tokens.
    """
    del condition, sampling
    config = self.target.config
    check_whole(tokens, lengths, math.prod(config.grid))
    codes = jnp.asarray(tokens) if config.image_rows is None else config.image_rows.codes(jnp.asarray(tokens))
    grid, decode_fn = (config.rows, config.columns), self.tokenizer.fns.decode
    return np.asarray(_pixels(self.tokenizer.params, codes, grid=grid, decode_fn=decode_fn))

  def check_length(self, network: Network, condition: Prompt, max_len: int) -> list[str]:
    """A warning about sequences longer than those of training."""
    found = super().check_length(network, condition, max_len)
    prompt_len, longest = condition.longest, getattr(network.config, "max_positions", None)
    if longest is None or prompt_len + max_len <= longest:  # a head that continues features counts positions of images
      return found
    who = "target" if network.name == "target" else f"draft {network.name}"
    size = f"{prompt_len} tokens of text and {max_len} of an image"
    return [*found, f"The {who} was trained on sequences of up to {longest} tokens, this one gets {size}"]


@functools.partial(jax.jit, static_argnames=("grid", "decode_fn"))
def _pixels(params, codes: Array, *, grid: tuple[int, int], decode_fn: Callable) -> Array:
  return truncated_uint8(decode_fn(params, codes, grid))
