"""Makes the token set that the emoji transformers train on, with the exported tokenizer.

Command (from the repository root)::

    python -m experiments.data.tokenize_emoji --out runs/tokens/emoji64.npz

Four paintings of every training image and two of every other image; see `jaxspec.data.tokens`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
from rich.console import Console

from jaxspec import checkpoints
from jaxspec.data.emoji import load_emoji
from jaxspec.data.tokens import tokenize
from jaxspec.models.tokenizer_fns import from_uint8


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--checkpoint", type=Path, default=Path("checkpoints/emoji64/tokenizer"))
  parser.add_argument("--out", type=Path, default=Path("runs/tokens/emoji64.npz"))
  parser.add_argument("--train-variants", type=int, default=4)
  parser.add_argument("--val-variants", type=int, default=2)
  parser.add_argument("--seed", type=int, default=0)
  args = parser.parse_args()

  tokenizer = checkpoints.load(args.checkpoint)
  encode = jax.jit(lambda pixels: tokenizer.fns.encode(tokenizer.params, from_uint8(pixels))[0])
  console = Console()

  def report(done: int, total: int) -> None:
    if done == total or done % 6400 == 0:
      console.print(f"{done}/{total} images", highlight=False)

  tokens = tokenize(
    load_emoji(),
    encode,
    train_variants=args.train_variants,
    val_variants=args.val_variants,
    seed=args.seed,
    report_fn=report,
  )
  args.out.parent.mkdir(parents=True, exist_ok=True)
  tokens.save(args.out)
  console.print(f"{args.out}: {tokens.tokens.shape[0]} sequences of {tokens.tokens.shape[1]} tokens", highlight=False)


if __name__ == "__main__":
  main()
