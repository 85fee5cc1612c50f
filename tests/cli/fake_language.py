"""Tiny language models with a byte-level tokenizer."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.models.language.gpt_neo import GPTNeoConfig
from jaxspec.models.language.llama import LlamaConfig
from tests.cli.fake_bundle import save_random

END = "<end>"
VOCABULARY = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "on", "ce", END]
TARGET = GPTNeoConfig(
  vocab_size=len(VOCABULARY), dim=16, num_layers=2, num_heads=2, max_positions=48, window_size=4,
  end_ids=(VOCABULARY.index(END),),
)  # fmt: skip
DRAFT = LlamaConfig(
  vocab_size=len(VOCABULARY), dim=16, num_layers=1, num_heads=2, ffn_hidden=16, max_positions=16, end_ids=TARGET.end_ids
)


def tokenizer(words: list[str] = VOCABULARY) -> Tokenizer:
  made = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, [("o", "n"), ("c", "e")]))
  made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
  made.add_special_tokens([END])
  return made


def make(folder: Path) -> Path:
  """Writes ``target`` and ``draft`` below ``folder``; returns it."""
  for seed, (name, config) in enumerate({"target": TARGET, "draft": DRAFT}.items()):
    save_random(folder / name, config, seed, scale=0.2)
    tokenizer().save(str(folder / name / TOKENIZER_FILE))
  return folder
