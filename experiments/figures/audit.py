"""Draws the harm to images over the exact bias of tokens.

    python -m experiments.figures.audit

Reads the table ``scenes_audit`` (``experiments.run scenes:audit``) and writes ``docs/images/lossy_audit.png``: for every
rule, its total variation per token against the change of correct images, with 95 % intervals of both. The change is that
from the exact method with the same drafts; of an exact method, from plain decoding.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

from experiments.engine import lossy, statistics
from experiments.figures.style import BLUE, GREEN, GREY, INK, ORANGE, RED, STYLE, Document, figures, read, save

_LOOKS = {
  lossy.EXACT: (GREY, "o"), "scaled ratio": (BLUE, "s"), "GSD": (ORANGE, "D"), "GSD as published": (GREEN, "^"),
  "static groups": (RED, "v"), "LANTERN++": (INK, "P"),
}  # fmt: skip


def draw(document: Document, path: Path) -> None:
  """Every audited row."""
  figure, axes = plt.subplots(figsize=(8.5, 4.6), layout="constrained")
  axes.axhline(0, color=GREY, linestyle="--", linewidth=1.2)
  rows = [row for row in document["rows"] if row["audit"]]
  for family in dict.fromkeys(map(lossy.family_of, rows)):
    colour, marker = _LOOKS[family]
    for row in (row for row in rows if lossy.family_of(row) == family):
      change, bias = statistics.difference(row, lossy.reference_of(row, document), "right"), row["audit"]["tv"]
      axes.errorbar(
        bias["value"], 100 * change.value, color=colour, marker=marker, markersize=6, linewidth=0.8, linestyle="none",
        xerr=[[max(bias["value"] - bias["low"], 0)], [max(bias["high"] - bias["value"], 0)]],
        yerr=[[100 * (change.value - change.low)], [100 * (change.high - change.value)]],
      )  # fmt: skip
    axes.plot([], [], color=colour, marker=marker, linestyle="none", label=family)
  axes.set_xscale("symlog", linthresh=1e-3)
  axes.set_xlim(-1e-4, 0.2)
  axes.set_xlabel("exact total variation per token (linear up to 0.001)")
  axes.set_ylabel("correct images, difference in points")
  axes.legend(loc="lower left")
  save(figure, path)


@figures(__doc__)
def main(results: Path, images: Path) -> None:
  with plt.rc_context(STYLE):
    draw(read(results / "scenes_audit.json"), images / "lossy_audit.png")


if __name__ == "__main__":
  main()
