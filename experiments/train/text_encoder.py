"""Trains the text encoder alone, to predict what an image looks like from its prompt.

Command (from the repository root; a killed run goes on where it stopped)::

    python -m experiments.train.text_encoder --run-dir runs/text --export runs/text/export

A caption is worth at most a few nats of the hundreds of an image's tokens, so a transformer that learns images and
words at once hears the words last. Here the mean feature of a prompt predicts the principal components of the image's
code vectors; the transformer (``experiments.train.generator --set text_from=runs/text/export``) then starts from features
that already tell the shape. It takes minutes: the encoder reads 16 tokens where the transformer reads 272.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments.train.command import Progress, command_of, main
from experiments.train.generator import make_batch_fn
from experiments.train.image_code import image_code, principal_components
from jaxspec import checkpoints
from jaxspec.data import text_tokenizer
from jaxspec.data.emoji import SPLITS, load_emoji
from jaxspec.data.tokens import TokenSet
from jaxspec.hosts.images import VOCABULARY_FILE
from jaxspec.models.text_encoder import TextEncoderConfig, text_encoder_fns
from jaxspec.training import train_state
from jaxspec.training.loop import LoopConfig, fit
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
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
  optimizer: OptimizerConfig = OptimizerConfig(name="adamw", learning_rate=2e-3, warmup_steps=200, weight_decay=0.01)
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
  target = image_code(codebook, basis, batch["tokens"])
  error = pooled @ params["head"]["weight"].T + params["head"]["bias"] - target
  return jnp.mean(jnp.sum(jnp.square(error), axis=1)), ({}, extra)


def train(run: TextRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains in ``run_dir`` and (with ``export_to``) writes a checkpoint; returns the final state."""
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

  state = fit(
    run.loop, state, step, make_batch_fn(run, emoji, tokens, vocabulary), run_dir=run_dir, eval_fn=eval_fn,
    report_fn=Progress("text", run.batch_size), resume=resume,
  )  # fmt: skip
  if export_to is not None:
    meta = {"command": command_of("text_encoder", run, TextRun()), "run": dataclasses.asdict(run), "steps": int(state.step)}
    checkpoints.save(export_to, run.text, state.ema["text"], meta=meta)
  return state


if __name__ == "__main__":
  main(__doc__, get_config, train, name_of=lambda run: "text")
