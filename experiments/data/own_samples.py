"""Images that the shipped target draws for random prompts: what its drafts meet while decoding.

Commands (from the repository root; the file is written after every batch, a killed run goes on where it stopped)::

    python -m experiments.data.own_samples --num-samples 3072 --out runs/samples.npz
    python -m experiments.data.own_samples --num-samples 4608 --prompts users --out runs/samples.npz
    python -m experiments.data.own_samples --bundle checkpoints/scenes --prompts scenes --num-samples 4608
    python -m experiments.data.own_samples --bundle weights/anole --prompts prompts.txt --out runs/anole.npz

The first draws for training prompts, the second goes on with prompts as users type them: mostly a label alone, which leaves
style and background open, and so more to guess. The third draws captions of `jaxspec.scenes`, the last the lines of a file
in random order. Networks that read prompts as text of their own vocabulary (Anole, Lumina-mGPT) need a file.

The file holds ``tokens [M, N]``, and the prompts as ``ids`` and ``mask [M, P]``. `experiments.train.draft`, `eagle` and
`inter_head` read it.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxspec
from experiments.train.command import epochs_of, one_line_errors
from experiments.train.generator import GeneratorRun, in_focus
from experiments.train.generator import make_batch_fn as image_batches
from jaxspec import scenes
from jaxspec.data import text_tokenizer
from jaxspec.data.emoji import STYLES, EmojiSet, load_emoji
from jaxspec.data.paint import BACKGROUNDS
from jaxspec.data.prompts import canonical_prompt
from jaxspec.data.tokens import TokenSet
from jaxspec.hosts.images import CaptionHost
from jaxspec.models.conditions import Prompt
from jaxspec.pipeline import Pipeline, load_pipeline
from jaxspec.types import Array, Params, PyTree

Samples = dict[str, np.ndarray]


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


def conditions_of(pipeline: Pipeline) -> tuple[Callable[[Params, Array, Array], PyTree], Params]:
  """What makes conditions of the prompts of samples, ``(params, ids [M, P], mask [M, P]) -> condition``, and its parameters.

  It is the text encoder of the target; a target that reads ids itself has none.

  Raises:
    ValueError: for another target.
  """
  if pipeline.host.condition_type is Prompt:
    return lambda params, ids, mask: Prompt(ids, mask), {}
  text = caption_host(pipeline).text
  return text.fns.apply, text.params


def caption_host(pipeline: Pipeline) -> CaptionHost:
  """The host of a pipeline whose captions are ids of word pieces.

  Raises:
    ValueError: for another one.
  """
  if not isinstance(pipeline.host, CaptionHost):
    hint = ": its prompts come from a file (--prompts FILE)" if pipeline.host.condition_type is Prompt else ""
    raise ValueError(f"Must have a target with a text encoder of its own for this, {pipeline.name} has none{hint}")
  return pipeline.host


def guided_target(pipeline: Pipeline, **kwargs):
  """The target at the bundle's guidance scale, ``(fns, params)``; ``kwargs`` as for `jaxspec.guided`."""
  fns = jaxspec.guided(pipeline.target.fns, **kwargs)
  return fns, jaxspec.Guided(pipeline.target.params, jnp.float32(pipeline.sampling().cfg_scale))


def draw(pipeline: Pipeline, prompt, seed: int) -> Samples:
  """One batch of images with the settings of the bundle."""
  make, params = conditions_of(pipeline)
  condition = make(params, jnp.asarray(prompt["ids"]), jnp.asarray(prompt["mask"]))
  out = pipeline(condition, key=jax.random.key(seed), method="ar")
  return {"tokens": np.asarray(out.tokens, np.int16), "ids": prompt["ids"], "mask": prompt["mask"]}


def load_samples(path: str | Path, at_least: int = 1) -> Samples:
  """The samples of a file.

  Raises:
    ValueError: if there is no such file, or it holds fewer images than asked for.
  """
  path = Path(path)
  if not path.exists():
    raise ValueError(
      f"Must have the target's samples at {path}; make them: python -m experiments.data.own_samples --out {path}"
    )
  with np.load(path) as archive:
    samples = dict(archive)
  if (found := len(samples["tokens"])) < at_least:
    raise ValueError(f"Must have at least {at_least} samples in {path}, we instead got {found}")
  return samples


def split_rows(num_samples: int, held_out: int) -> tuple[np.ndarray, np.ndarray]:
  """Rows for training, and ``held_out`` ones that no update sees, of both kinds of prompts."""
  order = np.random.default_rng(0).permutation(num_samples)
  return order[held_out:], order[:held_out]


def make_batch_fn(samples: Samples, rows: np.ndarray, batch_size: int, seed: int):
  """``index -> batch``: epochs over ``rows`` in random order, a pure function of seed and index."""
  chosen = epochs_of(rows, batch_size, seed)
  return lambda index: pick(samples, chosen(index))


def pick(samples: Samples, rows: np.ndarray) -> Samples:
  """The batch of some rows, tokens as int32."""
  return {name: leaf[rows].astype(np.int32) if name == "tokens" else leaf[rows] for name, leaf in samples.items()}


def _write(path: Path, samples: Samples) -> None:
  part = path.with_suffix(".part.npz")
  np.savez(part, **samples)
  os.replace(part, path)


def main() -> None:
  """The command line."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--bundle", default="checkpoints/emoji64")
  parser.add_argument("--tokens", default="runs/tokens/emoji64.npz")
  parser.add_argument("--num-samples", type=int, default=3072, help="images in the file in the end")
  parser.add_argument("--prompts", default="training", help="training, users, scenes, or a text file, one prompt a line")
  parser.add_argument("--batch", type=int, default=8)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--matmul-precision", default="bfloat16")
  parser.add_argument("--out", type=Path, default=Path("runs/samples.npz"))
  args = parser.parse_args()
  pipeline = load_pipeline(args.bundle, matmul_precision=args.matmul_precision)
  if args.prompts == "scenes":
    prompts = scene_prompts(pipeline, args.batch, args.seed)
  elif args.prompts == "users":
    prompts = user_prompts(pipeline, load_emoji(), args.batch, args.seed)
  elif args.prompts != "training":
    prompts = file_prompts(pipeline, args.prompts, args.batch, args.seed)
  else:  # only the prompts are read from the generator's batches
    vocabulary = caption_host(pipeline).vocabulary
    source, tokens = _PromptSource(args.batch, pipeline), TokenSet.load(args.tokens)
    prompts = image_batches(source, load_emoji(), tokens, vocabulary)
  args.out.parent.mkdir(parents=True, exist_ok=True)
  samples = load_samples(args.out) if args.out.exists() else {}
  done = len(samples.get("tokens", ())) // args.batch
  if samples and (theirs := samples["ids"].shape[1]) != (ours := prompts(0)["ids"].shape[1]):
    raise ValueError(f"Must have prompts of {theirs} ids, as {args.out} has them, we instead got {ours} of {args.prompts}")
  for index in range(done, -(-args.num_samples // args.batch)):
    part = draw(pipeline, prompts(index), args.seed * 100_003 + index)
    samples = {name: np.concatenate([samples[name], leaf]) if samples else leaf for name, leaf in part.items()}
    _write(args.out, samples)
    print(f"sampled {len(samples['tokens'])}/{args.num_samples} images", file=sys.stderr, flush=True)


if __name__ == "__main__":
  with one_line_errors():
    main()
