"""Trains the EAGLE drafter of the shipped target.

Commands (from the repository root; a killed run goes on where it stopped)::

    python -m experiments.own_samples --num-samples 3072 --out runs/samples.npz
    python -m experiments.own_samples --num-samples 4608 --users --out runs/samples.npz
    python -m experiments.train_eagle --run-dir runs/eagle --export checkpoints/emoji64

1. The target, guided at the bundle's scale, reads its own samples once. What it drafts for later is the guided law, and that
   has features too: the output matrix is linear, so the features of both halves are guided as their logits are.
2. The drafter reads (feature at j, token at j + 1) and predicts the feature at j + 1: total variation between the two laws
   behind the target's output matrix (1 - TV is the expected acceptance), a little of their cross entropy, and smooth L1 on
   the feature.
3. A second pass reads the drafter's own predictions at random places, as it does from its second draft on (the idea of
   arXiv 2408.15766); uniform noise on the features makes both robust.

The drafter so needs the condition no more and guidance neither: it runs at half the cost. Architecture: EAGLE
(arXiv 2401.15077).
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
import numpy as np

from experiments.own_samples import Samples, guided_target, load_samples, make_batch_fn, pick, split_rows
from jaxspec import bundle as bundles
from jaxspec import checkpoints
from jaxspec.bundle import Bundle, load_bundle
from jaxspec.cli.progress import TrainProgress
from jaxspec.models.conditions import Pairs, Prefixed
from jaxspec.models.eagle import HOST_TABLES, EagleConfig, attach, eagle_fns
from jaxspec.training import train_state
from jaxspec.training.loop import LoopConfig, fit
from jaxspec.training.losses import feature_losses
from jaxspec.training.optimizer import OptimizerConfig, make_optimizer
from jaxspec.training.overrides import override
from jaxspec.training.step import make_train_step

NAME = "eagle"
HELD_OUT = 128  # sampled pictures that no update sees


@dataclasses.dataclass(frozen=True)
class EagleRun:
  """Everything a run depends on, besides the bundle.

  Attributes:
    noise: half-width of the uniform noise on the features, as a share of their root mean square.
    own_fraction: of the places of the second pass, those that read the drafter's own prediction.
  """

  seed: int = 0
  batch_size: int = 16
  num_samples: int = 4608
  feature_weight: float = 0.5
  token_weight: float = 0.1
  noise: float = 0.1
  own_fraction: float = 0.5
  optimizer: OptimizerConfig = OptimizerConfig(
    name="muon", learning_rate=2e-3, warmup_steps=30, weight_decay=0.01, muon_learning_rate=0.02
  )
  loop: LoopConfig = LoopConfig(num_steps=2000, log_every=10, eval_every=100, checkpoint_every=100)
  ema_decay: float = 0.99
  matmul_precision: str | None = "bfloat16"
  samples: str = "runs/samples.npz"
  bundle: str = "checkpoints/emoji64"


def get_config(arg: str = "") -> EagleRun:
  """Config of a run; there is one."""
  if arg:
    raise ValueError(f"Must have config '', we instead got {arg!r}")
  return EagleRun()


def host_features(bundle: Bundle, samples: Samples, batch: int = 16) -> np.ndarray:
  """Guided features ``[M, P + N - 1, D]`` float16 of the target over its own samples."""
  fns, params = guided_target(bundle, features="combined")

  @jax.jit
  def read(params, text, ids, mask, tokens):
    inputs = Prefixed(bundle.text.fns.apply(text, ids, mask), tokens[:, :-1])
    positions = jnp.arange(bundle.target.config.prefix_len + tokens.shape[1] - 1)[None]
    return fns.apply(params, inputs, None, positions=positions)[0].features.astype(jnp.float16)

  parts = []
  for start in range(0, len(samples["tokens"]), batch):
    rows = pick(samples, np.arange(start, min(start + batch, len(samples["tokens"]))))
    parts.append(np.asarray(read(params, bundle.text.params, rows["ids"], rows["mask"], rows["tokens"])))
  return np.concatenate(parts)


def make_loss_fn(run: EagleRun, config: EagleConfig, temperature: float):
  """The loss of both passes; metrics ``acceptance`` and ``acceptance_own`` are their 1 - TV at the bundle's temperature."""
  fns, first = eagle_fns(config), config.prefix_len - 1

  def loss_fn(params, extra, batch, key):
    features = batch["features"].astype(jnp.float32)
    # Place j pairs the feature at j with the token at j + 1; the ids at places of the condition are 0.
    tokens = jnp.pad(batch["tokens"][:, :-1], ((0, 0), (first, 0)))  # [B, P + N - 2]
    given, wanted = features[:, :-1], features[:, 1:]
    law = jnp.einsum("btd,vd->btv", wanted, extra["output"]["weight"]) / temperature
    image = jnp.arange(tokens.shape[1])[None] >= first
    weights = attach(params, extra)

    def compare(read):
      output, _ = fns.apply(weights, Pairs(tokens, read))
      logits = output.logits / temperature
      losses = feature_losses(output.features, wanted, logits, law, image)
      p, q = jax.nn.softmax(law[:, first:]), jax.nn.softmax(logits[:, first:])
      acceptance = jnp.mean(jnp.sum(jnp.minimum(p, q), axis=-1))
      loss = 1 - acceptance + run.token_weight * losses.token + run.feature_weight * losses.feature
      return loss, acceptance, losses, output.features

    if key is None:
      read, pick_key = given, jax.random.key(0)
    else:
      noise_key, pick_key = jax.random.split(key)
      size = run.noise * jnp.sqrt(jnp.mean(jnp.square(given)))
      read = given + size * jax.random.uniform(noise_key, given.shape, minval=-1.0)
    loss, acceptance, losses, predicted = compare(read)

    # What the drafter said one place before is what it would read here.
    own = jnp.concatenate([given[:, :1], jax.lax.stop_gradient(predicted[:, :-1])], axis=1)
    chosen = jax.random.bernoulli(pick_key, run.own_fraction, tokens.shape)
    own_loss, own_acceptance, _, _ = compare(jnp.where(chosen[..., None], own, read))
    metrics = {
      "acceptance": acceptance, "acceptance_own": own_acceptance, "feature": losses.feature, "token": losses.token
    }  # fmt: skip
    return 0.5 * (loss + own_loss), (metrics, extra)

  return loss_fn


