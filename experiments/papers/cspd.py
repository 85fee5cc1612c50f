"""CSpD, continuous speculative decoding (arXiv 2411.11925)."""

from experiments.engine.reproduction import IMPOSSIBLE, NO_ORDER, OPEN, PARTLY, SAME, Item

ALIGN, GAMMA, PREFIX, GUIDED = (f"cspd_{name}_causal" for name in ("alignment", "gamma", "prefix", "guidance"))
BLOCKS, RACED = "cspd_digits_blocks_mar", "cspd_speed_blocks_mar"
ENDS, RELEASED = "cspd_ends_mar", "acceptance rule=released"
GAMMA_MAR, ALIGN_MAR = "cspd_gamma_mar", "cspd_alignment_mar"
PUBLISHED, UNALIGNED = "acceptance rule=published", "acceptance rule=published, not aligned"
EXACT = "acceptance rule=exact"
DIGITS, MAR = "cspd_digits_causal", "cspd_digits_mar"
SPEED = "speed over target | batch=1"
ITEMS = (
  Item("Figures 2 to 5", ("figures.rounds",), "drawings of the method", "", NO_ORDER, "a drawing"),
  Item(
    "Table 1, speed",
    ("cspd:speed_causal", "cspd:speed_digits", "cspd:speed_mar"),
    "MAR-H with MAR-B, gamma 4 to 32: 1.11 to 1.44 times at batch 1, 1.62 to 2.33 at 256",
    "batch 1, lowest and highest turn, published rule, larger causal pair: gamma 7 "
    f"[[cspd_speed_causal | published 7 | {SPEED}]], 31 "
    f"[[cspd_speed_causal | published 31 | {SPEED}]]; MAR pair, released test, gamma 8 "
    f"[[cspd_speed_mar | released 8 | {SPEED}]]",
    PARTLY,
    "the released test is faster, p [[cspd_speed_mar | released 8 | p, Holm | batch=1]]; the published rule is not "
    "significantly faster, p [[cspd_speed_causal | published 7 | p, Holm | batch=1]], the smallest that 7 turns and the "
    "correction over the table allow, and slower on the small pair, "
    "[[cspd_speed_digits | published 7 | speed over target | batch=1]] times, p "
    "[[cspd_speed_digits | published 7 | p, Holm | batch=1]]; a batch keeps both cores busy here, so it gains nothing",
  ),
  Item(
    "Table 1 and Figure 8, acceptance over gamma",
    ("cspd:gamma_causal", "figures.cspd"),
    "0.39 to 0.26 (MAR-L with MAR-B) for gamma 4 to 32",
    f"of tested drafts: gamma 4 [[{GAMMA} | 4 | alpha | {PUBLISHED}]], 32 [[{GAMMA} | 32 | alpha | {PUBLISHED}]]; of all "
    f"drafts [[{GAMMA} | 4 | accepted | {PUBLISHED}]] and [[{GAMMA} | 32 | accepted | {PUBLISHED}]]",
    OPEN,
    f"of tested drafts [[apart | {GAMMA} | 4 | alpha | {PUBLISHED} ;; {GAMMA} | 32 | alpha | {PUBLISHED}]]; the paper "
    "does not define its acceptance",
  ),
  Item(
    "the same on the MAR pair",
    ("cspd:gamma_mar",),
    "as above",
    f"of tested drafts: published rule, gamma 4 [[{GAMMA_MAR} | 4 | alpha | {PUBLISHED}]], 32 "
    f"[[{GAMMA_MAR} | 32 | alpha | {PUBLISHED}]]; released test [[{GAMMA_MAR} | 4 | alpha | {RELEASED}]], "
    f"[[{GAMMA_MAR} | 32 | alpha | {RELEASED}]], of all drafts [[{GAMMA_MAR} | 4 | accepted | {RELEASED}]], "
    f"[[{GAMMA_MAR} | 32 | accepted | {RELEASED}]]",
    OPEN,
    f"of 10 digits; of tested drafts [[apart | {GAMMA_MAR} | 4 | alpha | {PUBLISHED} ;; {GAMMA_MAR} | 32 | alpha | "
    f"{PUBLISHED}]]",
  ),
  Item(
    "Table 1, speed of the released program",
    ("cspd:speed_blocks_mar",),
    "as above; the program commits whole blocks, so that its speed does not depend on acceptance",
    f"lowest and highest turn: gamma 4 [[{RACED} | program 4 | {SPEED}]], 32 [[{RACED} | program 32 | {SPEED}]] at batch 1, "
    f"[[{RACED} | program 4 | speed over target | batch=32]] and [[{RACED} | program 32 | speed over target | batch=32]] at "
    "batch 32",
    SAME,
    f"the program is faster than the target, gamma 4 p [[{RACED} | program 4 | p, Holm | batch=1]] and 32 p "
    f"[[{RACED} | program 32 | p, Holm | batch=32]]; the target in as many iterations as the program makes calls is faster "
    f"still: gamma 8 has [[{RACED} | program 8 | over the target at equal calls | batch=1]] times its speed",
  ),
  Item(
    "Table 2, images of the released program",
    ("cspd:digits_blocks_mar",),
    "as Table 2",
    f"class accuracy, %: target [[{BLOCKS} | target | class accuracy, %]]; program, gamma 8 "
    f"[[{BLOCKS} | program, gamma 8 | class accuracy, %]], 32 [[{BLOCKS} | program, gamma 32 | class accuracy, %]]; target "
    f"in 9 iterations [[{BLOCKS} | target, 9 iterations | class accuracy, %]], in 3 "
    f"[[{BLOCKS} | target, 3 iterations | class accuracy, %]]",
    OPEN,
    f"gamma 8 [[{BLOCKS} | program, gamma 8 | minus target, points]], gamma 32 "
    f"[[{BLOCKS} | program, gamma 32 | minus target, points]] points; the target in as many iterations as the program makes "
    "calls does not differ significantly either",
  ),
  Item(
    "Table 2",
    ("cspd:digits_causal", "cspd:digits_mar"),
    "FID with guidance: MAR-H 1.55, with MAR-B drafts 1.60",
    f"class accuracy, %: target [[{DIGITS} | target | class accuracy, %]], published rule, gamma 8 "
    f"[[{DIGITS} | published, gamma 8 | class accuracy, %]], test of the released code "
    f"[[{DIGITS} | released, gamma 8 | class accuracy, %]]",
    OPEN,
    f"published rule [[{DIGITS} | published, gamma 8 | minus target, points]], as in the paper; the released test loses "
    f"[[{DIGITS} | released, gamma 8 | minus target, points]]; no ImageNet FID: no released weights",
  ),
  Item(
    "Table 3",
    ("cspd:alignment_causal", "cspd:alignment_mar"),
    "alignment raises alpha from 0.13 to 0.37 at gamma 4, 0.12 to 0.39 at 8 (MAR-L with MAR-B)",
    f"gamma 4: [[{ALIGN} | 4 | alpha | {UNALIGNED}]] to [[{ALIGN} | 4 | alpha | {PUBLISHED}]]; gamma 8: "
    f"[[{ALIGN} | 8 | alpha | {UNALIGNED}]] to [[{ALIGN} | 8 | alpha | {PUBLISHED}]]; MAR pair, gamma 4: "
    f"[[{ALIGN_MAR} | 4 | alpha | {UNALIGNED}]] to [[{ALIGN_MAR} | 4 | alpha | {PUBLISHED}]]",
    SAME,
    f"[[apart | {ALIGN} | 4 | alpha | {UNALIGNED} ;; {ALIGN} | 4 | alpha | {PUBLISHED}]]; MAR pair (10 digits) "
    f"[[apart | {ALIGN_MAR} | 4 | alpha | {UNALIGNED} ;; {ALIGN_MAR} | 4 | alpha | {PUBLISHED}]]",
  ),
  Item(
    "Table 4 and Figure 11, pre-filling",
    ("cspd:prefix_causal", "cspd:prefix_mar", "figures.cspd"),
    "alpha 0.35, 0.39, 0.39 with 0, 5, 15 % at gamma 8 (MAR-L with MAR-B); speed falls slightly",
    f"[[{PREFIX} | 8 | alpha | {PUBLISHED} | target prefix=0]], "
    f"[[{PREFIX} | 8 | alpha | {PUBLISHED} | target prefix=0.05]], "
    f"[[{PREFIX} | 8 | alpha | {PUBLISHED} | target prefix=0.15]]; calls "
    f"[[{PREFIX} | 8 | target calls | {PUBLISHED} | target prefix=0]] to "
    f"[[{PREFIX} | 8 | target calls | {PUBLISHED} | target prefix=0.15]]",
    OPEN,
    f"of 0 and 15 %, published rule [[apart | {PREFIX} | 8 | alpha | {PUBLISHED} | target prefix=0 ;; {PREFIX} | 8 | "
    f"alpha | {PUBLISHED} | target prefix=0.15]]; with the exact rule, where alpha falls, [[apart | {PREFIX} | 8 | "
    f"alpha | {EXACT} | target prefix=0 ;; {PREFIX} | 8 | alpha | {EXACT} | target prefix=0.15]]; acceptance is highest at "
    f"the first tokens here ([[{DIGITS} | published, gamma 8 | "
    f"accepted along the row, %]] along the row), in the paper lowest; on the "
    "MAR pair [[apart | cspd_prefix_mar | 8 | alpha | acceptance rule=released | target prefix=0 ;; cspd_prefix_mar | 8 | "
    "alpha | acceptance rule=released | target prefix=0.15]]; without speed",
  ),
  Item(
    "Figures 6, 7, 9, 17 to 21",
    ("figures.cspd",),
    "images by method and gamma",
    "[images](results/continuous_tokens.md#distribution-of-a-token)",
    NO_ORDER,
    "`--decode` draws them at one gamma",
  ),
  Item(
    "Figures 10, 12",
    ("figures.cspd",),
    "images with and without alignment, over pre-filling",
    "[images](images/cspd_settings_causal.png)",
    NO_ORDER,
    "images of the causal pair, `--decode`",
  ),
  Item(
    "Figure 13",
    ("cspd:guidance_causal", "figures.cspd"),
    "alpha falls with guidance",
    f"scales 1, 2, 3: [[{GUIDED} | 4 | alpha | {PUBLISHED} | cfg scale=1]], "
    f"[[{GUIDED} | 4 | alpha | {PUBLISHED} | cfg scale=2]], [[{GUIDED} | 4 | alpha | {PUBLISHED} | cfg scale=3]]",
    SAME,
    f"of 1 and 3 [[apart | {GUIDED} | 4 | alpha | {PUBLISHED} | cfg scale=1 ;; {GUIDED} | 4 | alpha | {PUBLISHED} "
    "| cfg scale=3]]",
  ),
  Item(
    "Figure 14",
    ("cspd:temperature_causal", "figures.cspd"),
    "alpha over the temperature (no figures printed)",
    f"0.9 and 1, scale 2: [[cspd_temperature_causal | 4 | alpha | {PUBLISHED} | cfg scale=2 | temperature=0.9]], "
    f"[[cspd_temperature_causal | 4 | alpha | {PUBLISHED} | cfg scale=2 | temperature=1]]",
    NO_ORDER,
    "two temperatures only",
  ),
  Item(
    "Figure 15",
    ("cspd:gamma_causal", "figures.cspd"),
    "a few proposals per rejection",
    f"[[{GAMMA} | 4 | proposals per rejection | {PUBLISHED}]] at gamma 4, "
    f"[[{GAMMA} | 32 | proposals per rejection | {PUBLISHED}]] at 32",
    NO_ORDER,
    "the paper prints no figures",
  ),
  Item(
    "Figure 16",
    ("figures.cspd",),
    "accepted tokens lie in flat areas",
    "[map](images/cspd_map_causal.png)",
    NO_ORDER,
    "an image",
  ),
  Item(
    "Section A.3, the distribution of a token",
    ("cspd:marginals_causal",),
    "a proof that the target's distribution is preserved",
    "largest KS: published rule [[cspd_marginals_causal | published rule | largest KS]], target with other seeds "
    "[[cspd_marginals_causal | target, other seeds | largest KS]]",
    OPEN,
    "published rule p [[cspd_marginals_causal | published rule | p, Holm]]; a toy shows its bias ([rules](rules.md))",
  ),
  Item(
    "the same on the MAR pair",
    ("cspd:marginals_mar",),
    "as above",
    "largest KS: published rule [[cspd_marginals_mar | published rule | largest KS]], draft alone "
    "[[cspd_marginals_mar | draft alone | largest KS]], target with other seeds "
    "[[cspd_marginals_mar | target, other seeds | largest KS]]",
    OPEN,
    "published rule p [[cspd_marginals_mar | published rule | p, Holm]], draft alone p "
    "[[cspd_marginals_mar | draft alone | p, Holm]]: 1,024 rows of one token do not show even the draft",
  ),
  Item(
    "Algorithm 1 on chains that end in a mean, as MAR's",
    ("cspd:ends_mar",),
    "alpha 0.39 at gamma 4 (MAR-L with MAR-B, Table 1)",
    f"MAR pair: the test of the paper [[{ENDS} | 4 | alpha | {PUBLISHED} | stop=a mean]], that of the released code "
    f"[[{ENDS} | 4 | alpha | {RELEASED} | stop=a mean]]; chains that end with noise [[{ENDS} | 4 | alpha | {PUBLISHED} | "
    f"stop=5]] and [[{ENDS} | 4 | alpha | {RELEASED} | stop=5]]",
    NO_ORDER,
    "of 10 digits; only the test of the released code accepts drafts that end in a mean",
  ),
  Item(
    "MAR-B, MAR-L and MAR-H on ImageNet",
    (),
    "networks of all tables",
    "",
    IMPOSSIBLE,
    "no released weights and no ImageNet here; `jaxspec convert mar` imports them",
  ),
)
