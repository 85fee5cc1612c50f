"""Vocabularies of Janus networks: the tokens around a prompt, found by their names."""

from __future__ import annotations

import os

from tokenizers import Tokenizer

BEGIN_IMAGE = "<begin_of_image>"
# Fields of `jaxspec.models.janus.JanusConfig` by the names of their tokens. The padding token of a tokenizer may be another
# one.
_NAMES = {
  "begin_text": "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
  "begin_image": BEGIN_IMAGE,
  "pad": "<\uff5c\u2581pad\u2581\uff5c>",
}


def read_ids(tokenizer: Tokenizer, where: str | os.PathLike) -> dict[str, int]:
  """Fields of `jaxspec.models.janus.JanusConfig` that a vocabulary determines.

  Args:
    where: its name in messages.
  Raises:
    ValueError: if a name is missing.
  """
  vocabulary = tokenizer.get_vocab()
  if missing := [name for name in _NAMES.values() if name not in vocabulary]:
    raise ValueError(f"Must have a vocabulary of a Janus network in {where}, {', '.join(missing)} is missing")
  return {field: vocabulary[name] for field, name in _NAMES.items()}
