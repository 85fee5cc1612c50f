"""Does the law of a token survive speculation? Kolmogorov-Smirnov tests of a fixed place, on the shipped pairs.

Command (minutes for the causal pair; the MAR pair takes longer)::

    python -m experiments.cspd_marginals

Thousands of rows of one class draw the first tokens of their order, by the target alone, by the target alone with other
seeds, by the draft alone, and by every rule. Each component of one token that could be drafted is compared with the target's
by the two-sample KS distance; p is the smallest of the components' p values times their number (Bonferroni). A rule that
keeps the law gives distances like those of the second row; a small p says that it does not.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import scipy.stats

from experiments import cspd_bench
from experiments.cspd_bench import Bench, Row
from experiments.tables import interval_cell, table, write
from jaxspec.decode.state import Origin

RULES = ("published", "without S", "released", "exact")


def tokens_at(bench: Bench, row: Row, labels: np.ndarray, rows: int, place: int) -> np.ndarray:
  """The token ``[P, C]`` that is number ``place`` of every row's order."""
  tokens = bench.draw(row, labels, rows).out.tokens
  order = bench.order(row, labels, rows)
  return tokens[:, place] if order is None else tokens[np.arange(len(tokens)), order[:, place]]


def compare(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
  """KS distances of all components of two samples ``[P, C]``; JSON."""
  tests = [scipy.stats.ks_2samp(u, v) for u, v in zip(a.T, b.T)]
  worst = max(float(test.statistic) for test in tests)
  mean = float(np.mean([test.statistic for test in tests]))
  return {"ks": worst, "ks_mean": mean, "p": min(1.0, len(tests) * min(float(test.pvalue) for test in tests))}


def render(document: dict[str, Any]) -> str:
  """The table in Markdown."""
  head = ["decode", "alpha", "drafts tested here", "largest KS", "mean KS", "p"]
  lines = []
  for row in document["rows"]:
    alpha = interval_cell(row["figures"]["alpha"]) if "alpha" in row["figures"] else ""
    tested = f"{row['figures']['drafted_here']:.0%}" if alpha else ""
    distances = [f"{row['ks']:.3f}", f"{row['ks_mean']:.3f}", f"{row['p']:.2g}"]
    lines.append([row["label"], alpha, tested, *distances])
  intro = (
    f"`{document['command']}`: {document['rows'][0]['figures']['pictures']} rows of class {document['class']}, token "
    f"{document['place']} of the order (0 is the first), gamma {document['gamma']}; against the target alone."
  )
  title = f"# The law of one token, {cspd_bench.TITLES[document['family']]}"
  return "\n".join([title, "", intro, "", table(head, lines)])


def main() -> None:
  parser = cspd_bench.parser(__doc__)
  parser.add_argument("--class", dest="name", default="food-fruit")
  parser.add_argument("--rows", type=int, default=4096)
  parser.add_argument("--batch", type=int, default=256)
  parser.add_argument("--place", type=int, default=2)
  parser.add_argument("--gamma", type=int, default=2)
  args = parser.parse_args()
  bench, families, command = cspd_bench.start(args)
  for family in families:
    rows = []
    labels = np.full(args.rows, bench.bundle(family).labels([args.name])[0], np.int32)
    # The last token of a decode is never drafted: the target draws it behind the drafts.
    options = dict(num_tokens=args.place + 2)
    contenders = [
      Row(family, "target, other seeds", bench.method(family, "ar", **options), seed=1),
      Row(family, "draft alone", bench.method(family, "ar", alone=True, **options), seed=2),
    ]
    contenders += [
      Row(family, f"{rule} rule", bench.method(family, rule=rule, gamma=args.gamma, **options), seed=3 + number)
      for number, rule in enumerate(RULES)
    ]
    logging.info("%s: target", family)
    target = tokens_at(bench, Row(family, "target", bench.method(family, "ar", **options)), labels, args.batch, args.place)
    for row in contenders:
      logging.info("%s: %s", family, row.label)
      found = compare(target, tokens_at(bench, row, labels, args.batch, args.place))
      drawn = bench.draw(row, labels, args.batch)
      counted = cspd_bench.figures(drawn)
      counted["drafted_here"] = float(np.isin(drawn.in_order[:, args.place], (Origin.DRAFT, Origin.REPLACED)).mean())
      rows.append({"label": row.label, "figures": counted, **found})
    about = {"class": args.name, "place": args.place, "gamma": args.gamma}
    document = {"command": command, **about, **cspd_bench.origin_of(bench, family), "rows": rows}
    write(f"cspd_marginals_{family}", document, render(document), args.results)


if __name__ == "__main__":
  main()
