"""Images that the shipped target draws for random prompts: what its drafts meet while decoding.

Commands (from the repository root; the file is written after every batch, a killed run goes on where it stopped)::

    python -m experiments.data.own_samples --num-samples 4608
    python -m experiments.data.own_samples --bundle weights/anole --prompts prompts.txt --out runs/anole.npz

The first draws training captions of `jaxspec.scenes`, the second the lines of a file in random order. Networks that read
prompts as text of their own vocabulary (Anole, Lumina-mGPT) need a file.

`experiments.train.draft`, `eagle` and `inter_head` read the file (`experiments.data.samples`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.sample_prompts import file_prompts, scene_prompts
from experiments.data.sampled_target import conditions_of
from experiments.data.samples import Samples, load_samples, write_samples
from experiments.train.command import one_line_errors
from jaxspec.loading import load_pipeline
from jaxspec.pipeline import Pipeline


def draw(pipeline: Pipeline, prompt, seed: int) -> Samples:
  """One batch of images with the settings of the bundle."""
  make, params = conditions_of(pipeline)
  condition = make(params, jnp.asarray(prompt["ids"]), jnp.asarray(prompt["mask"]))
  out = pipeline(condition, key=jax.random.key(seed), method="ar")
  return {"tokens": np.asarray(out.tokens, np.int16), "ids": prompt["ids"], "mask": prompt["mask"]}


def main() -> None:
  """The command line."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--bundle", default="checkpoints/scenes")
  parser.add_argument("--num-samples", type=int, default=4608, help="images in the file in the end")
  parser.add_argument("--prompts", default="scenes", help="scenes, or a text file, one prompt a line")
  parser.add_argument("--batch", type=int, default=8)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--matmul-precision", default="bfloat16")
  parser.add_argument("--out", type=Path, default=Path("runs/scenes-samples.npz"))
  args = parser.parse_args()
  pipeline = load_pipeline(args.bundle, matmul_precision=args.matmul_precision)
  if args.prompts == "scenes":
    prompts = scene_prompts(pipeline, args.batch, args.seed)
  else:
    prompts = file_prompts(pipeline, args.prompts, args.batch, args.seed)
  args.out.parent.mkdir(parents=True, exist_ok=True)
  samples = load_samples(args.out) if args.out.exists() else {}
  done = len(samples.get("tokens", ())) // args.batch
  if samples and (theirs := samples["ids"].shape[1]) != (ours := prompts(0)["ids"].shape[1]):
    raise ValueError(f"Must have prompts of {theirs} ids, as {args.out} has them, we instead got {ours} of {args.prompts}")
  for index in range(done, -(-args.num_samples // args.batch)):
    part = draw(pipeline, prompts(index), args.seed * 100_003 + index)
    samples = {name: np.concatenate([samples[name], leaf]) if samples else leaf for name, leaf in part.items()}
    write_samples(args.out, samples)
    print(f"sampled {len(samples['tokens'])}/{args.num_samples} images", file=sys.stderr, flush=True)


if __name__ == "__main__":
  with one_line_errors():
    main()
