"""Writes captions of scenes, one per line, as ``--prompt-file`` takes them.

Commands (from the repository root)::

    python -m experiments.data.captions --num 1024 --seed 3 --out runs/captions.txt
    jaxspec calibrate --draft inter-2 --gamma 1 --prompt-file runs/captions.txt --samples 1
    python -m experiments.data.captions --textured --num 4608 --split train --seed 0 --out runs/textures-captions.txt

Training uses the captions of seeds 0 and 1, tables those of seed 2. Short captions occur under every seed.
"""

from __future__ import annotations

from pathlib import Path

import click

from jaxspec.core.command_line import PATH, script
from jaxspec.evaluation import scenes
from jaxspec.io.whole_files import write_whole


@script(__doc__)
@click.option("--num", default=1024, help="Captions.")
@click.option("--split", type=click.Choice(scenes.SPLITS), default="validation", help="Part of the grammar.")
@click.option("--seed", default=3, help="Seed of the captions.")
@click.option("--textured", is_flag=True, help="Captions of the textured world, which may name a material.")
@click.option("--out", type=PATH, required=True, help="Text file to write, a caption a line.")
def main(num: int, split: str, seed: int, textured: bool, out: Path) -> None:
  if num < 1 or seed < 0:
    raise ValueError(f"Must have num from 1 and a seed from 0, we instead got {num} and {seed}")
  out.parent.mkdir(parents=True, exist_ok=True)
  materials = scenes.TEXTURED_WORLD if textured else scenes.FLAT_WORLD
  lines = [scenes.draw_scene(seed, number, split, materials)[0] for number in range(num)]
  text = "".join(f"{line}\n" for line in lines)
  write_whole(out, lambda work: work.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
  main()
