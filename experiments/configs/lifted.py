"""Lossy methods in the lifted world, whose background codes have many near-synonyms (`experiments.engine.lifted`).

Every lossy row is compared with its exact sibling: the same drafts and keys, another rule. Windows have 15 drafts, as
published.
"""

from __future__ import annotations

from experiments.configs.scenes import BUNDLE, EDGE, NO_GAP, NO_LIMIT
from experiments.engine.lifted import STEP, Lift
from experiments.engine.quality import Quality
from experiments.engine.rows import Row, matched, row
from experiments.engine.scene_images import Scenes

WINDOW, RATE = 15, 0.3
WORLD = dict(bundle=BUNDLE, scorer=Scenes(512), batch=8, timings=0)
# Enough twins that the interval score of a flat distribution is below that of a choice between two codes.
CIAR_WORLD = Lift(twins=1024, sigma=0.0, top_p=1.0)
MERGED = f"merged:{1.2 * STEP:g}"  # joins neighbouring twins and no others
SCORES = {
  "CIAR, radius 0.5": "interval:radius=0.5", "CIAR, learnt radii": "interval", "Entropy": "entropy", "max-prob": "max_prob",
  "U-HLM": "temperature", "Entropy of merged codes": f"{MERGED}:entropy", "CIAR of merged codes": f"{MERGED}:interval",
}  # fmt: skip


def jacobi(method: str, label: str, **given) -> Row:
  """Windows of 15 drafts whose first ones are copied from the row above."""
  return row(method, label, **(dict(window=WINDOW, initial="above") | given))


def grouped(size: int, label: str = "", **given) -> Row:
  """GSD without a limit of distances."""
  return jacobi("gsd", label or f"GSD, G {size}", group_size=size, max_distance=NO_LIMIT, **given)


EXACT = jacobi("sjd", "SJD")
FRESH = dict(recycle="fresh", point_mass=True)


def strength(twins: int) -> Quality:
  """GSD and its sibling at one number of twins; the grain's step grows with it."""
  return Quality(
    title=f"GSD in the lifted world with {twins} twins",
    rows=(EXACT, grouped(100)),
    subject=EXACT.label,
    lift=Lift(twins=twins, sigma=twins / 16),
    **WORLD,
  )


TABLES = {
  "groups": Quality(
    title="Grouped verification in the lifted world",
    rows=(
      EXACT,
      *(grouped(size) for size in (10, 50, 100)),
      grouped(100, "GSD, G 100, no gap", max_gap=NO_GAP),
      jacobi("gsd", "static groups of 64", variant="static", group_size=64),
      jacobi("scaled", "scaled by 5", factor=5.0),
    ),
    subject=EXACT.label,
    lift=Lift(),
    **WORLD,
  ),
  "published": Quality(
    title="Grouped verification as published in the lifted world",
    rows=(
      jacobi("sjd", "SJD as published", initial="uniform", **FRESH),
      *(
        jacobi(
          "gsd",
          f"GSD as published, {words}",
          initial=initial,
          variant="published",
          distance="embedding",
          group_size=100,
          max_distance=NO_LIMIT,
          **FRESH,
        )
        for initial, words in (("uniform", "G 100"), ("above", "G 100, first drafts from above"))
      ),
    ),
    subject="SJD as published",
    lift=Lift(),
    **WORLD,
    notes=("Published: 2.31 times fewer calls for SJD, 3.76 for GSD.",),
  ),  # fmt: skip
  "lantern": Quality(
    title="LANTERN++ in the lifted world",
    rows=(
      row("speculative", "speculative, one layer", draft="draft-1", gamma=7),
      *(
        row("lantern", f"LANTERN++, lambda {factor:g}", draft="draft-1", gamma=7, num_neighbours=63, factor=factor)
        for factor in (2.0, 5.0, 20.0)
      ),
    ),
    subject="speculative, one layer",
    lift=Lift(),
    **WORLD,
    notes=("The draft knows the codes and not the grain.",),
  ),
  **{f"strength_{twins}": strength(twins) for twins in (4, 16, 64, 256)},
  "ciar_30": Quality(
    title="Scores in the lifted world at 30 % cloud calls",
    rows=tuple(matched(name, RATE, score=score, gamma=1) for name, score in SCORES.items()),
    subject="CIAR, radius 0.5",
    layout="cloud",
    draft=EDGE,
    first_search=128,
    lift=CIAR_WORLD,
    **(WORLD | dict(scorer=Scenes(1024))),
  ),
}
