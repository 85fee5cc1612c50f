"""Learns the byte-pair vocabulary of the prompts from the training split and writes it into the bundle.

Command::

    python -m experiments.train.vocabulary checkpoints/emoji64/vocabulary.json
"""

from __future__ import annotations

import sys
from pathlib import Path

from jaxspec.data.emoji import load_emoji
from jaxspec.data.text_tokenizer import save_text_tokenizer, train_text_tokenizer


def main() -> None:
  if len(sys.argv) != 2:
    sys.exit("Must have one argument, the JSON file to write")
  path = Path(sys.argv[1])
  path.parent.mkdir(parents=True, exist_ok=True)
  save_text_tokenizer(train_text_tokenizer(load_emoji()), path)


if __name__ == "__main__":
  main()
