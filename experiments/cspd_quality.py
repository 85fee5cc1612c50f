"""What continuous speculative decoding does to the pictures (arXiv 2411.11925, Table 2), and to single tokens.

Command (about half an hour on two cores)::

    python -m experiments.cspd_quality

Every row draws the same classes with the same keys: the target alone by two seeds (what chance does), the draft alone, the
target in few iterations, and speculation by the published and the exact rule, with and without guidance. Metrics are those
of ``jaxspec evaluate`` (docs/evaluation.md); ``class accuracy`` asks whether the real drawing that the encoder finds nearest
is of the class that was asked for, one of 95. Intervals: 95 %, bootstrap over pictures.

Published, FID of MAR-H alone and with a MAR-B draft: 1.55 and 1.60 (guided).
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np

from experiments import cspd_bench
from experiments.cspd_bench import Bench, Row
from experiments.tables import interval_cell, table, write
from experiments.vector_training import class_labels
from jaxspec.data.emoji import load_emoji
from jaxspec.data.tokens import Painting, draw
from jaxspec.metrics import evaluation, evaluators
from jaxspec.metrics.bootstrap import bootstrap
from jaxspec.metrics.distances import kernel_distance_interval

ENCODER = "concept"
REFERENCE = 512


class Judge:
  """Evaluators, real drawings, and what they say of pictures."""

  def __init__(self):
    self.networks, self.emoji = evaluators.load_evaluators(), load_emoji()
    self.classes = class_labels(self.emoji)
    self.real = draw(self.emoji.rgba, Painting.plain(len(self.emoji)))
    self.features = self.networks.embed(ENCODER, self.real)

  def nearest_class(self, features: np.ndarray, *, own: np.ndarray | None = None) -> np.ndarray:
    """Class ``[P]`` of the nearest real drawing; ``own [P]`` are drawings that may not find themselves."""
    cosine = features @ self.features.T
    if own is not None:
      # Nor another drawing of the same thing.
      cosine[self.emoji.concept[own][:, None] == self.emoji.concept[None]] = -np.inf
    return self.classes[np.argmax(cosine, axis=1)]

  @functools.cached_property
  def reference(self) -> np.ndarray:
    """Features of random real drawings."""
    chosen = np.random.default_rng(1).permutation(len(self.emoji))[:REFERENCE]
    return self.features[chosen]

  def figures(self, pixels: np.ndarray, labels: np.ndarray, plain: np.ndarray | None) -> dict[str, Any]:
    """JSON; ``plain`` are features of the target alone by another seed."""
    features = self.networks.embed(ENCODER, pixels)
    right = (self.nearest_class(features) == labels).astype(np.float64)
    found = {name: figure.interval for name, figure in evaluation.set_distances(features, self.reference, ENCODER).items()}
    found["class_accuracy"] = bootstrap(np.mean, right)
    if plain is not None:
      found["kid_target"] = kernel_distance_interval(features, plain)
    return {name: interval._asdict() for name, interval in found.items()}

  def real_row(self, num: int) -> dict[str, Any]:
    """The same accuracy of real drawings."""
    own = np.random.default_rng(2).permutation(len(self.emoji))[:num]
    right = (self.nearest_class(self.features[own], own=own) == self.classes[own]).astype(np.float64)
    return {"class_accuracy": bootstrap(np.mean, right)._asdict()}


def rows_of(bench: Bench, family: str, scales: list[float], gamma: int) -> list[Row]:
  """What is compared; the first row of each law is what its others are held against."""
  rows, masked = [], bench.bundle(family).is_masked
  quarter = bench.bundle(family).target.config.num_tokens // 4
  for scale in scales:
    guided = "" if scale == 1 else f", guidance {scale:g}"
    method = lambda *args, scale=scale, **options: bench.method(family, *args, scale=scale, **options)
    rows.append(Row(family, f"target{guided}, seed 1", method("ar"), seed=1))
    rows.append(Row(family, f"target{guided}", method("ar")))
    rows.append(Row(family, f"draft alone{guided}", method("ar", alone=True)))
    if masked:
      rows.append(Row(family, f"target, {quarter} iterations{guided}", method("parallel", num_iter=quarter)))
    for rule in ("released" if masked else "published", "exact"):
      rows.append(Row(family, f"{rule} rule, gamma {gamma}{guided}", method("cspd", rule=rule, gamma=gamma)))
    if masked and scale == 1:
      # MAR as published ends in a mean, and the released test divides its z-scores by 42.
      options = dict(stop=None, gamma=gamma)
      rows.append(Row(family, "target, ends in a mean, seed 1", method("ar", stop=None), seed=1))
      rows.append(Row(family, "target, ends in a mean (as published)", method("ar", stop=None)))
      rows.append(Row(family, f"released test, gamma {gamma}, ends in a mean", method("cspd", rule="released", **options)))
  return rows


def render(document: dict[str, Any]) -> str:
  """The table in Markdown."""
  head = ["decode", "target calls", "class accuracy", "KID to real", "Frechet to real", "F1", "KID to the target"]
  lines = []
  for row in document["rows"]:
    m, calls = row["metrics"], "" if "draft" in row["label"] else f"{row['figures']['calls_per_picture']:.1f}"
    lines.append([
      row["label"], calls, interval_cell(m["class_accuracy"], 100, 1),
      interval_cell(m[f"kid_{ENCODER}"], 100), interval_cell(m[f"frechet_{ENCODER}"], 1),
      interval_cell(m[f"f1_{ENCODER}"], 1), interval_cell(m["kid_target"], 100) if "kid_target" in m else "",
    ])  # fmt: skip
  real = interval_cell(document["real"]["class_accuracy"], 100, 1)
  pictures = document["rows"][0]["figures"]["pictures"]
  intro = (
    f"`{document['command']}`: {pictures} pictures over all classes, {REFERENCE} real ones. "
    f"Class accuracy in percent (of real drawings, which may not find their own concept: {real}), KID times 100; the last "
    "column is against the target alone by another seed, where samples of one law are near 0."
  )
  title = f"# Quality of continuous speculative decoding, {cspd_bench.TITLES[document['family']]}"
  return "\n".join([title, "", intro, "", table(head, lines)])


def main() -> None:
  parser = cspd_bench.parser(__doc__)
  parser.add_argument("--pictures", type=int, default=190)
  parser.add_argument("--batch", type=int, default=19)
  parser.add_argument("--gamma", type=int, default=4)
  parser.add_argument("--scale", action="append", type=float, help="guidance; repeat for several; 1 and 2 by default")
  args = parser.parse_args()
  bench, families, command = cspd_bench.start(args)
  judge = Judge()
  for family in families:
    rows: list[dict[str, Any]] = []
    labels = cspd_bench.every_class(bench.bundle(family), args.pictures)
    plain: dict[tuple, np.ndarray] = {}
    for row in rows_of(bench, family, args.scale or [1.0, 2.0], args.gamma):
      logging.info("%s: %s", family, row.label)
      drawn = bench.draw(row, labels, args.batch)
      pixels, law = bench.pixels(row, drawn.out.tokens), (row.method.sampling.scale, row.method.sampling.stop)
      metrics = judge.figures(pixels, labels, plain.get(law))
      plain.setdefault(law, judge.networks.embed(ENCODER, pixels))
      about = {"method": cspd_bench.describe(row.method), "seed": row.seed}
      rows.append({"label": row.label, **about, "figures": cspd_bench.figures(drawn), "metrics": metrics})
    about = {"command": command, **cspd_bench.origin_of(bench, family), "real": judge.real_row(args.pictures)}
    document = about | {"rows": rows}
    write(f"cspd_quality_{family}", document, render(document), args.results)


if __name__ == "__main__":
  main()
