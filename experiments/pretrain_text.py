"""Trains the text encoder alone, to predict what a picture looks like from its prompt.

Command (from the repository root; a killed run goes on where it stopped)::

    python -m experiments.pretrain_text --run-dir runs/text --export runs/text/export

A caption is worth at most a few nats of the hundreds of a picture's tokens, so a transformer that learns pictures and
words at once hears the words last. Here the mean feature of a prompt predicts the principal components of the picture's
code vectors; the transformer (``experiments.train_generator --set text_from=runs/text/export``) then starts from features
that already tell the shape. It takes minutes: the encoder reads 16 tokens where the transformer reads 272.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import logging
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.picture_code import picture_code, principal_components
from experiments.train_generator import make_batch_fn
from jaxspec import checkpoints
from jaxspec.bundle import VOCABULARY_FILE
from jaxspec.cli.progress import TrainProgress
from jaxspec.data import text_tokenizer
from jaxspec.data.emoji import SPLITS, load_emoji
from jaxspec.data.tokens import TokenSet
from jaxspec.models.text_encoder import TextEncoderConfig, text_encoder_fns
from jaxspec.training import train_state
from jaxspec.training.loop import LoopConfig, fit
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.overrides import override
from jaxspec.training.step import make_train_step


@dataclasses.dataclass(frozen=True)
class TextRun:
  """Everything a run depends on."""

  seed: int = 0
  batch_size: int = 128
  text: TextEncoderConfig = TextEncoderConfig()
  num_components: int = 256
  plain_fraction: float = 0.5
  caption_drop: float = 0.0
  focus: tuple[str, ...] = ()
  focus_fraction: float = 0.0
  optimizer: OptimizerConfig = OptimizerConfig(
    name="adamw", learning_rate=2e-3, warmup_steps=200, weight_decay=0.01
  )
  loop: LoopConfig = LoopConfig(num_steps=3500, log_every=50, eval_every=500, checkpoint_every=500)
  ema_decay: float = 0.995
  tokens: str = "runs/tokens/emoji64.npz"
  bundle: str = "checkpoints/emoji64"


def get_config(arg: str = "") -> TextRun:
  """The one config of this script."""
  if arg:
    raise ValueError(f"Must have config '', we instead got {arg!r}")
  return TextRun()


def loss_fn(run: TextRun, codebook, basis, params, extra, batch, key):
  """Share of the variance of the leading components that the prompt does not explain."""
  del key
  caption = text_encoder_fns(run.text).apply(params["text"], batch["ids"], batch["mask"])
  pooled = jnp.sum(caption.features, axis=1) / jnp.maximum(jnp.sum(batch["mask"], axis=1, keepdims=True), 1)
  target = picture_code(codebook, basis, batch["tokens"])
  error = pooled @ params["head"]["weight"].T + params["head"]["bias"] - target
  return jnp.mean(jnp.sum(jnp.square(error), axis=1)), ({}, extra)


def train(run: TextRun, run_dir: str | Path, resume: bool = True):
  """Trains in ``run_dir``; returns the final state."""
  emoji, tokens = load_emoji(), TokenSet.load(run.tokens)
  vocabulary = text_tokenizer.load_text_tokenizer(Path(run.bundle) / VOCABULARY_FILE)
  tokenizer = checkpoints.load(Path(run.bundle) / "tokenizer")
  codebook = tokenizer.fns.codebook(tokenizer.params)
  basis = principal_components(codebook, tokens.tokens[tokens.split == 0], run.num_components)
  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  text_key, head_key = jax.random.split(jax.random.key(run.seed))
  shape = (run.num_components, run.text.caption_dim)
  head = {"weight": 0.02 * jax.random.normal(head_key, shape), "bias": jnp.zeros(shape[0])}
  state = train_state.create({"text": text_encoder_fns(run.text).init(text_key), "head": head}, optimizer)
  objective = functools.partial(loss_fn, run, codebook, basis)
  step = make_train_step(objective, optimizer, ema_decay=run.ema_decay, seed=run.seed)

  compute = jax.jit(lambda params, batch: objective(params, (), batch, None)[0])
  held = {
    name: [make_batch_fn(run, emoji, tokens, vocabulary, split=split, seed=run.seed + 1)(i) for i in range(4)]
    for split, name in enumerate(SPLITS)
  }

  def eval_fn(state) -> dict[str, float]:
    return {f"loss_{name}": float(np.mean([compute(state.ema, batch) for batch in group])) for name, group in held.items()}

  with TrainProgress("text", items_per_step=run.batch_size) as progress:
    return fit(
      run.loop, state, step, make_batch_fn(run, emoji, tokens, vocabulary), run_dir=run_dir, eval_fn=eval_fn,
      report_fn=progress, resume=resume,
    )  # fmt: skip


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="e.g. loop.num_steps=500")
  parser.add_argument("--run-dir", default="runs/text")
  parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)
  parser.add_argument("--export", metavar="DIR", type=Path, help="checkpoint folder for the averaged weights")
  args = parser.parse_args()
  logging.basicConfig(level=logging.WARNING)
  run = override(get_config(), args.set)
  state = train(run, args.run_dir, args.resume)
  if args.export is not None:
    meta = {"command": "python -m experiments.pretrain_text", "run": dataclasses.asdict(run), "steps": int(state.step)}
    checkpoints.save(args.export, run.text, state.ema["text"], meta=meta)


if __name__ == "__main__":
  main()
