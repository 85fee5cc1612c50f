"""Lossy methods in the lifted world, whose background codes have many near-synonyms (`experiments.engine.lifted`).

Every lossy row is compared with its exact sibling: the same drafts and keys, another rule. Windows have 15 drafts, as
published.
"""

from __future__ import annotations

from experiments.configs.scenes import BUNDLE, CHAIN, EDGE, NO_GAP, NO_LIMIT, against, at_window, lantern
from experiments.configs.scenes_ciar import LANTERN, NUM_TOKENS
from experiments.engine.lifted import STEP, Lift
from experiments.engine.quality import Quality
from experiments.engine.rows import Row, code, matched, row
from experiments.engine.scene_images import Scenes

WINDOW, RATES = 15, (0.2, 0.3, 0.4)
WORLD = dict(bundle=BUNDLE, scorer=Scenes(512), batch=8, timings=0)
# Enough twins that the interval score of a flat distribution is below that of a choice between two codes.
CIAR_WORLD = Lift(twins=1024, sigma=0.0, top_p=1.0)
MERGED = f"merged:{1.2 * STEP:g}"  # joins neighbouring twins and no others
SCORES = {
  "CIAR, radius 0.5": "interval:radius=0.5", "CIAR, learnt radii": "interval", "Entropy": "entropy",
  "Entropy-Lens": "entropy_lens", "max-prob": "max_prob", "Random": "random", "U-HLM": "temperature",
  "Entropy of merged codes": f"{MERGED}:entropy", "CIAR of merged codes": f"{MERGED}:interval",
}  # fmt: skip


def jacobi(method: str, label: str, **given) -> Row:
  """Windows of 15 drafts whose first ones are copied from the row above."""
  return row(method, label, **(dict(window=WINDOW, initial="above") | given))


def grouped(size: int, label: str = "", **given) -> Row:
  """GSD without a limit of distances."""
  return jacobi("gsd", label or f"GSD, G {size}", group_size=size, max_distance=NO_LIMIT, **given)


EXACT = jacobi("sjd", "SJD")
FRESH = dict(recycle="fresh", point_mass=True)
DRAFTED = CHAIN.but(gamma=7)
NEIGHBOURS = 63  # the other twins of a code


def lent(factor: float) -> Row:
  """LANTERN++ by a draft that knows the codes and not the grain."""
  return lantern(f"lambda {factor:g}", gamma=7, num_neighbours=NEIGHBOURS, factor=factor)


def group_size(twins: int) -> int:
  """Group size in proportion to the twins, 100 for the 64 of the other tables."""
  return max(2, 100 * twins // 64)


def strength(twins: int) -> Quality:
  """GSD, LANTERN++ and their siblings at one number of twins; the grain's step grows with it."""
  sizes = sorted({100, group_size(twins)})
  return Quality(
    title=f"GSD and LANTERN++ in the lifted world with {twins} twins",
    rows=(EXACT, *(grouped(size) for size in sizes), DRAFTED, *against(DRAFTED, lent(5.0))),
    subject=EXACT.label,
    lift=Lift(twins=twins, sigma=twins / 16),
    **WORLD,
  )


def comparison(rate: float) -> Quality:
  """Scores of CIAR and their baselines at one rate of cloud calls."""
  subject, *rivals = (matched(name, rate, score=score, gamma=1) for name, score in SCORES.items())
  return Quality(
    title=f"Scores in the lifted world at {100 * rate:g} % cloud calls",
    rows=(subject, *rivals, code(rate, NUM_TOKENS), LANTERN),
    subject=subject.label,
    layout="cloud",
    draft=EDGE,
    first_search=128,
    lift=CIAR_WORLD,
    **(WORLD | dict(scorer=Scenes(1024), timings=5)),
    notes=("The head of EAGLE-2 shares the matrices of a target without twins, so that this world has no row of it.",),
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
    rows=(DRAFTED, *(lent(factor) for factor in (2.0, 5.0, 20.0))),
    subject=DRAFTED.label,
    lift=Lift(),
    **WORLD,
    notes=("The draft knows the codes and not the grain.",),
  ),
  "long_windows": Quality(
    # Without the slow audit of the flat world's table: the step of the grain measures the harm.
    title="Lossy rules in the lifted world at windows of 15 and 31",
    rows=tuple(
      entry
      for window in (15, 31)
      for entry in at_window(window, size=100, groups=64, factor=5.0, initial="above", num_neighbours=NEIGHBOURS)
    ),
    lift=Lift(),
    **WORLD,
  ),
  **{f"strength_{twins}": strength(twins) for twins in (1, 4, 16, 64, 256)},
  **{f"ciar_{100 * rate:.0f}": comparison(rate) for rate in RATES},
}
