"""SQS-SD (arXiv 2510.09942)."""

from experiments.engine.reproduction import IMPOSSIBLE, NO_ORDER, PARTLY, REVERSED, Item

COLD, HOT = "C-SQS, beta_1 = 0.02, published", "C-SQS, beta_1 = 0.02, fixed"
ITEMS = (
  Item("Figures 1, 3", ("figures.rounds",), "drawings of the method", "", NO_ORDER, "a drawing"),
  Item(
    "Figure 2",
    ("sqs:sweep", "figures.sqs"),
    "latency: K-SQS lower at low temperatures, C-SQS at high ones (no figures printed)",
    "ms per token; resampling rate: K-SQS, K = 4 [[sqs_sweep | K-SQS, K = 4 | T = 0.2]] at T 0.2, "
    "[[sqs_sweep | K-SQS, K = 4 | T = 1]] at T 1; C-SQS, published controller from 0.02, "
    f"[[sqs_sweep | {COLD} | T = 0.2]] and [[sqs_sweep | {COLD} | T = 1]]",
    REVERSED,
    "faster and slower are against K = 4, after Holm's correction; every row drafts at most 5 tokens here, in the paper as "
    "many as 5,000 bits allow",
  ),
  Item(
    "Figure 4",
    ("sqs:sweep", "figures.sqs"),
    "latency over K and over the first threshold",
    "ms per token at T 0.6: K = 4 [[sqs_sweep | K-SQS, K = 4 | T = 0.6]], K = 32 [[sqs_sweep | K-SQS, K = 32 | T = 0.6]]; "
    "fixed threshold 0.001 [[sqs_sweep | C-SQS, beta_1 = 0.001, fixed | T = 0.6]], 0.02 "
    f"[[sqs_sweep | {HOT} | T = 0.6]]",
    NO_ORDER,
    "the paper states none; a small K is best here",
  ),
  Item(
    "Figure 5",
    ("sqs:sweep", "figures.sqs"),
    "an adaptive threshold is never slower than a fixed one",
    f"ms per token from 0.02: fixed [[sqs_sweep | {HOT} | T = 0.2]] at T 0.2, [[sqs_sweep | {HOT} | T = 1]] at T 1; "
    f"adaptive [[sqs_sweep | {COLD} | T = 0.2]] and [[sqs_sweep | {COLD} | T = 1]]",
    PARTLY,
    "at T 0.2 no significant difference, at T 1 the adaptive one is slower (below the table); with at most 5 drafts a round",
  ),
  Item(
    "Figure 6",
    ("sqs:sweep", "figures.sqs"),
    "latency and resampling rate of all settings",
    "[all settings](results/sqs.md#figures)",
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
