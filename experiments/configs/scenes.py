"""Methods on scenes, whose images are correct or not: exact ones, lossy ones over their settings, and their audit.

Published, on GPUs and targets of billions of weights: SJD 2.2 times fewer calls and GSD 3.8 (arXiv 2508.07747); LANTERN 1.7
and LANTERN++ 2.6 in latency (arXiv 2410.03355, 2502.06352). The tokenizer here has 1,024 codes, those of the papers 8,192
and 16,384: groups and neighbours of one size cover a larger share here.

Where a table has both, a lossy row is compared with the exact method that has the same drafts and keys: the pair then
differs only where the rule acts.

``scorer.num`` is the number of captions of a table, ``--outlook`` prints the expected time and power. The drafts are those
of ``python -m experiments.train.devices --out checkpoints/scenes eagle draft-1 inter-2``. Tables of spatial and block heads
take ``runs/devices``, which ``python -m experiments.train.devices spatial block-2`` makes.
"""

from __future__ import annotations

import dataclasses

from experiments.engine.quality import Quality
from experiments.engine.race import CAPTIONS, Heat, Race
from experiments.engine.rows import OPEN, PLAIN, Row, row
from experiments.engine.scene_images import Scenes

BUNDLE, EDGE = "scenes", "inter-2"
# On a CPU the caches of 8 images fit near a core, those of 64 do not.
SEVERAL = dict(bundle=BUNDLE, scorer=Scenes(512), first_search=128, batch=8)
MANY = SEVERAL | dict(scorer=Scenes(1024))
UNIFORM = dict(initial="uniform")  # first drafts of published Jacobi windows; the table `jacobi_initial` has the others
SJD = row("sjd", "SJD, coupled", **UNIFORM)
SJD_FRESH = row("sjd", "SJD, fresh", recycle="fresh", point_mass=True, **UNIFORM)
CHAIN = row("speculative", "speculative, one layer", draft="draft-1")
EAGLE_CHAIN, EAGLE = row("eagle-chain", "EAGLE, chains"), row("eagle", "EAGLE-2")
EXACT = (CHAIN, SJD_FRESH, SJD, EAGLE_CHAIN, EAGLE)
BLOCK, BLOCK_TOGETHER = (
  row("block-head", f"block head{label}", draft="block-2", **given)
  for label, given in (("", {}), (", verify block", {"verify": "block"}))
)
LOCAL = row("ciar", "CIAR, everything local", tau=OPEN, draft=EDGE)

NO_LIMIT = 4.0  # the largest squared distance of unit vectors
NO_GAP = 1.0  # the largest difference of probabilities


def grouped(label: str, **given) -> Row:
  """GSD, without a limit of distances unless the table varies it."""
  return row("gsd", f"GSD, {label}", **(UNIFORM | {"max_distance": NO_LIMIT} | given))


def published(label: str = "as published", **given) -> Row:
  """GSD by its paper: its rule, distances of input embeddings, fresh drafts, certain initial drafts."""
  settings = dict(variant="published", distance="embedding", recycle="fresh", point_mass=True, **UNIFORM)
  return row("gsd", f"GSD, {label}", **(settings | given))


def static(size: int) -> Row:
  """Groups fixed in advance, on the same windows."""
  return row("gsd", f"static groups of {size}", variant="static", group_size=size, **UNIFORM)


def scaled(factor: float) -> Row:
  """The naive relaxation."""
  return row("scaled", f"scaled by {factor:g}", factor=factor, **UNIFORM)


def lantern(label: str, **given) -> Row:
  return row("lantern", f"LANTERN++, {label}", draft="draft-1", **given)


def against(exact: Row, *rows: Row) -> tuple[Row, ...]:
  """Rows that are compared with this one."""
  return tuple(dataclasses.replace(entry, against=exact.name) for entry in rows)


def audited(*rows: Row) -> tuple[Row, ...]:
  """The rows with the exact bias of their tokens; tables of audited rows share decodes."""
  return tuple(dataclasses.replace(entry, audit=True) for entry in rows)


