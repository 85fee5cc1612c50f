"""Pictures that the shipped target draws for random prompts: what its drafts meet while decoding.

Commands (from the repository root; the file is written after every batch, a killed run goes on where it stopped)::

    python -m experiments.own_samples --num-samples 3072 --out runs/samples.npz
    python -m experiments.own_samples --num-samples 4608 --users --out runs/samples.npz

The first draws for training prompts, the second goes on with prompts as users type them: mostly a label alone, which leaves
style and background open, and so more to guess.

The file holds ``tokens [M, N]``, and the prompts as ``ids`` and ``mask [M, P]``. `distill_draft` and `train_eagle` read it.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxspec
from experiments.train_generator import GeneratorRun, in_focus
from experiments.train_generator import make_batch_fn as picture_batches
from jaxspec.bundle import Bundle, load_bundle
from jaxspec.data.emoji import STYLES, EmojiSet, load_emoji
from jaxspec.data.paint import BACKGROUNDS
from jaxspec.data.prompts import canonical_prompt
from jaxspec.data.tokens import TokenSet

Samples = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class _PromptSource:
  """The fields of a generator run that its batches read."""

  batch_size: int
  bundle: Bundle
  seed: int = 7
  plain_fraction: float = 0.5
  caption_drop: float = 0.0
  focus: tuple[str, ...] = GeneratorRun.focus
  focus_fraction: float = GeneratorRun.focus_fraction

  @property
  def text(self):
    return self.bundle.text.config


def user_prompts(bundle: Bundle, emoji: EmojiSet, rows: int, seed: int):
  """``index -> ids and mask``: labels as in training, a style in three of ten, a painted background in four of ten."""
  focus, fraction = GeneratorRun.focus, GeneratorRun.focus_fraction
  seen = sorted({int(emoji.concept[picture]) for picture in np.flatnonzero(emoji.split == 0)})
  focused = [concept for concept in seen if in_focus(emoji.emoji[concept], focus)]

  def prompt(generator: np.random.Generator) -> str:
    concept = generator.choice(focused if generator.random() < fraction else seen)
    style = str(generator.choice(STYLES)) if generator.random() < 0.3 else None
    background = str(generator.choice(list(BACKGROUNDS))) if generator.random() < 0.4 else "white"
    return canonical_prompt(emoji.emoji[concept], style, background, bool(generator.random() < 0.2))

  def batch_fn(index: int):
    generator = np.random.default_rng((seed, 1, index))
    ids, mask, _ = bundle.encode([prompt(generator) for _ in range(rows)])
    return {"ids": np.asarray(ids), "mask": np.asarray(mask)}

  return batch_fn


def guided_target(bundle: Bundle, **kwargs):
  """The target at the bundle's guidance scale, ``(fns, params)``; ``kwargs`` as for `jaxspec.guided`."""
  fns = jaxspec.guided(bundle.target.fns, **kwargs)
  return fns, jaxspec.Guided(bundle.target.params, jnp.float32(bundle.defaults["cfg_scale"]))


def draw(bundle: Bundle, prompt, seed: int) -> Samples:
  """One batch of pictures at the bundle's guidance, temperature and top-k."""
  fns, params = guided_target(bundle)
  sampling = jaxspec.sampling_params(bundle.defaults["temperature"])
  verifier = jaxspec.target_model(fns, jaxspec.lossless, warp=jaxspec.Warp(top_k=bundle.defaults["top_k"]))
  caption = bundle.text.fns.apply(bundle.text.params, jnp.asarray(prompt["ids"]), jnp.asarray(prompt["mask"]))
  out = jaxspec.autoregress(
    jaxspec.SpecParams((), jaxspec.ModelParams(params, sampling)), jax.random.key(seed), caption,
    verifier=verifier, max_len=bundle.target.config.num_tokens,
  )  # fmt: skip
  return {"tokens": np.asarray(out.tokens, np.int16), "ids": prompt["ids"], "mask": prompt["mask"]}


def load_samples(path: str | Path, at_least: int = 1) -> Samples:
  """The samples of a file.

  Raises:
    ValueError: if there is no such file, or it holds fewer pictures than asked for.
  """
  path = Path(path)
  if not path.exists():
    raise ValueError(f"Must have the target's samples at {path}; make them: python -m experiments.own_samples --out {path}")
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

  @functools.lru_cache(maxsize=2)
  def order(epoch: int) -> np.ndarray:
    return np.random.default_rng((seed, epoch)).permutation(rows)

  def batch_fn(index: int) -> Samples:
    at = range(index * batch_size, (index + 1) * batch_size)
    return pick(samples, np.array([order(i // len(rows))[i % len(rows)] for i in at]))

  return batch_fn


def pick(samples: Samples, rows: np.ndarray) -> Samples:
  """The batch of some rows, tokens as int32."""
  return {name: leaf[rows].astype(np.int32) if name == "tokens" else leaf[rows] for name, leaf in samples.items()}


def _write(path: Path, samples: Samples) -> None:
  part = path.with_suffix(".part.npz")
  np.savez(part, **samples)
  os.replace(part, path)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--bundle", default="checkpoints/emoji64")
  parser.add_argument("--tokens", default="runs/tokens/emoji64.npz")
  parser.add_argument("--num-samples", type=int, default=3072, help="pictures in the file in the end")
  parser.add_argument("--users", action="store_true", help="prompts as users type them, in place of training prompts")
  parser.add_argument("--batch", type=int, default=8)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--matmul-precision", default="bfloat16")
  parser.add_argument("--out", type=Path, default=Path("runs/samples.npz"))
  args = parser.parse_args()
  bundle = load_bundle(args.bundle, drafts=[])
  emoji = load_emoji()
  if args.users:
    prompts = user_prompts(bundle, emoji, args.batch, args.seed)
  else:  # only the prompts are read from the generator's batches
    prompts = picture_batches(_PromptSource(args.batch, bundle), emoji, TokenSet.load(args.tokens), bundle.vocabulary)
  args.out.parent.mkdir(parents=True, exist_ok=True)
  samples = load_samples(args.out) if args.out.exists() else {}
  done = len(samples.get("tokens", ())) // args.batch
  with jax.default_matmul_precision(args.matmul_precision):
    for index in range(done, -(-args.num_samples // args.batch)):
      part = draw(bundle, prompts(index), args.seed * 100_003 + index)
      samples = {name: np.concatenate([samples[name], leaf]) if samples else leaf for name, leaf in part.items()}
      _write(args.out, samples)
      print(f"sampled {len(samples['tokens'])}/{args.num_samples} pictures", file=sys.stderr, flush=True)


if __name__ == "__main__":
  main()
