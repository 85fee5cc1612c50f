"""Lossy methods in the textured world, whose target was trained on backgrounds of wood, water, marble and cloth.

The tables are those of the lifted world and of CIAR on scenes, with other networks and captions, so that each row has its
counterpart there. The bundle is not shipped. The commands that make it, in this order::

    python -m experiments.train.tokenizer --config textures --run-dir runs/textures-all --export runs/textures-tokenizer
    python -m experiments.train.scene_target --config textures --run-dir runs/textures --export runs/textures/bundle
    python -m experiments.data.captions --textured --num 4608 --split train --seed 0 --out runs/textures-captions.txt
    python -m experiments.train.devices --bundle runs/textures/bundle --out runs/textures/bundle --captions \\
      runs/textures-captions.txt --samples runs/textures-samples.npz --runs runs/textures-trainings eagle draft-1 inter-2
"""

from __future__ import annotations

import dataclasses

from experiments.configs import lifted, scenes_ciar
from experiments.engine.quality import Quality
from jaxspec.evaluation.scenes import TEXTURED_WORLD

BUNDLE = "runs/textures/bundle"
OF_LIFTED = ("groups", "published", "lantern", "long_windows")
OF_SCENES = tuple(name for name in scenes_ciar.TABLES if name.startswith("comparison_"))


def textured(table: Quality) -> Quality:
  """A table of another world with the networks and captions of this one."""
  title = table.title.replace(" on scenes", "").replace(" in the lifted world", "") + " in the textured world"
  scorer = dataclasses.replace(table.scorer, materials=TEXTURED_WORLD)  # pyright: ignore[reportArgumentType]
  return dataclasses.replace(table, title=title, bundle=BUNDLE, scorer=scorer, lift=None, timings=0)


TABLES = {
  **{name: textured(lifted.TABLES[name]) for name in OF_LIFTED},
  **{f"ciar_{name}": textured(scenes_ciar.TABLES[name]) for name in OF_SCENES},
}