def trees(method: str, name: str, **given) -> tuple[Row, ...]:
  """Three sizes of trees."""
  shapes = ((4, 2, 2), (8, 4, 3), (16, 4, 3))
  return tuple(
    row(method, f"{name}, {size} nodes", tree_size=size, tree_top_k=top_k, tree_depth=depth, **given)
    for size, top_k, depth in shapes
  )


def over_windows(*windows: int) -> tuple[Row, ...]:
  """GSD with groups of 50 against exact Jacobi decoding of the same window."""
  return tuple(
    entry
    for window in windows
    for entry in against(jacobi(window), grouped(f"window {window}", group_size=50, window=window))
  )


def at_window(window: int, *, size: int = 50, groups: int = 10, factor: float = 10.0, initial="uniform", **given) -> tuple:
  """Lossy rules beside the exact methods of the same drafts, with one length of drafts.

  Args:
    size, groups: tokens of a group of GSD, and of a static one.
    factor: lambda of LANTERN++; ``given`` are its other options.
    initial: first drafts of Jacobi windows.
  """
  words, wide = f"window {window}", dict(window=window, initial=initial)
  exact, chain = jacobi(window).but(initial=initial), CHAIN.but(label=f"speculative, {words}", gamma=window)
  return (
    exact, chain,
    *against(
      exact, grouped(f"G {size}, {words}", group_size=size, **wide),
      static(groups).but(label=f"static groups of {groups}, {words}", **wide),
      scaled(5.0).but(label=f"scaled by 5, {words}", **wide),
    ),
    *against(chain, lantern(f"lambda {factor:g}, {words}", factor=factor, gamma=window, **given)),
  )  # fmt: skip


def jacobi(window: int) -> Row:
  return row("sjd", f"SJD, window {window}", window=window, **UNIFORM)


def first_drafts(source: str, window: int) -> Row:
  return row("sjd", f"SJD, {source}, window {window}", initial=source, window=window)


DEFAULT, WIDE = row("gsd", "GSD, G 14", **UNIFORM), grouped("G 50", group_size=50)
EAGLE_LANTERN = row("eagle-lantern", "EAGLE-2 with LANTERN++, lambda 2", factor=2.0)
NO_GAPS = grouped("G 50, no gap", group_size=50, max_gap=NO_GAP)
EAGLE_TREES = trees("eagle", "EAGLE-2")
SPATIAL = tuple(row("spatial", f"spatial heads, window {gamma}", draft="spatial", gamma=gamma) for gamma in (3, 7, 15))
SPATIAL_BLOCK = SPATIAL[-1].but(label="spatial heads, window 15, block", verify="block")
TRAINED = "runs/devices"  # `python -m experiments.train.devices spatial block-2`
TIMED = (PLAIN.but(label="plain decoding"), *EXACT, DEFAULT, lantern("lambda 2", factor=2.0), EAGLE_LANTERN)
JACOBI = row("sjd", "SJD, first drafts from above")
GUMBEL = JACOBI.but(label="SJD, Gumbel drafts", recycle="gumbel")
COPIED = row("ngram", "row above copied")
ALL_METHODS = (
  CHAIN, *against(CHAIN, CHAIN.but(label="speculative, block verification", verify="block")),
  EAGLE_CHAIN, *against(EAGLE_CHAIN, EAGLE_CHAIN.but(label="EAGLE, chains, block verification", verify="block")), EAGLE,
  SJD_FRESH, SJD, JACOBI,
  *against(
    JACOBI, JACOBI.but(label="SJD, block verification", verify="block"),
    GUMBEL, JACOBI.but(label="SJD, branches of 4", branch=4, depth=3),
    row("gsd", "GSD, G 14, first drafts from above"), row("scaled", "scaled by 2, first drafts from above", factor=2.0),
  ),
  COPIED, row("sqs", "SQS", draft="draft-1"), *against(CHAIN, lantern("lambda 2", factor=2.0)),
  row("rows", "rows, width 8", width=8), row("rows", "rows, width 4", width=4),
)  # fmt: skip
FURTHER = (
  PLAIN.but(label="plain decoding"), CHAIN, CHAIN.but(label="speculative, block verification", verify="block"),
  JACOBI, JACOBI.but(label="SJD, block verification", verify="block"),
  GUMBEL, JACOBI.but(label="SJD, branches of 4", branch=4, depth=3),
  COPIED, row("rows", "rows, width 8", width=8), row("rows", "rows, width 4", width=4),
)  # fmt: skip
BATCHED = (
  PLAIN.but(label="plain decoding"),
  *(CHAIN.but(label=f"speculative, gamma {gamma}", gamma=gamma) for gamma in (3, 7, "auto")),
  EAGLE_CHAIN, EAGLE, COPIED,
  *(JACOBI.but(label=f"SJD, window {window}", window=window) for window in (3, 7, "auto")),
)  # fmt: skip
# Top-p leaves two or three tokens at most positions, so that lossy rules have little effect. Tables without it show their
# effect.
WHOLE = SEVERAL | dict(sampling=(("top_p", 1.0),), timings=0)
AUDITED = audited(
  CHAIN, SJD,
  *against(
    SJD, *(scaled(factor) for factor in (1.5, 2.0, 5.0)), *(grouped(f"G {g}", group_size=g) for g in (3, 10)), WIDE, NO_GAPS,
    static(10),
  ),
  *against(CHAIN, lantern("lambda 10", factor=10.0)),
)  # fmt: skip

