"""Writes captions of scenes, one per line, as ``--prompt-file`` takes them.

Commands (from the repository root)::

    python -m experiments.data.captions --num 1024 --seed 3 --out runs/captions.txt
    jaxspec calibrate --draft inter-2 --gamma 1 --prompt-file runs/captions.txt --samples 1

Training uses the captions of seeds 0 and 1, tables those of seed 2. Short captions occur under every seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.train.command import one_line_errors
from jaxspec.evaluation import scenes


def main(arguments: list[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--num", type=int, default=1024)
  parser.add_argument("--split", choices=scenes.SPLITS, default="validation")
  parser.add_argument("--seed", type=int, default=3)
  parser.add_argument("--out", type=Path, required=True)
  args = parser.parse_args(arguments)
  with one_line_errors():
    if args.num < 1 or args.seed < 0:
      raise ValueError(f"Must have num from 1 and a seed from 0, we instead got {args.num} and {args.seed}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    lines = [scenes.draw_scene(args.seed, number, args.split)[0] for number in range(args.num)]
    args.out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
  main()
