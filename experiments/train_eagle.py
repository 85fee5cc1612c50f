"""Trains the EAGLE drafter of the shipped target.

Command (from the repository root; a killed run goes on where it stopped)::

    python -m experiments.train_eagle --run-dir runs/eagle --export checkpoints/emoji64

1. The frozen target reads tokenised training pictures with their prompts; its features and logits are made anew for
   every batch (they are a thousand times larger than the tokens). A tenth of the captions is dropped, so that the drafter
   can be guided.
2. The drafter reads (feature at j, token at j + 1) and predicts the feature at j + 1: smooth L1 on the feature plus a tenth
   of the cross entropy between the two laws behind the target's output matrix, over image places.
3. Uniform noise on the features it reads makes it robust against its own predictions.

Recipe of the public LlamaGen drafters (LANTERN, arXiv 2410.03355, and EAGLE, arXiv 2401.15077): AdamW with betas 0.9 and
0.95, gradients clipped by value, linear warm-up and decay.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

from experiments.train_generator import make_batch_fn
from jaxspec import bundle as bundles
from jaxspec import checkpoints
from jaxspec.bundle import Bundle, load_bundle
from jaxspec.cli.progress import TrainProgress
from jaxspec.data.emoji import load_emoji
from jaxspec.data.tokens import TokenSet
from jaxspec.models.conditions import Caption, Pairs, Prefixed
from jaxspec.models.eagle import HOST_TABLES, EagleConfig, attach, eagle_fns
from jaxspec.training import train_state
from jaxspec.training.loop import LoopConfig, fit
from jaxspec.training.losses import feature_losses
from jaxspec.training.optimizer import decay_mask
from jaxspec.training.overrides import override
from jaxspec.training.step import make_train_step

NAME = "eagle"


@dataclasses.dataclass(frozen=True)
class EagleRun:
  """Everything a run depends on, besides the bundle.

  Attributes:
    noise: width of the uniform noise on the features, at 512 places; longer sequences get less in proportion.
    plain_fraction: of the training pictures, the unpainted variant.
  """

  seed: int = 0
  batch_size: int = 16
  token_weight: float = 0.1
  noise: float = 0.2
  caption_drop: float = 0.1
  plain_fraction: float = 0.5
  learning_rate: float = 1e-3
  warmup_fraction: float = 0.03
  weight_decay: float = 0.01
  clip_value: float = 0.5
  loop: LoopConfig = LoopConfig(num_steps=2000, log_every=10, eval_every=200, checkpoint_every=100)
  ema_decay: float = 0.99
  num_eval_batches: int = 4
  matmul_precision: str | None = "bfloat16"
  tokens: str = "runs/tokens/emoji64.npz"
  bundle: str = "checkpoints/emoji64"


def get_config(arg: str = "") -> EagleRun:
  """Config of a run: ``""`` for two CPU cores, ``"paper"`` for the published rate and 20 epochs of 263 steps."""
  if arg == "paper":
    return EagleRun(learning_rate=1e-4, loop=LoopConfig(num_steps=20 * 263, log_every=50, eval_every=263))
  if arg:
    raise ValueError(f"Must have config '' or 'paper', we instead got {arg!r}")
  return EagleRun()


def make_optimizer(run: EagleRun) -> optax.GradientTransformation:
  """AdamW with linear warm-up and decay, gradients clipped by value."""
  steps = run.loop.num_steps
  warmup = max(int(run.warmup_fraction * steps), 1)
  rate = optax.join_schedules(
    [
      optax.linear_schedule(run.learning_rate / warmup, run.learning_rate, warmup),
      optax.linear_schedule(run.learning_rate, 0.0, max(steps - warmup, 1)),
    ],
    [warmup],
  )
  return optax.chain(
    optax.clip(run.clip_value),
    optax.adamw(rate, b1=0.9, b2=0.95, weight_decay=run.weight_decay, mask=decay_mask),
  )


def host_pass(bundle: Bundle, frozen, batch):
  """Features ``[B, P + N - 1, D]`` and logits ``[B, P + N - 1, V]`` of the target over pictures."""
  caption = bundle.text.fns.apply(frozen["text"], batch["ids"], batch["mask"])
  null = bundle.target.fns.null_condition(frozen["target"], caption)
  caption = Caption(jnp.where(batch["drop"][:, None, None], null.features, caption.features), caption.mask)
  output, _ = bundle.target.fns.apply(frozen["target"], Prefixed(caption, batch["tokens"][:, :-1]))
  return jax.lax.stop_gradient(output.features), jax.lax.stop_gradient(output.logits)


def make_loss_fn(run: EagleRun, config: EagleConfig, bundle: Bundle):
  """``feature + token_weight * token``; the metric ``acceptance`` is 1 - TV of one step behind true features."""
  fns, text = eagle_fns(config), config.prefix_len - 1

  def loss_fn(params, extra, batch, key):
    features, logits = host_pass(bundle, extra, batch)
    # Place j pairs the feature at j with the token at j + 1; the ids at places of the condition are 0.
    tokens = jnp.pad(batch["tokens"][:, :-1], ((0, 0), (text, 0)))  # [B, P + N - 2]
    read = features[:, :-1]
    if key is not None:
      noise = jax.random.uniform(key, read.shape, minval=-0.5, maxval=0.5)
      read = read + noise * (run.noise * 512 / read.shape[1])
    output, _ = fns.apply(attach(params, extra["target"]), Pairs(tokens, read))
    image = jnp.arange(tokens.shape[1])[None] >= text
    losses = feature_losses(output.features, features[:, 1:], output.logits, logits[:, 1:], image)
    p, q = jax.nn.softmax(logits[:, 1 + text :]), jax.nn.softmax(output.logits[:, text:])
    acceptance = jnp.mean(jnp.sum(jnp.minimum(p, q), axis=-1))
    metrics = {"feature": losses.feature, "token": losses.token, "acceptance": acceptance}
    return losses.feature + run.token_weight * losses.token, (metrics, extra)

  return loss_fn


@dataclasses.dataclass(frozen=True)
class _Pictures:
  """The fields of a generator run that its batches read."""

  batch_size: int
  bundle: Bundle
  seed: int
  plain_fraction: float
  caption_drop: float

  @property
  def text(self):
    return self.bundle.text.config


def train(run: EagleRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains, evaluates on the validation pictures and (with ``export_to``) adds the drafter to the bundle."""
  bundle = load_bundle(run.bundle, drafts=[])
  emoji, tokens = load_emoji(), TokenSet.load(run.tokens)
  config = EagleConfig.of(bundle.target.config)
  loss_fn = make_loss_fn(run, config, bundle)
  optimizer = make_optimizer(run)
  step = make_train_step(
    loss_fn, optimizer, ema_decay=run.ema_decay, seed=run.seed, matmul_precision=run.matmul_precision
  )
  batches = lambda split: make_batch_fn(
    _Pictures(run.batch_size, bundle, run.seed, run.plain_fraction, 0.0 if split else run.caption_drop),
    emoji, tokens, bundle.vocabulary, split,
  )  # fmt: skip
  held_out = batches(1)
  compute = jax.jit(lambda params, extra, batch: loss_fn(params, extra, batch, None)[1][0])

  def eval_fn(state):
    parts = [jax.device_get(compute(state.ema, state.extra, held_out(i))) for i in range(run.num_eval_batches)]
    return {name: float(sum(part[name] for part in parts)) / len(parts) for name in parts[0]}

  started = time.perf_counter()
  # The state is donated: the bundle keeps its own copies of the frozen networks.
  frozen = jax.tree.map(jnp.copy, {"text": bundle.text.params, "target": bundle.target.params})
  params = eagle_fns(config).init(jax.random.key(run.seed))
  state = train_state.create(params, optimizer, extra=frozen)
  with TrainProgress(NAME, items_per_step=run.batch_size) as progress:
    state = fit(
      run.loop, state, step, batches(0), run_dir=run_dir, eval_fn=eval_fn, report_fn=progress, resume=resume
    )
  if export_to is not None:
    export(run, config, state, eval_fn(state), Path(export_to), bundle, time.perf_counter() - started)
  return state