TABLES = {
  "exact": Quality(
    title="Exact methods on scenes",
    rows=(CHAIN, EAGLE, SJD, EAGLE_CHAIN),
    margin=0.02,
    **(SEVERAL | dict(scorer=Scenes(7296))),
    notes=("Tests in tests/contract show that these methods are exact; this table shows it of images.",),
  ),
  "lossy": Quality(
    title="Lossy methods on scenes",
    rows=(
      scaled(2.0),
      DEFAULT,
      WIDE,
      NO_GAPS,
      published(),
      static(10),
      lantern("lambda 2", factor=2.0),
      lantern("lambda 10", factor=10.0),
      EAGLE_LANTERN,
      LOCAL,
    ),
    **MANY,
    notes=("GSD without its gap and CIAR with everything local must come out worse, or the score is too blunt.",),
  ),  # fmt: skip
  "gsd_groups": Quality(
    title="GSD on scenes over the group size",
    rows=(SJD, *against(SJD, *(grouped(f"G {size}", group_size=size) for size in (3, 10, 25, 50)))),
    **SEVERAL,
    notes=(
      "Published, on a 7B host with 2,392 tokens an image (here 144): 2.31 times fewer calls for SJD, 3.76 for GSD with "
      "groups of 50.",
    ),
  ),
  "gsd_thresholds": Quality(
    title="GSD on scenes over its thresholds, without top-p",
    rows=(
      SJD,
      *against(
        SJD,
        DEFAULT,
        WIDE,
        *(grouped(f"G 50, distance {d:g}", group_size=50, max_distance=d) for d in (0.25, 0.5, 1.0, 2.0)),
        *(grouped(f"G 50, gap {gap:g}", group_size=50, max_gap=gap) for gap in (0.02, 0.05, 0.5)),
        NO_GAPS,
      ),
    ),
    **WHOLE,
    notes=("The released code fixes a gap of 0.15 and a distance of 0.5, in squared distances of another space.",),
  ),  # fmt: skip
  "gsd_windows": Quality(
    title="Jacobi decoding of scenes over the window",
    rows=(*(jacobi(window) for window in (3, 7, 15, 31, 63)), *over_windows(15, 63)),
    **SEVERAL,
    notes=("Published windows have 16 tokens, that is 15 drafts.",),
  ),
  "long_windows": Quality(
    title="Lossy rules on scenes at windows of 15 and 31, without top-p",
    rows=audited(*at_window(15), *at_window(31)),
    **WHOLE,
    notes=("Published windows have 16 tokens and more.",),
  ),
  "jacobi_initial": Quality(
    title="Jacobi decoding of scenes over the first drafts of new positions",
    rows=(
      *(first_drafts(source, 7) for source in ("uniform", "left", "above", "diagonal")),
      *(first_drafts(source, window) for window in (11, 15) for source in ("uniform", "above")),
      *against(first_drafts("above", 15), grouped("G 50, from above", group_size=50, window=15, initial="above")),
    ),
    **(SEVERAL | dict(scorer=Scenes(256), timings=0)),
    notes=("All rows but the last are exact: the first drafts change the number of calls, not the distribution of images.",),
  ),
  "jacobi_gumbel": Quality(
    title="Gumbel drafts of Jacobi decoding on other captions",
    rows=(JACOBI, *against(JACOBI, GUMBEL)),
    **(MANY | dict(scorer=Scenes(1024, seed=3), timings=0)),
    notes=("Both rows are exact. The table of all methods, on captions of seed 2, has a significant difference of them.",),
  ),
  "gsd_no_gap": Quality(
    title="GSD on scenes without its gap",
    rows=(SJD, *against(SJD, *(grouped(f"G {size}, no gap", group_size=size, max_gap=NO_GAP) for size in (10, 200, 1000)))),
    **SEVERAL,
    notes=("The tokenizer has 1,024 codes. Groups hold tokens that top-p keeps.",),
  ),
  "gsd_rivals": Quality(
    title="GSD on scenes against its rivals, without top-p",
    rows=(
      SJD_FRESH,
      SJD,
      *against(SJD, WIDE, NO_GAPS),
      *against(
        SJD_FRESH,
        published(),
        published("as published, any distance", max_distance=NO_LIMIT),
        published("as published, G 50, any distance", group_size=50, max_distance=NO_LIMIT),
        published("as released, any distance", variant="released", max_distance=NO_LIMIT),
      ),
      *against(SJD, *(static(size) for size in (3, 10, 25, 50)), *(scaled(factor) for factor in (1.25, 1.5, 2.0, 5.0))),
    ),
    **WHOLE,
    notes=(
      "The published distance of 0.5 is of other embeddings. Here 8 pairs of tokens are so near, so that the published row "
      "is SJD; 'any distance' has groups by rank and gap alone.",
      "Published: at equal calls, grouping loses less quality than a scaled ratio; fixed groups save 12 % of SJD's calls, "
      "groups that follow the distribution 38 %.",
    ),
  ),  # fmt: skip
  "lantern_factors": Quality(
    title="LANTERN++ on scenes over lambda",
    rows=(
      CHAIN,
      *against(CHAIN, *(lantern(f"lambda {factor:g}", factor=factor) for factor in (1.5, 2.0, 3.0, 5.0, 10.0, 20.0))),
    ),
    **SEVERAL,
    notes=("Published settings are (k 10, lambda 5), (5, 10) and (5, 20), on trees.",),
  ),
  "lantern_neighbours": Quality(
    title="LANTERN++ on scenes over k, without top-p",
    rows=audited(CHAIN, *against(CHAIN, *(lantern(f"k {k}", num_neighbours=k, factor=5.0) for k in (3, 5, 10, 50, 200)))),
    **WHOLE,
    notes=("All rows have lambda 5.",),
  ),
  "lantern_trees": Quality(
    title="EAGLE-2 and LANTERN++ on scenes over the tree",
    rows=(
      *EAGLE_TREES,
      *(
        paired
        for exact, lossy in zip(EAGLE_TREES, trees("eagle-lantern", "LANTERN++, lambda 10", factor=10.0))
        for paired in against(exact, lossy)
      ),
    ),
    **SEVERAL,
    notes=("Published trees of 60 nodes are for hosts whose pass costs the same for 60 tokens as for one.",),
  ),  # fmt: skip
  "block_head": Quality(
    title="Blocks of one draft pass on scenes beside other exact methods",
    rows=(CHAIN, EAGLE_CHAIN, SJD, BLOCK, BLOCK_TOGETHER),
    **(SEVERAL | dict(bundle=TRAINED, scorer=Scenes(64), timings=0)),
    notes=("Published for texts, on GPUs: 6.2 times faster than plain decoding, 2.5 times EAGLE-3 (DFlash); images none.",),
  ),
  "block_head_speed": Race(
    title="Speed of blocks of one draft pass on scenes over plain decoding",
    bundle=TRAINED,
    against=CHAIN.name,
    texts=CAPTIONS,
    heats=tuple(
      Heat(batch=size, turns=16, rows=(PLAIN.but(label="plain decoding"), CHAIN, EAGLE_CHAIN, BLOCK, BLOCK_TOGETHER))
      for size in (1, 8)
    ),
  ),
  "audit": Quality(
    title="Exact bias of tokens beside the loss of images, without top-p",
    rows=AUDITED,
    **WHOLE,
    notes=("TV per token: exact total variation between the distribution that a rule gives a token and the target's.",),
  ),
  "methods": Quality(
    title="All methods on scenes",
    rows=ALL_METHODS,
    **(SEVERAL | dict(timings=0)),
    notes=("Times of these methods over the batch are those of the table scenes:batches.",),
  ),
  "speed_further": Race(
    title="Speed of further methods on scenes over plain decoding",
    bundle=BUNDLE,
    against=CHAIN.name,
    texts=CAPTIONS,
    heats=tuple(Heat(batch=size, turns=16, rows=FURTHER) for size in (1, 8)),
  ),
  "batches": Race(
    title="Speed of exact methods on scenes over the batch",
    bundle=BUNDLE,
    texts=CAPTIONS,
    heats=tuple(Heat(batch=size, turns=turns, rows=BATCHED) for size, turns in ((1, 12), (4, 12), (16, 8), (64, 6))),
  ),
  "rows": Quality(
    title="Rows of scenes in parallel over the width, without top-p",
    rows=audited(
      *(row("rows", f"rows, width {width}", width=width) for width in (8, 6, 4, 2)),
      *(row("rows", f"rows, width {width}, window 8", width=width, row_window=8) for width in (8, 4)),
    ),
    **(WHOLE | dict(scorer=Scenes(256))),
    notes=(
      "KL per token: estimated without bias from one teacher-forced pass of the target over each image; with a window, of "
      "an upper bound.",
      "Published, for ZipAR with 16 of 48 columns: 800 passes of 2,304.",
    ),
  ),
  "spatial": Quality(
    title="Spatial heads on scenes beside other exact methods",
    rows=(
      CHAIN,
      EAGLE_CHAIN,
      row("sjd", "SJD, coupled, from above"),
      row("ngram", "row above copied"),
      *SPATIAL,
      SPATIAL_BLOCK,
    ),
    **(SEVERAL | dict(bundle=TRAINED, scorer=Scenes(64), timings=0)),
    notes=("Published with relaxed tests: 7 to 14 times fewer passes (SSD); exact: 1.71 times faster (Hawk).",),
  ),
  "spatial_speed": Race(
    title="Speed of spatial heads on scenes over plain decoding",
    bundle=TRAINED,
    against=CHAIN.name,
    texts=CAPTIONS,
    heats=tuple(
      Heat(batch=size, turns=16, rows=(PLAIN.but(label="plain decoding"), CHAIN, EAGLE_CHAIN, *SPATIAL)) for size in (1, 8)
    ),
  ),
  "speed": Race(
    title="Speed of scenes over plain decoding",
    bundle=BUNDLE,
    texts=CAPTIONS,
    heats=tuple(Heat(batch=size, turns=16, rows=TIMED) for size in (1, 8)),
  ),
}
