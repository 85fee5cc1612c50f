"""Figures of a table of methods: target calls, wall clock and offline metrics, as JSON and Markdown.

Metrics are those of ``jaxspec evaluate`` (docs/evaluation.md), over all prompts of the table. Two more compare with plain
decoding of the same prompts by another seed, which is what tells laws apart that real pictures do not:

- ``kid_plain``: kernel distance to those pictures. The two sets share their prompts, so two plain samples are *nearer* than
  independent ones; compare with the row of plain decoding, not with 0.
- ``prompt_retrieval_change``: mean difference per prompt, with a paired bootstrap interval.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import platform
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments.method_quality import PLAIN, PLAIN_AGAIN, SPLITS, Decoded, QualityRun, Setting, Workbench
from experiments.tables import interval_cell
from jaxspec.data.emoji import load_emoji
from jaxspec.data.prompts import parse_prompt
from jaxspec.decode.measure import pairwise_ratio
from jaxspec.metrics import evaluation, evaluators
from jaxspec.metrics.bootstrap import bootstrap
from jaxspec.metrics.distances import kernel_distance_interval
from jaxspec.models.tokenizer_fns import to_uint8

ENCODER = "concept"
_PIXEL_BATCH = 32


class Judge:
  """The evaluators and what they saw of plain decoding and of real pictures."""

  def __init__(self, run: QualityRun, bench: Workbench):
    self._run, self._bench = run, bench
    self._networks, self._emoji = evaluators.load_evaluators(), load_emoji()
    self._gallery = evaluation.make_gallery(self._networks, self._emoji)
    self._prompts = [parse_prompt(text) for text in bench.prompts.texts]
    self.reference = evaluation.reference_pictures(
      self._emoji, SPLITS, self._prompts, exclude=bench.prompts.picture, groups=(run.group,)
    )
    self._real = self._networks.embed(ENCODER, self.reference)
    tokenizer = bench.source("ar").tokenizer
    draw = jax.jit(lambda params, tokens: to_uint8(tokenizer.fns.decode(params, tokens)))
    self._draw = lambda tokens: evaluators.in_batches(lambda t: draw(tokenizer.params, t), tokens, batch=_PIXEL_BATCH)
    self._plain: dict[int, tuple[np.ndarray, np.ndarray]] = {}

  def row(self, setting: Setting, decoded: Decoded, wall: dict[str, list[float]] | None) -> dict[str, Any]:
    """The figures of one setting; JSON."""
    pictures, tokens = decoded.tokens.shape
    calls = decoded.counters["target_calls"]
    features, scores = self._seen(decoded)
    distances = evaluation.set_distances(features, self._real, ENCODER)
    plain_features, plain_scores = self._of_plain(PLAIN if setting.seed else PLAIN_AGAIN)
    change = scores["prompt_retrieval"] - plain_scores["prompt_retrieval"]
    metrics = {k: v.interval for k, v in (distances | evaluation.summarize_scores(scores)).items()}
    metrics["kid_plain"] = kernel_distance_interval(features, plain_features)
    metrics["prompt_retrieval_change"] = bootstrap(np.mean, change)
    return {
      "label": setting.label,
      "settings": dataclasses.asdict(self._bench.settings(setting)),
      "pictures": pictures,
      "counters": {name: int(values.sum()) for name, values in decoded.counters.items()},
      "calls_per_picture": float(calls.mean()),
      "step_reduction": bootstrap(lambda c: tokens / c.mean(), calls)._asdict(),
      "wall": wall and {"seconds": wall, "ratio": pairwise_ratio(wall["plain"], wall["own"])._asdict()},
      "metrics": {name: interval._asdict() for name, interval in metrics.items()},
    }

  def about(self) -> dict[str, Any]:
    """What all rows share; JSON."""
    device = jax.devices()[0]
    return {
      "title": self._run.title,
      "prompts": {split: self._run.num_train if split == "train" else self._run.num_held_out for split in SPLITS},
      "group": self._run.group,
      "batch": self._run.batch,
      "reference_pictures": len(self.reference),
      "encoder": ENCODER,
      "device": {"platform": device.platform, "kind": device.device_kind},
      "versions": {"python": platform.python_version(), "jax": jax.__version__,
                   "jaxspec": importlib.metadata.version("jaxspec-decoding")},
    }  # fmt: skip

  def _seen(self, decoded: Decoded) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    pixels = self._draw(decoded.tokens.astype(np.int32))
    scores = evaluation.picture_scores(self._networks, self._gallery, pixels, self._prompts)
    return self._networks.embed(ENCODER, pixels), scores

  def _of_plain(self, setting: Setting) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    if setting.seed not in self._plain:
      self._plain[setting.seed] = self._seen(self._bench.decode(setting))
    return self._plain[setting.seed]


def write(run: QualityRun, rows: list[dict[str, Any]], about: dict[str, Any], command: str, folder: Path) -> None:
  """``NAME.json`` and ``NAME.md``."""
  folder.mkdir(parents=True, exist_ok=True)
  document = about | {"command": command, "rows": rows}
  (folder / f"{run.name}.json").write_text(json.dumps(document, indent=1) + "\n")
  (folder / f"{run.name}.md").write_text(render(document) + "\n")


def render(document: dict[str, Any]) -> str:
  """The table in Markdown."""
  rows, prompts = document["rows"], document["prompts"]
  lines = [
    f"# {document['title']}",
    "",
    f"`{document['command']}`. {rows[0]['pictures']} pictures of {document['group']}: {prompts['train']} prompts of "
    f"training pictures, {sum(prompts.values()) - prompts['train']} held out; {document['reference_pictures']} other real "
    "pictures to compare with. Brackets: 95 % bootstrap intervals over pictures; of the wall clock (one picture at a time, "
    f"{document['device']['platform']}) the lowest and highest of the pairs. Retrieval and attributes in percent, distances "
    "times 100; `kid_plain` and the change of retrieval are against plain decoding of the same prompts by another seed.",
    "",
    "| setting | target calls | step reduction | wall clock | kept | KID to real | KID to plain | prompt retrieval "
    "| its change | concept retrieval | attributes |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
  ]
  for row in rows:
    m, drafted = row["metrics"], row["counters"]["drafted"]
    cells = [
      row["label"],
      f"{row['calls_per_picture']:.1f}",
      interval_cell(row["step_reduction"], 1, 2),
      wall_cell(row),
      f"{row['counters']['accepted'] / drafted:.0%}" if drafted else "",
      interval_cell(m[f"kid_{ENCODER}"], 100, 2),
      interval_cell(m["kid_plain"], 100, 2),
      interval_cell(m["prompt_retrieval"], 100, 1),
      interval_cell(m["prompt_retrieval_change"], 100, 1, sign="+"),
      interval_cell(m["concept_retrieval"], 100, 1),
      interval_cell(m["attribute_accuracy"], 100, 1),
    ]
    lines.append("| " + " | ".join(cells) + " |")
  return "\n".join(lines)


def wall_cell(row: dict[str, Any]) -> str:
  """Plain decoding's time over the row's; nothing where it was not taken."""
  if row["wall"] is None:
    return "1" if row["settings"]["method"] == "ar" else ""
  ratio = row["wall"]["ratio"]
  return f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
