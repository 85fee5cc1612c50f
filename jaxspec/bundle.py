"""Bundles: the networks that generate pictures together.

A bundle is a folder with ``bundle.json``, the ``vocabulary.json`` of its prompts, and one checkpoint folder per part:
``tokenizer`` (codes to pictures), ``text`` (prompt to features), ``target``, and any number of drafts. ``defaults`` are
the settings the parts were trained for.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from tokenizers import Tokenizer

from jaxspec import checkpoints
from jaxspec.checkpoints import Checkpoint
from jaxspec.data import text_tokenizer
from jaxspec.models.conditions import Caption

BUNDLE_FILE = "bundle.json"
VOCABULARY_FILE = "vocabulary.json"


@dataclasses.dataclass(frozen=True)
class Bundle:
  """Loaded parts of a bundle; ``drafts`` are ordered as in ``bundle.json``, the first is the default."""

  path: Path
  tokenizer: Checkpoint
  text: Checkpoint
  vocabulary: Tokenizer
  target: Checkpoint
  drafts: dict[str, Checkpoint]
  defaults: dict[str, Any]

  def caption(self, prompts: list[str]) -> Caption:
    """Condition ``[B, P, caption_dim]`` of a list of prompts.

    Raises:
      ValueError: if a prompt is empty.
    """
    ids, mask, _ = self.encode(prompts)
    return jax.jit(self.text.fns.apply)(self.text.params, jnp.asarray(ids), jnp.asarray(mask))

  def encode(self, prompts: list[str]) -> text_tokenizer.EncodedText:
    """Token ids ``[B, P]``, mask ``[B, P]`` and the number of tokens cut off ``[B]``."""
    return text_tokenizer.encode(self.vocabulary, prompts, max_tokens=self.text.config.max_tokens)


def read_bundle(path: str | os.PathLike) -> dict[str, Any]:
  """The checked content of ``bundle.json``.

  Raises:
    ValueError: one line naming the file and what is wrong with it.
  """
  file = Path(path) / BUNDLE_FILE
  if not Path(path).is_dir():
    raise ValueError(f"No checkpoint folder at {path}")
  if not file.is_file():
    raise ValueError(f"No {BUNDLE_FILE} in {path}: not a bundle of networks")
  try:
    document = json.loads(file.read_text(encoding="utf-8"))
  except (ValueError, OSError, RecursionError) as error:
    raise ValueError(f"Corrupt {file}: {error}") from error
  if not isinstance(document, dict):
    raise ValueError(f"Corrupt {file}: must be an object, not {type(document).__name__}")
  parts = ("tokenizer", "text", "target")
  if missing := {*parts, "drafts", "defaults"} - document.keys():
    raise ValueError(f"Corrupt {file}: fields {', '.join(sorted(missing))} are missing")
  for name in ("drafts", "defaults"):
    if not isinstance(document[name], dict):
      raise ValueError(f"Corrupt {file}: field {name!r} must be an object")
  folders = [(name, document[name]) for name in parts] + list(document["drafts"].items())
  if wrong := [name for name, folder in folders if not isinstance(folder, str)]:
    raise ValueError(f"Corrupt {file}: {wrong[0]!r} must be the name of a folder")
  return document


def load_bundle(path: str | os.PathLike, *, dtype=jnp.float32, drafts: list[str] | None = None) -> Bundle:
  """Loads a bundle.

  Args:
    dtype: compute dtype of the networks.
    drafts: names of the drafts to load; all by default.
  Raises:
    ValueError: one line naming the file and what is wrong with it.
  """
  path = Path(path)
  document = read_bundle(path)
  known = document["drafts"]
  for name in drafts or []:
    if name not in known:
      raise ValueError(f"Must have a draft in {', '.join(known) or '(none)'}, we instead got {name!r}")
  vocabulary = text_tokenizer.load_text_tokenizer(path / VOCABULARY_FILE)
  return Bundle(
    path=path,
    # Pixels stay in float32: the decoder runs once per picture.
    tokenizer=checkpoints.load(path / document["tokenizer"]),
    text=checkpoints.load(path / document["text"]),
    vocabulary=vocabulary,
    target=checkpoints.load(path / document["target"], dtype=dtype),
    drafts={name: checkpoints.load(path / known[name], dtype=dtype) for name in (known if drafts is None else drafts)},
    defaults=document["defaults"],
  )
