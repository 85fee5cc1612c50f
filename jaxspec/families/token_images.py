"""Families of discrete image tokens, from captions, class labels or features of a text encoder.

A LlamaGen network takes classes (``c2i``) or text (``t2i``), by its config. Prompts of text are short captions with a small
text encoder and its vocabulary, any text with a T5 encoder, and precomputed features without an encoder.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from jaxspec.core.network import Network
from jaxspec.core.token_space import TokenSpace
from jaxspec.core.types import Array, HostArray
from jaxspec.families.classes import class_names, encode_classes
from jaxspec.families.family import Encoded, Family, FamilyParts, check_captions, check_texts, check_whole
from jaxspec.families.t5_text import T5Text
from jaxspec.families.text_features import read_captions, read_features
from jaxspec.io.text import text_tokenizer
from jaxspec.io.text.prompt_spelling import normalize_prompt
from jaxspec.models.conditions import Caption, ClassLabels
from jaxspec.models.tokenizers.tokenizer_fns import TokenizerFns, to_uint8

VOCABULARY_FILE = "vocabulary.json"

# The official settings of the released LlamaGen networks (FoundationVision/LlamaGen).
_PUBLISHED_SAMPLING = {"c2i": {"cfg_scale": 4.0, "top_k": 2000}, "t2i": {"cfg_scale": 7.5, "top_k": 1000}}


def make_family(target: Network, parts: FamilyParts) -> ImageFamily:
  """The family of a LlamaGen network.

  Args:
    target: loaded checkpoint of the family ``llamagen``.
    parts: ``tokenizer`` (always), for classes ``classes`` (their names; without them classes are numbers), and for captions
      ``text`` (a T5 encoder with its tokenizer in its folder, or a small text encoder) and, for the small one,
      ``vocabulary`` (a file; by default ``vocabulary.json`` in its folder). Networks of a small world also have ``things``
      (nouns, for display) and ``words`` (all words of training).
  Raises:
    ValueError: if a part is missing or does not fit the target.
  """
  tokenizer = parts.network("tokenizer")
  if target.config.model_type == "c2i":
    return LabelFamily(target, tokenizer, class_names(target, parts))
  if parts.value("text") is None:
    return FeatureFamily(target, tokenizer)
  if parts.family_name("text") == "t5":
    # Far larger than small encoders, so it has the target's dtype and loads its weights on demand.
    text = parts.network("text", dtype=jnp.dtype(target.config.dtype), weights=False)
    return T5Family(target, tokenizer, text, T5Text(text))
  things, words = (_words(parts, name) for name in ("things", "words"))
  text = parts.network("text")
  if text.family_name != "text_encoder":
    raise ValueError(f"Must have a text_encoder or a t5 for captions, {text.path} holds a {text.family_name}")
  file = text.folder / VOCABULARY_FILE if parts.value("vocabulary") is None else parts.file("vocabulary")
  return CaptionFamily(target, tokenizer, text, text_tokenizer.load_text_tokenizer(file), things, frozenset(words))


def _words(parts: FamilyParts, name: str) -> tuple[str, ...]:
  value = parts.value(name, ())
  if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
    raise ValueError(f"Must have a list of words as part {name!r} of {parts.owner}, we instead got {value!r}")
  return tuple(value)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ImageFamily(Family):
  """Common base of the kinds of prompts.

  Attributes:
    target: the network that draws discrete tokens.
    tokenizer: the image tokenizer, a `jaxspec.models.tokenizers.tokenizer_fns.TokenizerFns`.
  """

  target: Network
  tokenizer: Network

  def __post_init__(self):
    tokenizer, needed = self.tokenizer, self.target.config.vocab_size
    if not isinstance(tokenizer.fns, TokenizerFns):
      raise ValueError(f"Must have an image tokenizer, {tokenizer.path} holds a {tokenizer.family_name}")
    codes = jax.eval_shape(tokenizer.fns.codebook, tokenizer.params).shape[0]
    if codes < needed:
      raise ValueError(f"{self.target.path} draws from {needed} tokens but {tokenizer.path} has only {codes} codes")

  @functools.cached_property
  def space(self) -> TokenSpace:
    config, params = self.target.config, self.target.params
    return TokenSpace(
      vocab_size=config.vocab_size,
      num_tokens=config.num_tokens,
      grid=(config.grid, config.grid),
      codebook=lambda: self.tokenizer.fns.codebook(self.tokenizer.params),
      embedding=lambda: params["tok_embeddings"]["weight"],
    )

  @property
  def fit_fields(self) -> tuple[str, ...]:
    width = "num_classes" if self.target.config.model_type == "c2i" else "caption_dim"
    return ("model_type", "vocab_size", "num_tokens", "prefix_len", width)

  def published_sampling(self) -> dict[str, Any]:
    return dict(_PUBLISHED_SAMPLING[self.target.config.model_type])

  def decode(self, tokens: HostArray, *, lengths=None, condition=None, sampling=None) -> np.ndarray:
    """Images ``[B, H, W, 3]`` uint8 of ``tokens [B, N]``.

    Raises:
      ValueError: if an image does not have all of its tokens.
    """
    del condition, sampling
    check_whole(tokens, lengths, self.target.config.num_tokens)
    return np.asarray(_pixels(self.tokenizer.params, tokens, decode_fn=self.tokenizer.fns.decode))


@functools.partial(jax.jit, static_argnames="decode_fn")
def _pixels(params, tokens: Array, *, decode_fn: Callable) -> Array:
  return to_uint8(decode_fn(params, tokens))


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CaptionFamily(ImageFamily):
  """Images from short texts.

  Attributes:
    text: the text encoder; ``vocabulary`` its word pieces (`jaxspec.io.text.text_tokenizer`).
    things: nouns that the networks can draw, for display; empty if unknown.
    words: all words of training, normalized; empty for any.
  """

  condition_type = Caption
  sends_text = True

  text: Network
  vocabulary: Tokenizer
  things: tuple[str, ...] = ()
  words: frozenset[str] = frozenset()

  def __post_init__(self):
    super().__post_init__()
    text, target = self.text, self.target.config
    if text.family_name != "text_encoder":
      raise ValueError(f"Must have a text_encoder for captions, {text.path} holds a {text.family_name}")
    if self.vocabulary.get_vocab_size() > text.config.vocab_size:
      raise ValueError(f"Corrupt {text.path}: its vocabulary is larger than its text encoder")
    if (text.config.max_tokens, text.config.caption_dim) != (target.prefix_len, target.caption_dim):
      raise ValueError(
        f"The text encoder {text.path} does not fit the target: it gives {text.config.max_tokens} x "
        f"{text.config.caption_dim} features, the target takes {target.prefix_len} x {target.caption_dim}"
      )

  def encode(self, prompts: str | Sequence[str], captions: Sequence[str] | None = None) -> Encoded:
    """`Caption` of texts; long ones are truncated, with a warning. Warnings also name words that are not in training.

    Raises:
      ValueError: if a prompt has no words.
    """
    prompts = check_texts(prompts, "prompt")
    limit = self.text.config.max_tokens
    ids, mask, num_dropped = text_tokenizer.encode(self.vocabulary, prompts, max_tokens=limit)
    condition = jax.device_get(jax.jit(self.text.fns.apply)(self.text.params, ids, mask))
    warnings = [
      f"Prompt {number} is too long: its last {dropped} of {limit + dropped} word pieces were cut off"
      for number, dropped in enumerate(num_dropped, 1)
      if dropped
    ]
    warnings += self._unknown(prompts)
    return Encoded(condition, check_captions(captions, prompts, "prompts"), warnings)

  def _unknown(self, prompts: Sequence[str]) -> list[str]:
    """A warning for each prompt with words that are not in training; the last one also lists ``things``."""
    if not self.words:
      return []
    warnings = []
    for number, prompt in enumerate(prompts, 1):
      unknown = dict.fromkeys(word for word in normalize_prompt(prompt).split() if word not in self.words)
      if unknown:
        warnings.append(f"Prompt {number} has words that the networks have never seen: {', '.join(unknown)}")
    if warnings and self.things:
      warnings[-1] += f"; they know {len(self.things)} things: {', '.join(self.things)}"
    return warnings


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class T5Family(ImageFamily):
  """Images from texts with a T5 encoder, as in the released LlamaGen networks.

  Attributes:
    text: the T5 encoder; ``encoder`` runs it.
  """

  condition_type = Caption

  text: Network
  encoder: T5Text

  def __post_init__(self):
    super().__post_init__()
    width = self.target.config.caption_dim
    if self.text.config.dim != width:
      raise ValueError(
        f"The T5 encoder {self.text.path} does not fit the target: its features are {self.text.config.dim} wide, "
        f"{self.target.path} takes {width}"
      )

  def encode(self, prompts: str | Sequence[str], captions: Sequence[str] | None = None) -> Encoded:
    """`Caption` of texts; long ones are truncated, with a warning."""
    prompts = check_texts(prompts, "prompt")
    condition, warnings = self.encoder.encode(prompts, self.target.config.prefix_len)
    return Encoded(condition, check_captions(captions, prompts, "prompts"), warnings)

  def release(self) -> None:
    self.encoder.release()


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LabelFamily(ImageFamily):
  """Images from classes.

  Attributes:
    classes: names of the labels; () for numbers.
  """

  condition_type = ClassLabels

  classes: tuple[str, ...] = ()

  def encode(self, prompts: int | str | Sequence[int | str], captions: Sequence[str] | None = None) -> Encoded:
    """`ClassLabels` of class names or numbers.

    Raises:
      ValueError: for the first invalid class.
    """
    return encode_classes(prompts, self.classes, self.target.config.num_classes, captions)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FeatureFamily(ImageFamily):
  """Images from precomputed features of a text encoder (T5)."""

  condition_type = Caption

  def encode(self, prompts: Any, captions: Sequence[str] | None = None) -> Encoded:
    """`Caption` from a file of features, or from a dict of arrays (`jaxspec.families.text_features.read_features`)."""
    config = self.target.config
    if not isinstance(prompts, (str, os.PathLike, Mapping)):
      raise ValueError(
        f"Must have a file of text features, or a dict of the arrays, for {self.target.path}, we instead got a "
        f"{type(prompts).__name__}: prompts need a T5 encoder (text=, --text-encoder)"
      )
    condition = read_features(prompts, prefix_len=config.prefix_len, width=config.caption_dim)
    name = "features" if isinstance(prompts, Mapping) else Path(prompts).name
    rows = [f"{name} row {row}" for row in range(condition.batch_size)]
    default = check_captions(read_captions(prompts), rows, "features")
    return Encoded(condition, check_captions(captions, default, "features"))
