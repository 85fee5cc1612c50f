"""Tokenizers of T5 (32,000 pieces), read from the user's folder, and captions as ids of a fixed length.

A folder of the hub has ``tokenizer.json``, ``spiece.model``, or both. The first is read by the ``tokenizers`` library. The
second needs the package ``sentencepiece`` and gives the same ids.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxspec.io.stored_files import check_readable
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE, load_tokenizer
from jaxspec.io.text.text_tokenizer import EncodedText

SENTENCEPIECE_FILE = "spiece.model"
PAD_ID, END_ID = 0, 1
_END = "</s>"


class T5Tokenizer(NamedTuple):
  """Pieces of text.

  Attributes:
    encode: texts -> ids of each, without the end token.
    size: number of ids.
  """

  encode: Callable[[Sequence[str]], list[list[int]]]
  size: int


def load_t5_tokenizer(folder: str | os.PathLike) -> T5Tokenizer:
  """Reads ``tokenizer.json``, else ``spiece.model``.

  Raises:
    ValueError: one line, if there is neither, a package is missing, or the file is no tokenizer of a T5.
  """
  folder = Path(folder)
  if (folder / TOKENIZER_FILE).is_file():
    return _of_tokenizers(folder)
  if (folder / SENTENCEPIECE_FILE).is_file():
    return _of_sentencepiece(folder / SENTENCEPIECE_FILE)
  raise ValueError(
    f"Must have {TOKENIZER_FILE} or {SENTENCEPIECE_FILE} of the T5 in {folder}, we instead got neither: copy it there"
  )


def encode(tokenizer: T5Tokenizer, texts: Sequence[str], max_tokens: int) -> EncodedText:
  """Ids ``[B, T]`` int32 of texts, each with an end token, padding last; mask ``[B, T]`` bool, the end token included.

  Args:
    max_tokens: T; a longer text is truncated to T - 1 pieces, and ``num_dropped`` counts the others.
  """
  ids = np.full((len(texts), max_tokens), PAD_ID, np.int32)
  mask = np.zeros((len(texts), max_tokens), bool)
  num_dropped = np.zeros(len(texts), np.int32)
  for row, pieces in enumerate(tokenizer.encode(texts)):
    kept = [*pieces[: max_tokens - 1], END_ID]
    ids[row, : len(kept)], mask[row, : len(kept)] = kept, True
    num_dropped[row] = len(pieces) + 1 - len(kept)
  return EncodedText(ids, mask, num_dropped)


def _of_tokenizers(folder: Path) -> T5Tokenizer:
  tokenizer = load_tokenizer(folder)
  _check_end(folder / TOKENIZER_FILE, tokenizer.token_to_id(_END))

  def encode_texts(texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)]

  return T5Tokenizer(encode_texts, tokenizer.get_vocab_size())


def _of_sentencepiece(file: Path) -> T5Tokenizer:
  check_readable(file)
  try:
    from sentencepiece import SentencePieceProcessor
  except ImportError as error:
    raise ValueError(
      f"Must have {TOKENIZER_FILE} beside {file}, or the package sentencepiece for it: pip install 'jaxspec-decoding[t5]'"
    ) from error
  try:
    tokenizer = SentencePieceProcessor(model_proto=file.read_bytes())
    size = tokenizer.get_piece_size()
  except Exception as error:  # the library raises RuntimeError or a bare Exception for a malformed file
    raise ValueError(f"Corrupt {file}: {error}") from error
  _check_end(file, tokenizer.eos_id())
  return T5Tokenizer(lambda texts: [list(tokenizer.encode(text)) for text in texts], size)


def _check_end(file: Path, found: int | None) -> None:
  if found != END_ID:
    raise ValueError(f"Must have {_END} as token {END_ID} of a T5 in {file}, we instead got {found}")