def train(run: EagleRun, run_dir: str | Path, resume: bool = True, export_to: str | Path | None = None):
  """Trains, evaluates on held-out samples and (with ``export_to``) adds the drafter to the bundle."""
  if export_to is not None:
    bundles.read_bundle(Path(export_to))  # a folder that is no bundle shows before the training, not after it
  bundle = load_bundle(run.bundle, drafts=[])
  samples = load_samples(run.samples, at_least=run.num_samples)
  samples = {name: leaf[: run.num_samples] for name, leaf in samples.items()}
  with jax.default_matmul_precision(run.matmul_precision):
    samples["features"] = host_features(bundle, samples)
  config = EagleConfig.of(bundle.target.config)
  loss_fn = make_loss_fn(run, config, bundle.defaults["temperature"])
  optimizer = make_optimizer(run.optimizer, run.loop.num_steps)
  step = make_train_step(
    loss_fn, optimizer, ema_decay=run.ema_decay, seed=run.seed, matmul_precision=run.matmul_precision
  )
  train_rows, held_out = split_rows(run.num_samples, HELD_OUT)
  batches = make_batch_fn(samples, train_rows, run.batch_size, run.seed)
  compute = jax.jit(lambda params, extra, batch: loss_fn(params, extra, batch, None)[1][0])

  def eval_fn(state):
    parts = [
      jax.device_get(compute(state.ema, state.extra, pick(samples, held_out[i : i + 16]))) for i in range(0, HELD_OUT, 16)
    ]
    return {name: float(sum(part[name] for part in parts)) / len(parts) for name in parts[0]}

  started = time.perf_counter()
  # The state is donated: the bundle keeps its own copies of the frozen tables.
  frozen = {name: jax.tree.map(jnp.copy, bundle.target.params[name]) for name in HOST_TABLES}
  state = train_state.create(eagle_fns(config).init(jax.random.key(run.seed)), optimizer, extra=frozen)
  with TrainProgress(NAME, items_per_step=run.batch_size) as progress:
    state = fit(run.loop, state, step, batches, run_dir=run_dir, eval_fn=eval_fn, report_fn=progress, resume=resume)
  if export_to is not None:
    export(run, config, state, eval_fn(state), Path(export_to), bundle, time.perf_counter() - started)
  return state


def export(run: EagleRun, config, state, figures, path: Path, bundle: Bundle, seconds: float) -> None:
  """Writes the drafter's own weights and enters it into ``bundle.json``; the tables stay the target's."""
  assert not set(HOST_TABLES) & set(state.ema)
  meta = {
    "licence": bundle.target.meta.get("licence", "unknown"),
    "command": "python -m experiments.train_eagle",
    "guided": False,
    "distilled_at_cfg": bundle.defaults["cfg_scale"],
    "distilled_at_temperature": bundle.defaults["temperature"],
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
  parser.add_argument("--config", default="")
  parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
  parser.add_argument("--run-dir", type=Path, default=Path("runs/eagle"))
  parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)
  parser.add_argument("--export", metavar="BUNDLE")
  args = parser.parse_args()
  logging.basicConfig(level=logging.WARNING)
  train(override(get_config(args.config), args.set), args.run_dir, args.resume, args.export)


if __name__ == "__main__":
  main()
