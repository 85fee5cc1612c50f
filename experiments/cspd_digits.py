"""Continuous speculative decoding where a classifier can be trusted: handwritten digits, 10 classes.

Command (needs the ``eval`` extra and ``runs/digits.npz`` from `experiments.fetch_digits`; minutes)::

    python -m experiments.cspd_digits

The rows of `experiments.cspd_quality` on the digit pair. The judge is a support vector machine on pixels, fitted here to
the training digits; its accuracy on held-out real digits stands above the table. Intervals: 95 %, bootstrap over pictures.
"""

from __future__ import annotations

import logging

import numpy as np

from experiments import cspd_bench
from experiments.class_pictures import Split, load_pictures
from experiments.cspd_quality import rows_of
from experiments.tables import interval_cell, table, write
from jaxspec.metrics.bootstrap import bootstrap

BUNDLES = {"causal": "checkpoints/digits32-causal"}


def as_rows(pixels: np.ndarray) -> np.ndarray:
  """Pictures ``[N, H, W, 3]`` uint8 as what the judge reads."""
  return pixels.mean(axis=-1).reshape(len(pixels), -1) / 255.0


def shifted(split: Split, times: int = 1) -> tuple[np.ndarray, np.ndarray]:
  """Every digit ``times`` times at random places, as the networks saw them, and its labels."""
  rows = np.tile(np.arange(len(split.labels)), times)
  return as_rows(split.draw(rows, np.random.default_rng(0))), split.labels[rows]


def fit_judge():
  """The classifier, and whether it is right about each held-out real digit ``[M]`` bool."""
  from sklearn.svm import SVC

  digits = load_pictures("digits")
  judge = SVC(C=10.0, gamma="scale").fit(*shifted(digits.train, 3))
  pixels, labels = shifted(digits.held_out)
  return judge, judge.predict(pixels) == labels


def render(document: dict) -> str:
  """The table in Markdown."""
  lines = []
  for row in document["rows"]:
    alpha = interval_cell(row["figures"]["alpha"]) if "alpha" in row["figures"] else ""
    calls = "" if "draft" in row["label"] else f"{row['figures']['calls_per_picture']:.1f}"
    right = interval_cell(row["accuracy"], 100, 1)
    lines.append([row["label"], alpha, calls, right])
  real = interval_cell(document["real"], 100, 1)
  pictures = document["rows"][0]["figures"]["pictures"]
  intro = (
    f"`{document['command']}`: {pictures} digits, as many of each. The judge is right about "
    f"{real} percent of held-out real digits."
  )
  head = ["decode", "alpha", "target calls", "class accuracy, percent"]
  title = f"# Continuous speculative decoding of digits, {cspd_bench.TITLES[document['family']]}"
  return "\n".join([title, "", intro, "", table(head, lines)])


def main() -> None:
  parser = cspd_bench.parser(__doc__, BUNDLES)
  parser.add_argument("--pictures", type=int, default=400)
  parser.add_argument("--batch", type=int, default=40)
  parser.add_argument("--gamma", type=int, default=4)
  args = parser.parse_args()
  bench, families, command = cspd_bench.start(args)
  judge, right = fit_judge()
  real = bootstrap(np.mean, right.astype(float))._asdict()
  for family in families:
    rows = []
    labels = cspd_bench.every_class(bench.bundle(family), args.pictures)
    for row in rows_of(bench, family, [1.0], args.gamma):
      logging.info("%s: %s", family, row.label)
      drawn = bench.draw(row, labels, args.batch)
      seen = judge.predict(as_rows(bench.pixels(row, drawn.out.tokens)))
      accuracy = bootstrap(np.mean, (seen == labels).astype(float))._asdict()
      rows.append({"label": row.label, "method": cspd_bench.describe(row.method),
                   "figures": cspd_bench.figures(drawn), "accuracy": accuracy})
    document = {"command": command, **cspd_bench.origin_of(bench, family), "real": real, "rows": rows}
    write(f"cspd_digits_{family}", document, render(document), args.results)


if __name__ == "__main__":
  main()