def export(run: EagleRun, config, state, figures, path: Path, bundle: Bundle, seconds: float) -> None:
  """Writes the drafter's own weights and enters it into ``bundle.json``; the tables stay the target's."""
  assert not set(HOST_TABLES) & set(state.ema)
  meta = {
    "licence": bundle.target.meta.get("licence", "unknown"),
    "command": "python -m experiments.train_eagle",
    "run": dataclasses.asdict(run),
    "steps": int(state.step),
    "held_out": figures,
    "hours": round(seconds / 3600, 2),
  }
  checkpoints.save(path / NAME, config, state.ema, meta=meta, dtype=jnp.bfloat16)
  document = bundles.read_bundle(path)
  document["drafts"] = dict(sorted((document["drafts"] | {NAME: NAME}).items()))
  (path / bundles.BUNDLE_FILE).write_text(json.dumps(document, indent=2) + "\n")


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--config", default="", help="'' or 'paper'")
  parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
  parser.add_argument("--run-dir", type=Path, default=Path("runs/eagle"))
  parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)
  parser.add_argument("--export", metavar="BUNDLE")
  args = parser.parse_args()
  logging.basicConfig(level=logging.WARNING)
  train(override(get_config(args.config), args.set), args.run_dir, args.resume, args.export)


if __name__ == "__main__":
  main()
