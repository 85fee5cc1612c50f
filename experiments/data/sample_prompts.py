"""Prompts for images of a target: captions of scenes, the lines of a file, or classes.

Each is a function ``index -> batch`` with ``ids`` and ``mask [rows, P]``, or with ``labels [rows]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.data.sampled_target import caption_family
from experiments.train.command import epochs_of
from jaxspec.evaluation import scenes
from jaxspec.io.text import text_tokenizer
from jaxspec.models.conditions import ClassLabels, Prompt
from jaxspec.run.pipeline import Pipeline


def scene_prompts(pipeline: Pipeline, rows: int, seed: int):
  """``index -> ids and mask``: training captions of scenes."""
  family = caption_family(pipeline)
  vocabulary, limit = family.vocabulary, family.text.config.max_tokens

  def batch_fn(index: int):
    captions = [scenes.draw_scene(seed, number)[0] for number in range(index * rows, (index + 1) * rows)]
    ids, mask, _ = text_tokenizer.encode(vocabulary, captions, max_tokens=limit)
    return {"ids": np.asarray(ids), "mask": np.asarray(mask)}

  return batch_fn


def class_prompts(pipeline: Pipeline, classes: Sequence[str], rows: int, seed: int):
  """``index -> labels``: classes in random order, in epochs.

  Args:
    classes: by name or number; empty for all.
  Raises:
    ValueError: for a target without classes, or an unknown class.
  """
  family = pipeline.family
  if family.condition_type is not ClassLabels:
    raise ValueError(f"Must have a target that draws classes for --class, {pipeline.name} reads prompts: --prompts FILE")
  names = getattr(family, "classes", ())
  given = [int(name) if name.isdecimal() and name not in names else name for name in classes]
  labels = pipeline.encode(given).condition.labels if given else np.arange(family.target.config.num_classes, dtype=np.int32)
  chosen = epochs_of(labels, rows, (seed, 2))
  return lambda index: {"labels": chosen(index)}


def file_prompts(pipeline: Pipeline, path: str | Path, rows: int, seed: int):
  """``index -> ids and mask``: the lines of a text file in random order, in epochs.

  Raises:
    ValueError: for a file without lines.
  """
  path = Path(path)
  lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()] if path.is_file() else []
  if not lines:
    raise ValueError(f"Must have scenes or a file with prompts, we instead got {path}")
  if pipeline.family.condition_type is Prompt:
    ids, mask = pipeline.encode(lines).condition
  else:
    family = caption_family(pipeline)
    ids, mask, _ = text_tokenizer.encode(family.vocabulary, lines, max_tokens=family.text.config.max_tokens)
  ids, mask, chosen = np.asarray(ids), np.asarray(mask), epochs_of(np.arange(len(lines)), rows, (seed, 2))
  return lambda index: {"ids": ids[chosen(index)], "mask": mask[chosen(index)]}
