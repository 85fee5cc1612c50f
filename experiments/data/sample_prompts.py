"""Prompts of the images that a target draws: of its training, as users type them, of scenes, or of a file.

Each is a function ``index -> batch`` with ``ids`` and ``mask [rows, P]``.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from experiments.data.sampled_target import caption_host
from experiments.train.command import epochs_of
from experiments.train.generator import GeneratorRun, in_focus
from experiments.train.generator import make_batch_fn as image_batches
from jaxspec import scenes
from jaxspec.data import text_tokenizer
from jaxspec.data.emoji import STYLES, EmojiSet, load_emoji
from jaxspec.data.paint import BACKGROUNDS
from jaxspec.data.prompts import canonical_prompt
from jaxspec.data.tokens import TokenSet
from jaxspec.models.conditions import Prompt
from jaxspec.pipeline import Pipeline


@dataclasses.dataclass(frozen=True)
class _PromptSource:
  """The fields of a generator run that its batches read."""

  batch_size: int
  pipeline: Pipeline
  seed: int = 7
  plain_fraction: float = 0.5
  caption_drop: float = 0.0
  focus: tuple[str, ...] = GeneratorRun.focus
  focus_fraction: float = GeneratorRun.focus_fraction

  @property
  def text(self):
    return self.pipeline.host.text.config


def training_prompts(pipeline: Pipeline, tokens: str | Path, rows: int):
  """``index -> ids and mask``: those of the generator's batches, of which only the prompts are read."""
  source, vocabulary = _PromptSource(rows, pipeline), caption_host(pipeline).vocabulary
  return image_batches(source, load_emoji(), TokenSet.load(tokens), vocabulary)


def user_prompts(pipeline: Pipeline, emoji: EmojiSet, rows: int, seed: int):
  """``index -> ids and mask``: labels as in training, a style in three of ten, a painted background in four of ten."""
  focus, fraction = GeneratorRun.focus, GeneratorRun.focus_fraction
  host = caption_host(pipeline)
  vocabulary, limit = host.vocabulary, host.text.config.max_tokens
  seen = sorted({int(emoji.concept[image]) for image in np.flatnonzero(emoji.split == 0)})
  focused = [concept for concept in seen if in_focus(emoji.emoji[concept], focus)]

  def prompt(generator: np.random.Generator) -> str:
    concept = generator.choice(focused if generator.random() < fraction else seen)
    style = str(generator.choice(STYLES)) if generator.random() < 0.3 else None
    background = str(generator.choice(list(BACKGROUNDS))) if generator.random() < 0.4 else "white"
    return canonical_prompt(emoji.emoji[concept], style, background, bool(generator.random() < 0.2))

  def batch_fn(index: int):
    generator = np.random.default_rng((seed, 1, index))
    ids, mask, _ = text_tokenizer.encode(vocabulary, [prompt(generator) for _ in range(rows)], max_tokens=limit)
    return {"ids": np.asarray(ids), "mask": np.asarray(mask)}

  return batch_fn


def scene_prompts(pipeline: Pipeline, rows: int, seed: int):
  """``index -> ids and mask``: training captions of scenes."""
  host = caption_host(pipeline)
  vocabulary, limit = host.vocabulary, host.text.config.max_tokens

  def batch_fn(index: int):
    captions = [scenes.draw_scene(seed, number)[0] for number in range(index * rows, (index + 1) * rows)]
    ids, mask, _ = text_tokenizer.encode(vocabulary, captions, max_tokens=limit)
    return {"ids": np.asarray(ids), "mask": np.asarray(mask)}

  return batch_fn


def file_prompts(pipeline: Pipeline, path: str | Path, rows: int, seed: int):
  """``index -> ids and mask``: the lines of a text file in random order, every line once before any returns.

  Raises:
    ValueError: for a file without lines.
  """
  path = Path(path)
  lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()] if path.is_file() else []
  if not lines:
    raise ValueError(f"Must have training, users, scenes or a file with prompts, we instead got {path}")
  if pipeline.host.condition_type is Prompt:
    ids, mask = pipeline.encode(lines).condition
  else:
    host = caption_host(pipeline)
    ids, mask, _ = text_tokenizer.encode(host.vocabulary, lines, max_tokens=host.text.config.max_tokens)
  ids, mask, chosen = np.asarray(ids), np.asarray(mask), epochs_of(np.arange(len(lines)), rows, (seed, 2))
  return lambda index: {"ids": ids[chosen(index)], "mask": mask[chosen(index)]}
