"""Byte-pair tokenizer for prompts: small vocabulary, left-padded fixed-length output.

A thin layer over the ``tokenizers`` library. Texts pass through ``normalize_prompt``, are split into words, and each
word into learned pieces. Padding comes first, as LlamaGen pads its captions, so that the last text position is always
next to the first image token.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from jaxspec.io.stored_files import check_readable
from jaxspec.io.text.prompt_spelling import normalize_prompt

PAD, UNK = "[PAD]", "[UNK]"
PAD_ID, UNK_ID = 0, 1
VOCAB_SIZE = 2048
MAX_TOKENS = 24

_ALPHABET = list("abcdefghijklmnopqrstuvwxyz0123456789-'")


class EncodedText(NamedTuple):
  """Encoded prompts.

  Attributes:
    ids: ``[B, T]`` int32, padding first (of T5: last).
    mask: ``[B, T]`` bool, False at padding.
    num_dropped: ``[B]`` int32, number of tokens truncated from the end of long prompts.
  """

  ids: np.ndarray
  mask: np.ndarray
  num_dropped: np.ndarray


def learn_text_tokenizer(texts: Iterable[str], vocab_size: int = VOCAB_SIZE) -> Tokenizer:
  """Learns the vocabulary of normalised texts.

  Args:
    texts: of `normalize_prompt`.
    vocab_size: number of tokens, with ``[PAD]`` = 0 and ``[UNK]`` = 1.

  Returns:
    The tokenizer; characters outside a-z, 0-9, hyphen and apostrophe become ``[UNK]``.
  """
  tokenizer = Tokenizer(models.BPE(unk_token=UNK, fuse_unk=True))
  tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
  trainer = trainers.BpeTrainer(
    vocab_size=vocab_size,
    special_tokens=[PAD, UNK],
    initial_alphabet=_ALPHABET,
    limit_alphabet=len(_ALPHABET),
    show_progress=False,
  )
  tokenizer.train_from_iterator(texts, trainer)
  return tokenizer


def save_text_tokenizer(tokenizer: Tokenizer, json_path: str | Path) -> None:
  """Writes the tokenizer as one JSON file of the ``tokenizers`` library."""
  Path(json_path).write_text(tokenizer.to_str(pretty=False), encoding="utf-8")


def load_text_tokenizer(json_path: str | Path) -> Tokenizer:
  """Reads a tokenizer that ``save_text_tokenizer`` wrote.

  Raises:
    ValueError: the file cannot be read, is no tokenizer, or has other special tokens.
  """
  path = Path(json_path)
  check_readable(path)
  try:
    tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
  except Exception as error:  # the library raises bare Exception for any malformed file
    raise ValueError(f"{path}: must be a JSON file of the tokenizers library ({error})") from error
  found = (tokenizer.token_to_id(PAD), tokenizer.token_to_id(UNK))
  if found != (PAD_ID, UNK_ID):
    raise ValueError(f"{path}: {PAD} and {UNK} must be tokens {PAD_ID} and {UNK_ID}, we instead got {found}")
  return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int = MAX_TOKENS) -> EncodedText:
  """Encodes prompts to a fixed length, padding first. Longer prompts are truncated at their end.

  Args:
    tokenizer: of ``learn_text_tokenizer`` or ``load_text_tokenizer``.
    texts: B prompts in any spelling.
    max_tokens: T.

  Returns:
    ``EncodedText`` (ids, mask, num_dropped); callers should warn where ``num_dropped`` is positive.

  Raises:
    ValueError: a prompt without any word, or ``texts`` is a single string.
  """
  if isinstance(texts, str):
    raise ValueError("texts must be a sequence of prompts, we instead got one string")
  if max_tokens < 1:
    raise ValueError(f"max_tokens must be positive, we instead got {max_tokens}")
  normalized = [normalize_prompt(text) for text in texts]
  for number, (text, plain) in enumerate(zip(texts, normalized, strict=True), 1):
    if not plain:
      raise ValueError(f"prompt {number} must have at least one word, we instead got {text!r}")
  ids = np.full((len(normalized), max_tokens), PAD_ID, np.int32)
  mask = np.zeros((len(normalized), max_tokens), bool)
  num_dropped = np.zeros(len(normalized), np.int32)
  for row, encoding in enumerate(tokenizer.encode_batch(normalized)):
    kept = encoding.ids[:max_tokens]
    ids[row, max_tokens - len(kept) :] = kept
    mask[row, max_tokens - len(kept) :] = True
    num_dropped[row] = len(encoding.ids) - len(kept)
  return EncodedText(ids, mask, num_dropped)
