"""Vocabularies of Chameleon networks: image codes and the tokens around them, found by their names.

Code 1023 is called ``IMGIMGBACDZ``: A to J encode digits. Other tokens of images have fixed names; reserved ones have a
number in their name.
"""

from __future__ import annotations

import os
import re

from tokenizers import Tokenizer

_CODE = re.compile(r"IMGIMG([A-J]+)Z")
_DIGITS = str.maketrans("ABCDEFGHIJ", "0123456789")

# Fields of `jaxspec.models.chameleon.chameleon.ChameleonConfig` by the names of their tokens; the second are only
# Lumina-mGPT's.
_NEEDED = {
  "begin_text": "<s>",
  "end_image": "<eoss>",
  "begin_image": "<racm3:break>",
  "end_prompt": "<reserved08706>",
}
_OF_ROWS = {"end_row": "<reserved08799>", "first_size": "<reserved08800>"}


def read_ids(tokenizer: Tokenizer, where: str | os.PathLike) -> dict[str, int]:
  """Fields of `jaxspec.models.chameleon.chameleon.ChameleonConfig` that a vocabulary determines.

  Args:
    where: its name in messages.
  Raises:
    ValueError: if a name is missing, or codes do not follow each other.
  """
  vocabulary = tokenizer.get_vocab()
  codes = {int(match[1].translate(_DIGITS)): id for name, id in vocabulary.items() if (match := _CODE.fullmatch(name))}
  if missing := [name for name in _NEEDED.values() if name not in vocabulary]:
    raise ValueError(f"Must have a vocabulary of a Chameleon network in {where}, {', '.join(missing)} is missing")
  if not codes or [codes.get(code) for code in range(len(codes))] != list(
    range(codes.get(0, 0), codes.get(0, 0) + len(codes))
  ):
    raise ValueError(f"Must have image codes that follow each other in {where}, we instead got {len(codes)} others")
  fields = {field: vocabulary[name] for field, name in _NEEDED.items()}
  fields |= {field: vocabulary[name] for field, name in _OF_ROWS.items() if name in vocabulary}
  return fields | {"first_code": codes[0], "num_codes": len(codes)}
