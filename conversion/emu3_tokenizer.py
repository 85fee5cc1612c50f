"""Emu3's vocabulary as a ``tokenizer.json``, made of its two released files.

``emu3.tiktoken`` has one byte string (base64) and its rank a line; ``emu3_vision_tokens.txt`` one image token a line. Ids
are the ranks, then the special tokens in the order of the official tokenizer (baaivision/Emu3, ``tokenization_emu3.py``).
The text is normalised (NFC) and split by the official pattern. Two neighbouring tokens merge if their bytes together are a
token, the lowest rank first.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from . import hugging_face

RANKS_FILE = "emu3.tiktoken"
IMAGE_TOKENS_FILE = "emu3_vision_tokens.txt"

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205)))
_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def read(folder: Path) -> bytes | None:
  """The content of ``tokenizer.json`` for a released folder: the file itself, or made of the two; None without any.

  Raises:
    ValueError: one line naming a file that is missing or damaged.
  """
  if (folder / hugging_face.TOKENIZER_FILE).is_file():
    return hugging_face.read_bytes(folder / hugging_face.TOKENIZER_FILE)
  files = [folder / name for name in (RANKS_FILE, IMAGE_TOKENS_FILE)]
  if not any(file.is_file() for file in files):
    return None
  if missing := [file.name for file in files if not file.is_file()]:
    raise ValueError(f"Incomplete {folder}: {', '.join(missing)} missing")
  return made(read_ranks(files[0]), _lines(files[1])).to_str().encode()


def made(ranks: list[bytes], image_tokens: list[str]) -> Tokenizer:
  """The tokenizer of byte strings by rank, and of special tokens behind them."""
  symbols = _byte_symbols()
  spelled = ["".join(symbols[byte] for byte in token) for token in ranks]
  vocabulary = {token: rank for rank, token in enumerate(spelled)}
  merges = [pair for token in spelled for pair in _pairs(token, vocabulary)]
  tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
  tokenizer.normalizer = normalizers.NFC()
  split = pre_tokenizers.Split(Regex(_PATTERN), "isolated")
  byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
  tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([split, byte_level]), decoders.ByteLevel()
  tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in (*_SPECIAL, *image_tokens)])
  return tokenizer


def read_ranks(file: Path) -> list[bytes]:
  """Byte strings in the order of their ranks.

  Raises:
    ValueError: for lines of another form, ranks that do not follow each other, or a byte without a token.
  """
  ranks: dict[int, bytes] = {}
  for number, line in enumerate(_lines(file), 1):
    try:
      token, rank = line.split()
      found, place = base64.b64decode(token, validate=True), int(rank)
    except (ValueError, binascii.Error) as error:
      raise ValueError(f"Corrupt {file}: line {number} is no base64 string and a rank") from error
    if place in ranks:
      raise ValueError(f"Corrupt {file}: rank {place} belongs to two strings")
    ranks[place] = found
  tokens = [ranks.get(rank, b"") for rank in range(len(ranks))]
  if not all(tokens) or len(set(tokens)) != len(tokens):
    raise ValueError(f"Corrupt {file}: must have different strings with the ranks 0 to {len(ranks) - 1}")
  if missing := sum(bytes([byte]) not in set(tokens) for byte in range(256)):
    raise ValueError(f"Corrupt {file}: {missing} bytes have no token")
  return tokens


def _pairs(token: str, vocabulary: dict[str, int]) -> list[tuple[str, str]]:
  """The merges that give a token, those of lower ranks first."""
  pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
  known = [pair for pair in pairs if pair[0] in vocabulary and pair[1] in vocabulary]
  return sorted(known, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))


def _byte_symbols() -> dict[int, str]:
  """The printable character that stands for each byte in a byte-level vocabulary: itself, or one behind Latin-1."""
  printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
  others = [byte for byte in range(256) if byte not in printable]
  return {byte: chr(byte) for byte in printable} | {byte: chr(256 + number) for number, byte in enumerate(others)}


def _lines(file: Path) -> list[str]:
  try:
    return [line.strip() for line in hugging_face.read_bytes(file).decode().splitlines() if line.strip()]
  except UnicodeDecodeError as error:
    raise ValueError(f"Corrupt {file}: must be UTF-8 text") from error
