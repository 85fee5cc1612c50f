"""Draws the training curves of the shipped networks and stores their data.

Command (needs matplotlib)::

    python -m experiments.plot_training --target runs/target --target runs/target_2 --draft runs/draft-2

Stages of the target follow one another; what is not named keeps its stored curve. Reads the JSONL of the runs, writes
``experiments/results/training.json`` and ``docs/images/training_curves.png``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from jaxspec.training.metrics import read_metrics

NAMES = {"loss_train": "training pictures", "loss_val_style": "unseen styles", "loss_val_concept": "unseen concepts"}
COLOURS = ("#3b6fb6", "#d98032", "#4f9a5b")


def smooth(values: np.ndarray, window: int = 9) -> np.ndarray:
  """Running mean; the ends use what is there."""
  kernel = np.ones(window)
  return np.convolve(values, kernel, "same") / np.convolve(np.ones_like(values), kernel, "same")


def join_stages(paths: list[Path]) -> dict:
  """Records of the target's stages one after the other, and the steps at which a stage ends."""
  joined = {"metrics": [], "eval": [], "ends": []}
  start = 0
  for path in paths:
    for name in ("metrics", "eval"):
      joined[name] += [record | {"step": record["step"] + start} for record in read_metrics(path / f"{name}.jsonl")]
    start = max(record["step"] for name in ("metrics", "eval") for record in joined[name])
    joined["ends"].append(start)
  return joined


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--target", type=Path, action="append", default=[], help="run of one stage, in order")
  parser.add_argument("--draft", type=Path, action="append", default=[])
  parser.add_argument("--results", type=Path, default=Path("experiments/results"))
  parser.add_argument("--image", type=Path, default=Path("docs/images/training_curves.png"))
  args = parser.parse_args()

  tokenizer = json.loads((args.results / "tokenizer.json").read_text())
  stored = args.results / "training.json"
  document = json.loads(stored.read_text()) if stored.exists() else {"drafts": {}}
  if args.target or "target" not in document:
    document["target"] = join_stages(args.target or [Path("runs/target")])
  document["drafts"] |= {path.name: read_metrics(path / "eval.jsonl") for path in args.draft}
  stored.write_text(json.dumps(document) + "\n")

  plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
  figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6), constrained_layout=True)
  left.plot([r["step"] for r in tokenizer["eval"]], [r["psnr"] for r in tokenizer["eval"]], "o-", color=COLOURS[0])
  left.set(title="Tokenizer, unseen families", xlabel="step", ylabel="PSNR, dB")

  steps = np.array([r["step"] for r in document["target"]["metrics"]])
  # The loss of later stages has further terms.
  losses = np.array([r.get("cross_entropy", r["loss"]) for r in document["target"]["metrics"]])
  for end in document["target"]["ends"][:-1]:
    middle.axvline(end, color="#d0d0d0", linewidth=1)
  middle.plot(steps, smooth(losses), color="#b0b0b0", label="batches, smoothed")
  for (key, label), colour in zip(NAMES.items(), COLOURS):
    records = [r for r in document["target"]["eval"] if key in r]
    middle.plot([r["step"] for r in records], [r[key] for r in records], "o-", color=colour, label=label)
  middle.set(title="Target, cross entropy", xlabel="step", ylabel="nats per token")
  middle.legend(frameon=False)

  for (name, records), colour in zip(document["drafts"].items(), COLOURS):
    right.plot([r["step"] for r in records], [r["acceptance"] for r in records], "o-", color=colour, label=name)
  right.set(title="Drafts, expected acceptance", xlabel="step", ylabel="1 - total variation")
  right.legend(frameon=False)
  for axes in (left, middle, right):
    axes.grid(alpha=0.25)
  args.image.parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(args.image, dpi=100)


if __name__ == "__main__":
  main()
