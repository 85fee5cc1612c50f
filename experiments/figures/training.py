"""Draws the training curves of the shipped networks and stores their data.

    python -m experiments.figures.training --target runs/target --target runs/target_2 --draft runs/draft-2

Stages of the target follow one another; what is not named keeps its stored curve. Reads the JSONL of the runs, writes
``experiments/results/training.json`` and ``docs/images/training_curves.png``.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from experiments.figures.style import BLUE, GREEN, ORANGE, STYLE, parser, read, save
from jaxspec.training.metrics import read_metrics

NAMES = {"loss_train": "training images", "loss_val_style": "unseen styles", "loss_val_concept": "unseen concepts"}
COLOURS = (BLUE, ORANGE, GREEN)


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
  arguments = parser(__doc__)
  arguments.add_argument("--target", type=Path, action="append", default=[], help="run of one stage, in order")
  arguments.add_argument("--draft", type=Path, action="append", default=[])
  args = arguments.parse_args()
  tokenizer, stored = read(args.results / "tokenizer.json"), args.results / "training.json"
  document = read(stored) if stored.exists() else {"drafts": {}}
  if args.target or "target" not in document:
    document["target"] = join_stages(args.target or [Path("runs/target")])
  document["drafts"] |= {path.name: read_metrics(path / "eval.jsonl") for path in args.draft}
  stored.write_text(json.dumps(document) + "\n")
  with plt.rc_context(STYLE):
    draw(tokenizer, document, args.images / "training_curves.png")


def draw(tokenizer: dict, document: dict, path: Path) -> None:
  """Quality of the tokenizer, loss of the target, acceptance of the drafts."""
  figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
  left.plot([r["step"] for r in tokenizer["eval"]], [r["psnr"] for r in tokenizer["eval"]], "o-", color=COLOURS[0])
  left.set(title="Tokenizer, unseen families", xlabel="step", ylabel="PSNR, dB")
  target = document["target"]
  # The loss of later stages has further terms.
  losses = np.array([r.get("cross_entropy", r["loss"]) for r in target["metrics"]])
  for number, end in enumerate(target["ends"][:-1]):
    middle.axvline(end, color="#b0b0b0", linewidth=1, linestyle=":", label="" if number else "next stage")
  middle.plot([r["step"] for r in target["metrics"]], smooth(losses), color="#b0b0b0", label="batches, smoothed")
  for (key, label), colour in zip(NAMES.items(), COLOURS):
    records = [r for r in target["eval"] if key in r]
    middle.plot([r["step"] for r in records], [r[key] for r in records], "o-", color=colour, label=label)
  middle.set(title="Target, cross entropy", xlabel="step", ylabel="nats per token")
  middle.legend(frameon=True, framealpha=1, edgecolor="none", loc="upper center")
  for (name, records), colour in zip(document["drafts"].items(), COLOURS):
    right.plot([r["step"] for r in records], [r["acceptance"] for r in records], "o-", color=colour, label=name)
  right.set(title="Drafts, expected acceptance", xlabel="step", ylabel="1 - total variation")
  right.legend()
  save(figure, path)


if __name__ == "__main__":
  main()
