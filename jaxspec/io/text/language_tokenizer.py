"""Tokenizers of language models: the ``tokenizer.json`` in a checkpoint folder, and padded batches of prompts.

This is a thin layer over the ``tokenizers`` library. The library adds the special tokens of the file, for example a
beginning-of-text token if the model was trained with one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from jaxspec.io.stored_files import check_readable
from jaxspec.models.conditions import Prompt, padded_length

TOKENIZER_FILE = "tokenizer.json"


def load_tokenizer(folder: str | os.PathLike) -> Tokenizer:
  """Reads the tokenizer of a checkpoint folder, without padding and truncation.

  Raises:
    ValueError: one line naming the file, if it is missing or is no tokenizer.
  """
  file = Path(folder) / TOKENIZER_FILE
  if not file.exists():
    raise ValueError(f"No {TOKENIZER_FILE} in {folder}: texts cannot be read or written without it")
  check_readable(file)
  return from_json(file.read_bytes(), file)


def from_json(content: bytes, where: str | os.PathLike) -> Tokenizer:
  """The tokenizer in the content of a file, without padding and truncation.

  Raises:
    ValueError: one line naming the file, if it holds none.
  """
  try:
    tokenizer = Tokenizer.from_str(content.decode())
  except Exception as error:  # the library raises bare Exception for any malformed file
    raise ValueError(f"Corrupt {where}: {error}") from error
  tokenizer.no_padding()
  tokenizer.no_truncation()
  return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
  """Token ids of every text.

  Raises:
    ValueError: if a text has no token.
  """
  ids = [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
  for number, row in enumerate(ids, 1):
    if not row:
      raise ValueError(f"Must have a token in every text, text {number} is {texts[number - 1]!r}")
  return ids


def pad_left(rows: Sequence[Sequence[int]], fewest: int = 0) -> Prompt:
  """Rows of ids as one `Prompt` with numpy leaves, of the `padded_length` of the longest row, or of ``fewest`` ids."""
  width = padded_length(max(fewest, *(len(row) for row in rows)))
  tokens, mask = np.zeros((len(rows), width), np.int32), np.zeros((len(rows), width), bool)
  for position, row in enumerate(rows):
    tokens[position, width - len(row) :], mask[position, width - len(row) :] = row, True
  return Prompt(tokens, mask)


def decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
  """Text of token ids, special tokens left out."""
  return tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)
