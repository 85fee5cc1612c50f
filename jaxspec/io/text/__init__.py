"""Texts: the spelling of prompts, tokenizers, cleaning of captions, WordNet."""

from jaxspec.io.text.prompt_spelling import normalize_prompt
from jaxspec.io.text.text_tokenizer import (
  MAX_TOKENS,
  PAD_ID,
  UNK_ID,
  VOCAB_SIZE,
  EncodedText,
  encode,
  learn_text_tokenizer,
  load_text_tokenizer,
  save_text_tokenizer,
)

__all__ = [
  "MAX_TOKENS",
  "PAD_ID",
  "UNK_ID",
  "VOCAB_SIZE",
  "EncodedText",
  "encode",
  "learn_text_tokenizer",
  "load_text_tokenizer",
  "normalize_prompt",
  "save_text_tokenizer",
]
