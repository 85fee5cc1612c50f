"""The vocabulary of Emu3: image codes, the tokens around them and the numerals of image sizes, found by their names."""

from __future__ import annotations

import os
import re
from typing import Any

from tokenizers import Tokenizer

_CODE = re.compile(r"<\|visual token (\d{6,})\|>")

# Fields of `jaxspec.models.language.emu3.Emu3Config` by the names of their tokens.
_NAMES = {
  "begin_text": "<|extra_203|>",
  "end_text": "<|extra_204|>",
  "begin_image": "<|image start|>",
  "begin_codes": "<|image token|>",
  "end_row": "<|extra_200|>",
  "end_frame": "<|extra_201|>",
  "end_image": "<|image end|>",
}


def read_ids(tokenizer: Tokenizer, where: str | os.PathLike) -> dict[str, Any]:
  """Fields of `jaxspec.models.language.emu3.Emu3Config` that a vocabulary determines.

  Args:
    where: its name in messages.
  Raises:
    ValueError: if a name is missing, codes do not follow each other, or a numeral is not one token.
  """
  vocabulary = tokenizer.get_vocab()
  names = [*_NAMES.values(), *"0123456789*"]
  if missing := [name for name in names if name not in vocabulary]:
    raise ValueError(f"Must have a vocabulary of Emu3 in {where}, {', '.join(missing)} is missing")
  codes = {int(match[1]): id for name, id in vocabulary.items() if (match := _CODE.fullmatch(name))}
  first = codes.get(0, 0)
  if not codes or [codes.get(code) for code in range(len(codes))] != list(range(first, first + len(codes))):
    raise ValueError(f"Must have image codes that follow each other in {where}, we instead got {len(codes)} others")
  fields = {field: vocabulary[name] for field, name in _NAMES.items()}
  numerals = tuple(vocabulary[name] for name in "0123456789*")
  return fields | {"numerals": numerals, "first_code": first, "num_codes": len(codes)}
