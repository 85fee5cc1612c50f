"""SQS-SD (arXiv 2510.09942)."""

from experiments.engine.reproduction import IMPOSSIBLE, NO_ORDER, PARTLY, REVERSED, SAME, Item

COLD, HOT = "C-SQS, beta_1 = 0.02, published", "C-SQS, beta_1 = 0.02, fixed"
BUDGET, TOP, MOVING = "sqs_budget", "K-SQS, K = 32", "C-SQS, beta_1 = 0.005, published"
ITEMS = (
  Item("Figures 1, 3", ("figures.rounds",), "drawings of the method", "", NO_ORDER, "a drawing"),
  Item(
    "Figure 2",
    ("sqs:budget", "figures.sqs"),
    "latency: K-SQS lower at low temperatures, C-SQS at high ones (no figures printed)",
    f"ms per token; resampling rate: K-SQS, K = 32 [[{BUDGET} | {TOP} | T = 0.2]] at T 0.2, [[{BUDGET} | {TOP} | T = 1]] at "
    f"T 1; C-SQS, published controller from 0.005, [[{BUDGET} | {MOVING} | T = 0.2]] and [[{BUDGET} | {MOVING} | T = 1]]",
    PARTLY,
    "it holds against K = 32 (faster and slower, after Holm's correction); K = 64 is faster than K = 32 at every "
    f"temperature, and at T 1 [[apart | {BUDGET} | K-SQS, K = 64 | T = 1 ;; {BUDGET} | {MOVING} | T = 1]] of K = 64 and "
    "C-SQS; a window of 5 drafts reverses the order",
  ),
  Item(
    "the same with at most 5 drafts a round",
    ("sqs:sweep", "figures.sqs"),
    "no such limit",
    "K-SQS, K = 4 [[sqs_sweep | K-SQS, K = 4 | T = 0.2]] at T 0.2, [[sqs_sweep | K-SQS, K = 4 | T = 1]] at T 1; C-SQS, "
    f"published controller from 0.02, [[sqs_sweep | {COLD} | T = 0.2]] and [[sqs_sweep | {COLD} | T = 1]]",
    REVERSED,
    "faster and slower are against K = 4, after Holm's correction",
  ),
  Item(
    "Figure 4",
    ("sqs:budget", "sqs:sweep", "figures.sqs"),
    "latency over K and over the first threshold",
    f"ms per token at T 0.6: K = 4 [[{BUDGET} | K-SQS, K = 4 | T = 0.6]], K = 32 [[{BUDGET} | {TOP} | T = 0.6]]; with at "
    "most 5 drafts [[sqs_sweep | K-SQS, K = 4 | T = 0.6]], [[sqs_sweep | K-SQS, K = 32 | T = 0.6]]",
    NO_ORDER,
    "the paper states none; a large K is best by the budget alone, a small one with at most 5 drafts",
  ),
  Item(
    "Figure 5",
    ("sqs:budget", "figures.sqs"),
    "an adaptive threshold is never slower than a fixed one",
    f"ms per token from 0.02: fixed [[{BUDGET} | {HOT} | T = 0.2]] at T 0.2, [[{BUDGET} | {HOT} | T = 1]] at T 1; "
    f"adaptive [[{BUDGET} | {COLD} | T = 0.2]] and [[{BUDGET} | {COLD} | T = 1]]",
    SAME,
    "at T 0.2 no significant difference, at T 1 the adaptive one is faster (below the table); with at most 5 drafts it is "
    "slower at T 1, from 0.001 and 0.005 at lower temperatures too",
  ),
  Item(
    "Figure 6",
    ("sqs:budget", "sqs:sweep", "figures.sqs"),
    "latency and resampling rate of all settings",
    "[all settings](results/sqs.md#rounds-ended-by-the-budget-alone)",
    NO_ORDER,
    "as Figures 2 and 4",
  ),
  Item(
    "Theorem 2 (bound of the dropped mass)",
    ("sqs:long_runs", "figures.sqs"),
    "mean dropped mass below the bound",
    "published controller from 0.005: [[sqs_long_runs | published, beta_1 = 0.005 | after 4,780 tokens]]; literal policy: "
    "[[sqs_long_runs | quick, beta_1 = 0.1, literal policy | after 4,780 tokens]]",
    NO_ORDER,
    "the bound holds with the policy of the text, and not with the printed pseudo-code",
  ),
  Item(
    "GPT-Neo 125M and 1.3B on LM1B",
    (),
    "pair and texts of all figures",
    "",
    IMPOSSIBLE,
    "no released weights and no LM1B here; `jaxspec convert` imports GPT-Neo ([language models](text.md))",
  ),
)
