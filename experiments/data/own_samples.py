"""Images that the shipped target draws for random prompts, the distribution that drafts meet while decoding.

Commands (from the repository root; the file is written after every batch, so that the same command resumes a killed run)::

    python -m experiments.data.own_samples --num-samples 4608
    python -m experiments.data.own_samples --model weights/anole --prompts prompts.txt --out runs/anole.npz
    python -m experiments.data.own_samples --model weights/c2i --out runs/c2i.npz

The first draws training captions of `jaxspec.evaluation.scenes`, the second the lines of a file in random order, the third
all classes of a class-conditional network in random order (or those of ``--class``). Networks that read prompts as text of
their own vocabulary (Anole, Lumina-mGPT) need a file. ``--model`` is a bundle or a converted network, by folder or shipped
name.

`experiments.train.draft`, `eagle` and `inter_head` read the file (`experiments.data.samples`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
import jax
import jax.numpy as jnp
import numpy as np

from experiments.data.sample_prompts import class_prompts, file_prompts, scene_prompts
from experiments.data.sampled_target import conditions_of
from experiments.data.samples import Samples, load_samples, write_samples
from jaxspec.core.command_line import PATH, script
from jaxspec.models.conditions import ClassLabels
from jaxspec.run.loading import load_pipeline
from jaxspec.run.pipeline import Pipeline


def draw(pipeline: Pipeline, prompt, seed: int) -> Samples:
  """One batch of images with the settings of the bundle."""
  make, params = conditions_of(pipeline)
  condition = make(params, jax.tree.map(jnp.asarray, prompt))
  out = pipeline(condition, key=jax.random.key(seed), method="ar")
  return {"tokens": np.asarray(out.tokens, np.int16 if pipeline.family.space.vocab_size <= 2**15 else np.int32), **prompt}


def prompts_of(pipeline: Pipeline, prompts: str | None, classes: list[str], rows: int, seed: int):
  """``index -> batch`` of the requested prompts: a file, scenes, classes; by default those of the target."""
  if prompts is not None and classes:
    raise ValueError("Must have either --prompts or --class, not both")
  if classes or (prompts is None and pipeline.family.condition_type is ClassLabels):
    return class_prompts(pipeline, classes, rows, seed)
  if prompts in (None, "scenes"):
    return scene_prompts(pipeline, rows, seed)
  return file_prompts(pipeline, prompts, rows, seed)


@script(__doc__)
@click.option("--model", "--bundle", "model", default="checkpoints/scenes", help="Bundle or converted network that draws.")
@click.option("--tokenizer", help="Image tokenizer of a converted network.")
@click.option("--num-samples", default=4608, help="Total images in the file.")
@click.option("--prompts", "source", metavar="FILE", help="Text file, one prompt a line, or 'scenes'.")
@click.option("--class", "classes", multiple=True, metavar="NAME", help="Class; repeat for several.  [default: all]")
@click.option("--batch", default=8, help="Images decoded together.")
@click.option("--seed", default=0, help="Seed of prompts and images.")
@click.option("--matmul-precision", default="bfloat16", help="Rounding of what products read.")
@click.option("--out", type=PATH, default="runs/scenes-samples.npz", help="File to write; one that is there goes on.")
def main(
  model: str, tokenizer: str | None, num_samples: int, source: str | None, classes: tuple[str, ...], batch: int, seed: int,
  matmul_precision: str, out: Path,
) -> None:  # fmt: skip
  pipeline = load_pipeline(model, matmul_precision=matmul_precision, tokenizer=tokenizer)
  conditions_of(pipeline)  # raises without prompts
  prompts = prompts_of(pipeline, source, list(classes), batch, seed)
  out.parent.mkdir(parents=True, exist_ok=True)
  samples = load_samples(out) if out.exists() else {}
  done = len(samples.get("tokens", ())) // batch
  shapes = lambda part: {name: leaf.shape[1:] for name, leaf in part.items() if name != "tokens"}
  if samples and (theirs := shapes(samples)) != (ours := shapes(prompts(0))):
    raise ValueError(f"Must have prompts as {out} has them, {theirs}, we instead got {ours}")
  for index in range(done, -(-num_samples // batch)):
    part = draw(pipeline, prompts(index), seed * 100_003 + index)
    samples = {name: np.concatenate([samples[name], leaf]) if samples else leaf for name, leaf in part.items()}
    write_samples(out, samples)
    print(f"sampled {len(samples['tokens'])}/{num_samples} images", file=sys.stderr, flush=True)


if __name__ == "__main__":
  main()
