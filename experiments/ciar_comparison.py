"""CIAR against what it is compared with, at one rate of cloud calls (CIAR, arXiv 2603.25463, Tables 1 and 2).

Commands (half an hour on two idle cores with a device of two layers: some eight decodes of 64 pictures for every matched
row, of 20 to 30 seconds each; ``--untimed`` leaves out the wall clock, which a busy machine spoils)::

    python -m experiments.ciar_comparison --device inter-2
    python -m experiments.ciar_comparison --device inter-2 --config 0.4

``--config`` is the rate of cloud calls per token, 0.3 by default. The paper compares uncertainties at rates of 30 % to 52 %;
here every row with a threshold is brought to the same rate, to within half a point, with the same share of tokens from the
cloud (6 %), the same windows and the same keys. EAGLE-2 and LANTERN have no threshold: their rates are what they are.

Published order at LlamaGen's first stage (Frechet distance, calls): CIAR 24.2, 30 %; Entropy 24.6, 52 %; EAGLE-2 25.1, 87 %;
LANTERN 25.5, 50 %; Random 30.2, 36 %; max-prob 31.1, 36 %; CoDe 35.7, 30 %. What the rows here say about that order is
written below the table.
"""

from __future__ import annotations

from typing import Any

from experiments.ciar_rows import RHO, GatedRun, Row
from experiments.ciar_table import BASE, BASE_AGAIN, main
from experiments.method_quality import Setting
from experiments.quality_figures import ENCODER

CIAR, RATE = "CIAR", 0.3
# Thresholded rows by name: the score of each.
SCORES = {
  "Entropy": "entropy", "Entropy-Lens": "entropy_lens", "max-prob": "max_prob", "Random": "random", "U-HLM": "temperature",
  CIAR: "interval", "CIAR, additive U": "interval:additive", "CIAR, volume": "interval:volume",
}  # fmt: skip
KID, RETRIEVAL = f"kid_{ENCODER}", "prompt_retrieval"


def get_config(arg: str = "") -> GatedRun:
  """``arg`` is the rate of cloud calls per token.

  Raises:
    ValueError: unless it is a number between `RHO` and 1.
  """
  rate = float(arg or RATE)
  if not RHO < rate < 1:
    raise ValueError(f"Must have a rate between {RHO} and 1, we instead got {rate}")
  others = (
    Row("EAGLE-2", Setting.of("eagle")),
    Row("LANTERN++", Setting.of("lantern", factor=2.0)),
    Row("EAGLE-2 with LANTERN++", Setting.of("eagle-lantern", factor=2.0)),
    Row.code(rate),
  )
  matched = tuple(Row.gated(name, score=score, rho=RHO, rate=rate) for name, score in SCORES.items())
  relaxed = Row.gated(f"{CIAR}, LANTERN++ windows", verify="lantern", rho=RHO, rate=rate)
  name = "ciar_comparison" if rate == RATE else f"ciar_comparison_{round(100 * rate)}"
  notes = (
    f"Rows with a threshold take {100 * RHO:.0f} % of the tokens from the cloud first and are matched to {100 * rate:g} % "
    "cloud calls on these prompts and keys; the wall clock has device and cloud on one machine and no network.",
  )
  return GatedRun(
    name, f"CIAR and its baselines at {100 * rate:g} % cloud calls", entries=(*others, *matched, relaxed), notes=notes
  )


def findings(rows: list[dict[str, Any]]) -> list[str]:
  """What the rows say about the paper's order: CIAR against every row near its rate, and against Base's own interval."""
  by_name = {row["name"]: row for row in rows}
  if CIAR not in by_name:
    return ["Nothing to say about CIAR: it is not in the table."]
  ciar, base = by_name[CIAR], by_name[BASE]
  lines = []
  for name in (*SCORES, *(name for name in by_name if name.startswith("CoDe"))):
    if name in by_name and not name.startswith(CIAR):
      lines.append(_versus(ciar, by_name[name]))
  kid, retrieval = ciar["metrics"][KID], ciar["metrics"][RETRIEVAL]
  seeds = [base["metrics"], by_name[BASE_AGAIN]["metrics"]]
  within = [
    _inside([kid["value"] <= seed[KID]["high"] for seed in seeds], "KID"),
    _inside([retrieval["value"] >= seed[RETRIEVAL]["low"] for seed in seeds], "prompt retrieval"),
  ]
  lines.append(
    f"Against the intervals of Base's two seeds: {' and '.join(within)}; {100 - 100 * ciar['cloud']['call_rate']:.0f} % "
    "of its cloud calls saved" + (f", {ciar['wall']['ratio']['median']:.2f} times its speed." if ciar["wall"] else ".")
  )
  return lines


def _inside(holds: list[bool], what: str) -> str:
  return f"{what} inside of {('neither', 'one', 'both')[sum(holds)]} (or better)"


def _versus(ciar: dict[str, Any], other: dict[str, Any]) -> str:
  """One sentence: whether the paper's order, CIAR before the other, appears."""
  parts = []
  for metric, label, sign in ((KID, "KID to real", -1), (RETRIEVAL, "prompt retrieval", 1)):
    a, b = ciar["metrics"][metric], other["metrics"][metric]
    better = sign * (a["value"] - b["value"]) > 0
    apart = a["low"] > b["high"] or b["low"] > a["high"]
    parts.append(f"{label} {'better' if better else 'not better'} ({'apart' if apart else 'intervals overlap'})")
  calls = f"{100 * ciar['cloud']['call_rate']:.1f} % and {100 * other['cloud']['call_rate']:.1f} % calls"
  return f"CIAR against {other['name']} at {calls}: {', '.join(parts)}."


if __name__ == "__main__":
  main(get_config, findings=findings)
