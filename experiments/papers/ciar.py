"""CIAR (arXiv 2603.25463)."""

from experiments.engine.reproduction import IMPOSSIBLE, NO_ORDER, OPEN, PARTLY, REVERSED, SAME, Item

AT_30, FURTHER_DIT = "scenes_ciar_comparison_30", "hosts_further_dit"
GREEDY, LANTERN = "scenes_ciar_greedy", "LANTERN, delta 0.2, k 1,000"
ITEMS = (
  Item(
    "Figure 1a, approved tokens",
    ("scenes_ciar:greedy", "scenes_ciar:merged"),
    "70 % of the approved tokens are the edge's likeliest",
    "share of accepted drafts that are the edge's likeliest, %: "
    f"[[{GREEDY} | every token verified, exact | the edge's likeliest of these, %]] where the cloud sees all, "
    "[[scenes_ciar_merged | CIAR, 20 % | the edge's likeliest of these, %]] at 20 % calls",
    NO_ORDER,
    "most tokens of scenes are certain",
  ),
  Item(
    "Figure 1a, a greedy edge",
    ("scenes_ciar:greedy",),
    "a greedy edge alone keeps the semantics and loses details",
    f"correct images, %: edge alone, sampling [[{GREEDY} | sampling edge, alone | correct, %]], greedy "
    f"[[{GREEDY} | greedy edge, alone | correct, %]]; at 30 % calls [[{GREEDY} | sampling edge, 30 % calls | correct, %]] "
    f"and [[{GREEDY} | greedy edge, 30 % calls | correct, %]]",
    NO_ORDER,
    "the paper shows images; a greedy edge alone is worse than one that samples "
    f"([[{GREEDY} | greedy edge, alone | difference, points]] points), at 30 % calls not significantly different "
    f"([[{GREEDY} | greedy edge, 30 % calls | difference, points]])",
  ),
  Item("Figures 1b, 2", ("figures.rounds", "figures.exchange"), "drawings of the method", "", NO_ORDER, "a drawing"),
  Item(
    "Table 1, quality",
    ("scenes_ciar:comparison_30",),
    "FID of Stage I: cloud alone 23.7, CIAR 24.2, Entropy-Lens 24.6, EAGLE-2 25.1, LANTERN 25.5, CoDe 35.7",
    f"correct images, %: cloud alone [[{AT_30} | plain decoding | correct, %]], CIAR [[{AT_30} | CIAR | correct, %]], "
    f"Entropy-Lens [[{AT_30} | Entropy-Lens | correct, %]], EAGLE-2 [[{AT_30} | EAGLE-2 | correct, %]] at "
    f"[[{AT_30} | EAGLE-2 | cloud calls, %]] % calls, LANTERN [[{AT_30} | {LANTERN} | correct, %]] at "
    f"[[{AT_30} | {LANTERN} | cloud calls, %]] % calls, CoDe [[{AT_30} | CoDe(0.3) | correct, %]]",
    PARTLY,
    f"cloud alone [[{AT_30} | plain decoding | difference, points]] points, Entropy-Lens "
    f"[[{AT_30} | Entropy-Lens | difference, points]], CoDe [[{AT_30} | CoDe(0.3) | difference, points]] against CIAR, as "
    "published; EAGLE-2 [[order | CIAR at 30 % calls is better than EAGLE-2]], LANTERN "
    "[[order | CIAR at 30 % calls is better than LANTERN]]",
  ),
  Item(
    "Table 1, FID, CLIP, F1, HPSv2",
    (),
    "MS-COCO captions",
    "",
    IMPOSSIBLE,
    "no released weights and no MS-COCO images; `jaxspec evaluate --standard` computes FID and CLIP score of your images",
  ),
  Item(
    "Tables 1, 2, speed",
    ("scenes_ciar:speed",),
    "CIAR 2.53 times, LANTERN 1.66, EAGLE-2 1.02",
    "batch 1, lowest and highest turn: CIAR [[scenes_ciar_speed | CIAR, window 2 | speed over plain decoding | batch=1]] at "
    "[[scenes_ciar_speed | CIAR, window 2 | cloud calls, % | batch=1]] % calls, LANTERN++ "
    "[[scenes_ciar_speed | LANTERN++, lambda 2 | speed over plain decoding | batch=1]], EAGLE-2 "
    "[[scenes_ciar_speed | EAGLE-2 | speed over plain decoding | batch=1]]; correct images, %: "
    "[[scenes_ciar_speed | CIAR, window 2 | correct images, % | batch=1]], "
    "[[scenes_ciar_speed | LANTERN++, lambda 2 | correct images, % | batch=1]], "
    "[[scenes_ciar_speed | EAGLE-2 | correct images, % | batch=1]]",
    REVERSED,
    "the 95 % brackets of their speeds over CIAR's are above 1: LANTERN++ "
    "[[scenes_ciar_speed | LANTERN++, lambda 2 | over CIAR, window 2, 95 % | batch=1]], "
    "EAGLE-2 [[scenes_ciar_speed | EAGLE-2 | over CIAR, window 2, 95 % | batch=1]]",
  ),
  Item(
    "Tables 1, 2, Stage II and Anole",
    (),
    "the same methods on two larger targets",
    "",
    IMPOSSIBLE,
    "no released weights",
  ),
  Item(
    "Table 2, scores",
    ("scenes_ciar:comparison_20", "scenes_ciar:comparison_30", "scenes_ciar:comparison_40"),
    "FID of Stage I: CIAR 24.2, Entropy-Lens 24.6, Random 30.2, SoftmaxCorr (max-prob) 31.1, at 30 to 52 % calls",
    f"correct images at 30 % calls, %: CIAR [[{AT_30} | CIAR | correct, %]], Entropy [[{AT_30} | Entropy | correct, %]], "
    f"max-prob [[{AT_30} | max-prob | correct, %]], Random [[{AT_30} | Random | correct, %]]",
    PARTLY,
    "Random [[order | CIAR's score is better than Random at equal calls]]; max-prob "
    "[[order | CIAR's score is better than max-prob at equal calls]]; Entropy "
    "[[order | CIAR's score is better than Entropy at equal calls]]",
  ),
  Item(
    "the same where codes have near-synonyms",
    ("lifted:ciar_20", "lifted:ciar_30", "lifted:ciar_40"),
    "as above; codebooks of 16,384 codes",
    "correct images at 30 % calls, %: CIAR with a constant radius [[lifted_ciar_30 | CIAR, radius 0.5 | correct, %]], with "
    "learnt radii [[lifted_ciar_30 | CIAR, learnt radii | correct, %]], Entropy [[lifted_ciar_30 | Entropy | correct, %]], "
    "Random [[lifted_ciar_30 | Random | correct, %]], Entropy of merged codes "
    "[[lifted_ciar_30 | Entropy of merged codes | correct, %]]",
    PARTLY,
    "Entropy against a constant radius [[order | CIAR's score is better than Entropy where codes have near-synonyms]]; "
    "radii learnt where nothing is equal undo it; merged codes are better than both",
  ),
  Item(
    "all parts of the method together",
    ("scenes_ciar:published",),
    "no table; CIAR of the others",
    "correct images at 40 % calls, %: default [[scenes_ciar_published | CIAR, 40 % | correct, %]], as published "
    "[[scenes_ciar_published | as published, 40 % | correct, %]]",
    NO_ORDER,
    "scaled bounds, features and prefix against the default: "
    "[[scenes_ciar_published | as published, 20 % | difference, points]], "
    "[[scenes_ciar_published | as published, 30 % | difference, points]], "
    "[[scenes_ciar_published | as published, 40 % | difference, points]] points at 20, 30, 40 %; without a guided edge",
  ),
  Item(
    "Figure 3",
    ("scenes_ciar:prefix", "figures.ciar"),
    "quality grows with the prefix; 0.06 is best in speed",
    "correct images, %: [[scenes_ciar_prefix | prefix 0 | correct, %]], [[scenes_ciar_prefix | prefix 0.06 | correct, %]], "
    "[[scenes_ciar_prefix | prefix 0.12 | correct, %]], [[scenes_ciar_prefix | prefix 0.2 | correct, %]] with prefixes of "
    "0, 0.06, 0.12, 0.2",
    OPEN,
    "0.06 against none [[order | a prefix of 6 % is better than none]]; calls are equal here, so a prefix needs a looser "
    "threshold; speed is not in the table",
  ),
  Item(
    "Figures 4, 7",
    ("figures.images_by_method",),
    "images by method, and over k of the discrete sets",
    "[images](results/ciar.md#images-by-score)",
    NO_ORDER,
    "images at 30 % calls, eight captions without selection",
  ),
  Item(
    "Table 3",
    ("scenes_ciar:discrete",),
    "FID: continuous 24.2; discrete k 100 to 400 26.0 to 24.8",
    "correct images, %: CIAR [[scenes_ciar_discrete | CIAR | correct, %]]; k 10, 50, 100 "
    "[[scenes_ciar_discrete | k 10, upper | correct, %]], [[scenes_ciar_discrete | k 50, upper | correct, %]], "
    "[[scenes_ciar_discrete | k 100, upper | correct, %]]",
    OPEN,
    "k 50 [[order | continuous intervals are better than discrete sets]]",
  ),
  Item(
    "Figure 5",
    ("ciar:solvers", "figures.ciar"),
    "the discrete score grows exponentially, the continuous one does not",
    "µs at 512 codes, lowest and highest of 5 sweeps: interval [[ciar_solvers | interval | 512 codes]], enumeration of 8 "
    "tokens "
    "[[ciar_solvers | discrete:8:generic | 512 codes]], water-filling of 100 [[ciar_solvers | discrete:100 | 512 codes]]",
    PARTLY,
    "enumeration grows so ([[ciar_solvers | discrete:6:generic | 512 codes]] for 6 tokens; "
    "[[apart | ciar_solvers | discrete:6:generic | 512 codes ;; ciar_solvers | discrete:8:generic | 512 codes]]); "
    "water-filling finds the same score without it",
  ),
  Item(
    "Figure 6",
    ("scenes_ciar:tau", "figures.ciar"),
    "FID 24.2, 24.2, 27.2, 28.6 for tau 0.25 to 0.40",
    "correct images, %: [[scenes_ciar_tau | CIAR at 40 % | correct, %]], [[scenes_ciar_tau | CIAR at 30 % | correct, %]], "
    "[[scenes_ciar_tau | CIAR at 20 % | correct, %]] at 40, 30, 20 % calls",
    SAME,
    "40 against 20 % [[order | a threshold with more calls is better]]",
  ),
  Item(
    "Table 4",
    ("scenes_ciar:code",),
    "FID of CoDe: 44.7, 40.4, 35.7 for N 0.1, 0.2, 0.3; CIAR 24.2",
    "correct images, %: [[scenes_ciar_code | CoDe(0.1) | correct, %]], [[scenes_ciar_code | CoDe(0.2) | correct, %]], "
    "[[scenes_ciar_code | CoDe(0.3) | correct, %]]",
    SAME,
    "0.3 against 0.1 [[order | CoDe is better with a larger share]]; CIAR against 0.3 "
    "[[order | CIAR's score is better than CoDe(0.3) at equal calls]]",
  ),
  Item(
    "Table 5",
    ("scenes_ciar:depth",),
    "FID 24.2, 23.9, 23.8, 23.8 with 1, 2, 3, 5 layers; calls 30.4 to 25.7 %",
    "correct images, %, at equal calls: [[mean | scenes_ciar_depth | 1 layer]], [[mean | scenes_ciar_depth | 2 layers]], "
    "[[mean | scenes_ciar_depth | 3 layers]]",
    SAME,
    "3 against 1 [[order | three layers are better than one]]; 5 layers, and calls at one threshold, are not drawn yet",
  ),
  Item(
    "Table 6",
    ("scenes_ciar:heads",),
    "FID 24.2, 24.2, 24.1, 24.6, 24.7 with 1 to 5 averaged heads",
    "correct images, %: [[mean | scenes_ciar_heads | 1 head]], [[mean | scenes_ciar_heads | 2 heads, ensemble]], "
    "[[mean | scenes_ciar_heads | 3 heads, ensemble]]",
    OPEN,
    "2 against 1 [[order | two heads are better than one]]; 4 and 5 heads are not drawn yet",
  ),
  Item(
    "Table 7",
    ("scenes_ciar:loss",),
    "FID 24.2; without the upper bound's loss 47.9, without anchors 68.6",
    "correct images, %: [[mean | scenes_ciar_loss | the whole loss]], [[mean | scenes_ciar_loss | without upper]], "
    "[[mean | scenes_ciar_loss | without anchor]]",
    OPEN,
    "upper [[order | the upper bound's loss is needed]], anchors [[order | anchors are needed]]; every network has its own "
    "threshold here, in the paper all have one",
  ),
  Item(
    "Tables 8, 9",
    ("ciar:networks",),
    "4G, s: LANTERN 33.9, CIAR 13.0",
    "4G, s: LANTERN++ [[ciar_networks | every token verified, LANTERN++ | 4g rtt, s]], CIAR "
    "[[ciar_networks | CIAR | 4g rtt, s]]; networks as in Table 9",
    NO_ORDER,
    "means of 8 images without a spread; the windows of LANTERN++ have 7 drafts, those of CIAR one",
  ),
  Item(
    "Table 10, VAR",
    ("hosts:table10_var",),
    "FID: VAR-d24 2.11, CoDe 2.26, CIAR 2.34, VAR-d20 2.61; CoDe 2.90 times as fast as VAR-d30, CIAR 2.60 times as VAR-d24",
    "class accuracy, %: target [[hosts_table10_var | target | class accuracy, %]], CIAR at 30 % calls "
    "[[hosts_table10_var | CIAR at 30 % calls | class accuracy, %]], CoDe with 33 % "
    "[[hosts_table10_var | CoDe, 2 of 6 scales | class accuracy, %]]; speed "
    "[[hosts_table10_var | CIAR at 30 % calls | speed over target, batch 1]] and "
    "[[hosts_table10_var | CoDe, 2 of 6 scales | speed over target, batch 1]]",
    PARTLY,
    "accuracy of CoDe over CIAR [[order | on scales of VAR, CoDe is better than CIAR]]; CoDe is faster, as published "
    "([[apart | hosts_table10_var | CIAR at 30 % calls | speed over target, batch 1 ;; "
    "hosts_table10_var | CoDe, 2 of 6 scales | speed over target, batch 1]]); no ImageNet FID: no released weights",
  ),
  Item(
    "Table 10, DiT",
    ("hosts:table10_dit", "hosts:further_dit"),
    "FID of DDIM 2.27, 3.18, 3.81, 7.80 with 50, 25, 20, 12 steps; CIAR 2.32 at 4.90 times the speed of 50 steps",
    "class accuracy, %: [[hosts_table10_dit | target | class accuracy, %]] with 100 steps, of DDIM with 50, 25, 20, 12 "
    + ", ".join(f"[[{FURTHER_DIT} | target, {steps} steps of DDIM | class accuracy, %]]" for steps in (50, 25, 20, 12))
    + "; CIAR at 40 % calls [[hosts_table10_dit | CIAR at 40 % calls | class accuracy, %]], with a weighted score "
    f"[[{FURTHER_DIT} | CIAR, weighted score, at 40 % calls | class accuracy, %]]",
    REVERSED,
    "CIAR at 40 % calls over 25 steps of DDPM [[order | on denoising steps, CIAR is better than 25 steps]]; with this "
    "project's weighted score over 25 of DDIM "
    "[[order | on denoising steps, CIAR with this project's weighted score is better than 25 of DDIM]]",
  ),
)
