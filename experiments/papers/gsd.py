"""GSD (arXiv 2508.07747): the supplement, and the main result that it refers to."""

from experiments.engine.reproduction import IMPOSSIBLE, NO_ORDER, OPEN, PARTLY, REVERSED, SAME, Item

RIVALS, LONG, LIFTED, AS_PUBLISHED = "scenes_gsd_rivals", "scenes_long_windows", "lifted_groups", "lifted_published"
PUBLISHED = "GSD, as published, G 50, any distance"
ITEMS = (
  Item(
    "Supplement, Figure 1",
    ("figures.likeliest",),
    "many tokens with a low largest probability",
    "[images](results/discrete.md#images)",
    NO_ORDER,
    "an image; most positions of scenes are certain, the opposite of the paper's",
  ),
  Item(
    "Supplement, Figure 2; main Table 1, calls",
    ("scenes:gsd_rivals", "scenes:gsd_windows"),
    "2.31 times fewer calls for SJD, 3.76 for GSD with groups of 50 (2,392 tokens an image)",
    f"calls of 144: SJD [[{RIVALS} | SJD, fresh | target calls]], GSD as published, G 50, any distance "
    f"[[{RIVALS} | {PUBLISHED} | target calls]]; with windows of 15 drafts and the rule of this project "
    "[[scenes_gsd_windows | SJD, window 15 | target calls]] and [[scenes_gsd_windows | GSD, window 15 | target calls]]",
    OPEN,
    "GSD against SJD [[order | GSD takes fewer calls than SJD]], with windows of 7 drafts; few tokens to group here",
  ),
  Item(
    "the same at windows of 15 and 31 drafts, without top-p",
    ("scenes:long_windows",),
    "as above, at 15",
    f"calls of 144 at 15: SJD [[{LONG} | SJD, window 15 | target calls]], GSD, G 50 "
    f"[[{LONG} | GSD, G 50, window 15 | target calls]]; at 31 [[{LONG} | SJD, window 31 | target calls]] and "
    f"[[{LONG} | GSD, G 50, window 31 | target calls]]",
    OPEN,
    f"tokens per call at 31 [[{LONG} | SJD, window 31 | tokens per call]] and "
    f"[[{LONG} | GSD, G 50, window 31 | tokens per call]]; correct images: "
    f"[[{LONG} | GSD, G 50, window 15 | difference, points]] and [[{LONG} | GSD, G 50, window 31 | difference, points]] "
    "points",
  ),
  Item(
    "the same where codes have near-synonyms",
    ("lifted:published", "lifted:groups"),
    "as above",
    f"calls of 144 by the published rules, any distance: SJD [[{AS_PUBLISHED} | SJD as published | target calls]], GSD, "
    f"G 100 [[{AS_PUBLISHED} | GSD as published, G 100 | target calls]], with first drafts from the row above "
    f"[[{AS_PUBLISHED} | GSD as published, G 100, first drafts from above | target calls]]; by the rules of this project "
    f"SJD [[{LIFTED} | SJD | target calls]], GSD, G 100 [[{LIFTED} | GSD, G 100 | target calls]]",
    SAME,
    f"of tokens per call by the published rules [[apart | {AS_PUBLISHED} | SJD as published | tokens per call ;; "
    f"{AS_PUBLISHED} | GSD as published, G 100 | tokens per call]]; correct images "
    f"[[{AS_PUBLISHED} | GSD as published, G 100 | difference, points]] points; the step of the grain grows from "
    f"[[{AS_PUBLISHED} | SJD as published | step of the grain]] to "
    f"[[{AS_PUBLISHED} | GSD as published, G 100 | step of the grain]]",
  ),
  Item(
    "main Table 1, quality",
    ("scenes:gsd_rivals",),
    "at equal calls grouping loses less than a scaled ratio",
    f"correct, difference to exact SJD in points: GSD, G 50 [[{RIVALS} | GSD, G 50 | difference, points]], scaled by 5 "
    f"[[{RIVALS} | scaled by 5 | difference, points]], by 2 [[{RIVALS} | scaled by 2 | difference, points]]",
    REVERSED,
    "GSD over the ratio of 2 [[order | at equal calls, GSD loses less than a scaled ratio]]; GSD by the rule of this "
    "project; the calls of both differ by less than one an image",
  ),
  Item(
    "main paper, static groups",
    ("scenes:gsd_rivals",),
    "fixed groups save 12 % of SJD's calls, groups that follow the distribution 38 %",
    f"calls of 144: static groups of 50 [[{RIVALS} | static groups of 50 | target calls]], GSD as published "
    f"[[{RIVALS} | {PUBLISHED} | target calls]]",
    REVERSED,
    "that groups of the distribution take fewer "
    "[[order | groups that follow the distribution take fewer calls than fixed ones]]; fixed groups lose more images here: "
    f"[[{RIVALS} | static groups of 50 | difference, points]] points",
  ),
  Item(
    "main paper, group size",
    ("scenes:gsd_groups", "lifted:groups"),
    "larger groups take fewer calls (G 3 to 50)",
    "calls of 144: G 3 [[scenes_gsd_groups | GSD, G 3 | target calls]], G 50 "
    f"[[scenes_gsd_groups | GSD, G 50 | target calls]]; with near-synonyms G 10 [[{LIFTED} | GSD, G 10 | target calls]], "
    f"G 100 [[{LIFTED} | GSD, G 100 | target calls]]",
    PARTLY,
    "G 50 against 3 [[order | larger groups take fewer calls]]; with near-synonyms, of tokens per call at G 10 and 100 "
    f"[[apart | {LIFTED} | GSD, G 10 | tokens per call ;; {LIFTED} | GSD, G 100 | tokens per call]]",
  ),
  Item(
    "Supplement, Figure 3",
    ("figures.images_by_method",),
    "images by method",
    "[images](results/discrete.md#images)",
    NO_ORDER,
    "images without selection",
  ),
  Item(
    "FID and CLIP score of Lumina-mGPT",
    (),
    "7B target on MS-COCO",
    "",
    IMPOSSIBLE,
    "no released weights; `jaxspec convert` imports them ([Chameleon](chameleon.md))",
  ),
)
